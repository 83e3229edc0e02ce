//! The first step of the data path: what does a request ask for?
//!
//! [`RequestInfo::parse`] turns a method, a path and a query into a [`RequestInfo`] by
//! kube-apiserver's own rules, on the path as the server will decode it, so that we never give
//! a request another meaning than the server that gets its bytes. Ordinary requests are borrowed
//! from the input; only a percent-encoded path or a field selector allocates.

mod display;
mod query;

use std::borrow::Cow;

use crate::Verb;
use crate::discovery::Part;
use crate::discovery::model::AGGREGATED_GROUP;
use crate::discovery::negotiate::Form;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestInfo<'a> {
    /// An object, a collection or a subresource.
    Resource(ResourceRequest<'a>),
    /// What the server, or the cluster, serves.
    Discovery(DiscoveryPath<'a>),
    /// The schemas of what is served.
    OpenApi(OpenApiPath<'a>),
    /// Anything else: `/healthz`, `/version`, `/metrics`, …
    NonResource,
    /// A path that kube-apiserver refuses before routing (400 or 500). Only the server can say how.
    Malformed,
}

/// A request for an object, a collection or a subresource. Fields are as kube-apiserver's
/// `RequestInfo` has them; what is absent is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest<'a> {
    /// What is asked of the resource.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: Cow<'a, str>,
    /// The version of the group.
    pub version: Cow<'a, str>,
    /// The plural name, such as `pods`.
    pub resource: Cow<'a, str>,
    /// The subresource, such as `status`; the first part of what follows the name.
    pub subresource: Cow<'a, str>,
    /// The namespace; for `namespaces/NAME` that same name.
    pub namespace: Cow<'a, str>,
    /// The object's name, from the path or from a field selector that names one object.
    pub name: Cow<'a, str>,
}

/// A path of discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoveryPath<'a> {
    /// `/api`
    Api,
    /// `/apis`
    Apis,
    /// `/apis/G`
    Group(Cow<'a, str>),
    /// `/apis/G/V`, or `/api/V` with an empty group.
    GroupVersion(Cow<'a, str>, Cow<'a, str>),
}

impl DiscoveryPath<'_> {
    /// The half of the API surface that it describes.
    pub fn part(&self) -> Part {
        match self {
            DiscoveryPath::Api => Part::Api,
            DiscoveryPath::Apis | DiscoveryPath::Group(_) => Part::Apis,
            DiscoveryPath::GroupVersion(group, _) => Part::of_group(group),
        }
    }

    /// The form of the one document at a path that only we answer: `/apis/apidiscovery.k8s.io/v2`
    /// gives the aggregated list, where real servers know only the type of that name.
    pub fn aggregated(&self) -> Option<Form> {
        match self {
            DiscoveryPath::GroupVersion(group, version) if group == AGGREGATED_GROUP => {
                match &**version {
                    "v2" => Some(Form::AggregatedV2),
                    "v2beta1" => Some(Form::AggregatedV2beta1),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// A path of OpenAPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenApiPath<'a> {
    /// `/openapi/v2`
    V2,
    /// `/openapi/v3`: the index.
    V3,
    /// `/openapi/v3/PATH`: one document, by its key in the index (`apis/batch/v1`).
    V3Document(Cow<'a, str>),
}

impl<'a> RequestInfo<'a> {
    /// Reads a request. `path` and `query` are the raw parts of the request target.
    pub fn parse(method: &str, path: &'a str, query: Option<&str>) -> RequestInfo<'a> {
        let query = query.unwrap_or_default();
        // One look at each text tells the ordinary from the rest.
        let odd_path = any_byte(path, |byte| is_control(byte) | (byte == b'%'));
        let odd_query = any_byte(query, |byte| is_control(byte) | query::is_special(byte));
        if (odd_path && any_byte(path, is_control)) || (odd_query && any_byte(query, is_control)) {
            return RequestInfo::Malformed;
        }
        let mut info = if !odd_path {
            parse_path(method, path)
        } else {
            match percent_decode(path, false) {
                Some(path) => parse_path(method, &path).into_owned(),
                None => RequestInfo::Malformed,
            }
        };
        if let RequestInfo::Resource(request) = &mut info {
            request.settle_verb(query, odd_query);
        }
        info
    }

    fn into_owned(self) -> RequestInfo<'static> {
        match self {
            RequestInfo::Resource(r) => RequestInfo::Resource(ResourceRequest {
                verb: r.verb,
                group: owned(r.group),
                version: owned(r.version),
                resource: owned(r.resource),
                subresource: owned(r.subresource),
                namespace: owned(r.namespace),
                name: owned(r.name),
            }),
            RequestInfo::Discovery(path) => RequestInfo::Discovery(match path {
                DiscoveryPath::Api => DiscoveryPath::Api,
                DiscoveryPath::Apis => DiscoveryPath::Apis,
                DiscoveryPath::Group(group) => DiscoveryPath::Group(owned(group)),
                DiscoveryPath::GroupVersion(group, version) => {
                    DiscoveryPath::GroupVersion(owned(group), owned(version))
                }
            }),
            RequestInfo::OpenApi(path) => RequestInfo::OpenApi(match path {
                OpenApiPath::V2 => OpenApiPath::V2,
                OpenApiPath::V3 => OpenApiPath::V3,
                OpenApiPath::V3Document(key) => OpenApiPath::V3Document(owned(key)),
            }),
            RequestInfo::NonResource => RequestInfo::NonResource,
            RequestInfo::Malformed => RequestInfo::Malformed,
        }
    }
}

impl ResourceRequest<'_> {
    /// Whether a container or a backend writes the response, and not the server.
    pub fn is_relayed(&self) -> bool {
        matches!(&*self.subresource, "proxy" | "exec" | "attach" | "portforward" | "log")
    }

    /// Without a name a GET is a list or a watch, and a DELETE is of the collection.
    fn settle_verb(&mut self, query: &str, odd: bool) {
        if !self.name.is_empty() {
            return;
        }
        match self.verb {
            Verb::Get => {
                let [watch, selector] = query::first(query, odd, ["watch", "fieldSelector"]);
                let watches = watch.is_some_and(|value| query::asks_watch(&value));
                self.verb = if watches { Verb::Watch } else { Verb::List };
                let selected = |selector: Cow<'_, str>| query::selected_name(query, odd, &selector);
                if let Some(name) = selector.and_then(selected) {
                    self.name = Cow::Owned(name);
                }
            }
            Verb::Delete => self.verb = Verb::DeleteCollection,
            _ => {}
        }
    }
}

/// Reads a decoded path. A verb that depends on the query is settled by the caller.
fn parse_path<'a>(method: &str, path: &'a str) -> RequestInfo<'a> {
    if !path.starts_with('/') {
        // `OPTIONS *` and the empty path of an absolute target are paths, however odd.
        return match path {
            "" | "*" => RequestInfo::NonResource,
            _ => RequestInfo::Malformed,
        };
    }
    // Most requests are for resources, and no path is of both sorts.
    match parse_resource(method, path) {
        RequestInfo::NonResource => {
            parse_described(method, path).unwrap_or(RequestInfo::NonResource)
        }
        info => info,
    }
}

fn parse_resource<'a>(method: &str, path: &'a str) -> RequestInfo<'a> {
    let mut parts = Parts::new(trimmed(path), b'/');
    let group = match parts.next() {
        Some("api") => "",
        Some("apis") => match parts.next() {
            Some(group) => group,
            None => return RequestInfo::NonResource,
        },
        _ => return RequestInfo::NonResource,
    };
    let (Some(version), Some(mut first)) = (parts.next(), parts.next()) else {
        return RequestInfo::NonResource;
    };

    let verb = match prefix_verb(first) {
        Some(verb) => {
            let Some(next) = parts.next() else {
                return RequestInfo::Malformed;
            };
            first = next;
            verb
        }
        None => method_verb(method),
    };

    let (namespace, resource, name, subresource);
    if first == "namespaces" {
        namespace = parts.next().unwrap_or_default();
        match parts.next() {
            // A step after the namespace that is not its own subresource is a resource within it.
            Some(part) if part != "status" && part != "finalize" => {
                resource = part;
                name = parts.next().unwrap_or_default();
                subresource = parts.next().unwrap_or_default();
            }
            own => {
                resource = first;
                name = namespace;
                subresource = own.unwrap_or_default();
            }
        }
    } else {
        namespace = "";
        resource = first;
        name = parts.next().unwrap_or_default();
        subresource = parts.next().unwrap_or_default();
    }

    RequestInfo::Resource(ResourceRequest {
        verb,
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        resource: Cow::Borrowed(resource),
        subresource: Cow::Borrowed(if verb == Verb::Proxy { "" } else { subresource }),
        namespace: Cow::Borrowed(namespace),
        name: Cow::Borrowed(name),
    })
}

fn trimmed(mut path: &str) -> &str {
    while let Some(rest) = path.strip_prefix('/') {
        path = rest;
    }
    while let Some(rest) = path.strip_suffix('/') {
        path = rest;
    }
    path
}

/// The parts of a text between single ASCII bytes, quicker than `str::split`.
struct Parts<'a>(Option<&'a str>, u8);

impl<'a> Parts<'a> {
    fn new(text: &'a str, separator: u8) -> Parts<'a> {
        Parts(Some(text), separator)
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let end = rest.bytes().position(|byte| byte == self.1).unwrap_or(rest.len());
        self.0 = rest.get(end + 1..);
        rest.get(..end)
    }
}

/// The paths that describe the API surface, where the method reads them. Real servers take slashes
/// at the end of a discovery path, and nowhere else; OpenAPI paths take none.
fn parse_described<'a>(method: &str, path: &'a str) -> Option<RequestInfo<'a>> {
    if method != "GET" && method != "HEAD" {
        return None;
    }
    match path {
        "/openapi/v2" => return Some(RequestInfo::OpenApi(OpenApiPath::V2)),
        "/openapi/v3" => return Some(RequestInfo::OpenApi(OpenApiPath::V3)),
        "/apis//" => return None,
        _ => {}
    }
    if let Some(key) = path.strip_prefix("/openapi/v3/") {
        let named = !key.is_empty() && !key.ends_with('/');
        return named.then(|| RequestInfo::OpenApi(OpenApiPath::V3Document(key.into())));
    }

    let mut parts = path.strip_prefix('/')?.trim_end_matches('/').split('/');
    let discovery = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
        ("api", None, None, None) => DiscoveryPath::Api,
        ("api", Some(version), None, None) if !version.is_empty() => {
            DiscoveryPath::GroupVersion("".into(), version.into())
        }
        ("apis", None, None, None) => DiscoveryPath::Apis,
        ("apis", Some(group), None, None) if !group.is_empty() => {
            DiscoveryPath::Group(group.into())
        }
        ("apis", Some(group), Some(version), None) if !group.is_empty() && !version.is_empty() => {
            DiscoveryPath::GroupVersion(group.into(), version.into())
        }
        _ => return None,
    };
    Some(RequestInfo::Discovery(discovery))
}

fn prefix_verb(part: &str) -> Option<Verb> {
    match part {
        "watch" => Some(Verb::Watch),
        "proxy" => Some(Verb::Proxy),
        _ => None,
    }
}

fn method_verb(method: &str) -> Verb {
    match method {
        "GET" | "HEAD" => Verb::Get,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" => Verb::Delete,
        _ => Verb::Other,
    }
}

/// Bytes for which a Go server answers 400 wherever they stand in the target.
fn is_control(byte: u8) -> bool {
    (byte < b' ') | (byte == 0x7f)
}

/// Whether there is such a byte. Every byte is looked at, many at a time: mostly there is none.
fn any_byte(text: &str, is: impl Fn(u8) -> bool) -> bool {
    let any = |bytes: &[u8]| bytes.iter().fold(false, |any, byte| any | is(*byte));
    let bytes = text.as_bytes();
    let (chunks, rest) = bytes.as_chunks::<16>();
    let ends = match bytes.last_chunk::<16>() {
        Some(_) if rest.is_empty() => false,
        Some(last) => any(last),
        None => any(rest),
    };
    chunks.iter().fold(ends, |found, chunk| found | any(chunk))
}

/// Undoes percent-encoding as a Go server does; `None` for a `%` that two hexadecimal digits do not
/// follow. Bytes that are not UTF-8 become U+FFFD, which no served name contains.
fn percent_decode(text: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    if !any_byte(text, |byte| (byte == b'%') | ((byte == b'+') & plus_is_space)) {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?,
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    Some(Cow::Owned(match String::from_utf8(decoded) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }))
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}
