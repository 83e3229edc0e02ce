//! The first step of the data path: what a request asks for.
//!
//! [`RequestInfo::parse`] reads a method, a path and a query by kube-apiserver's own rules, on the
//! path as the server decodes it, so that the proxy and the server never disagree about what a
//! request means. It borrows from the input; only a percent-encoded path or a field selector
//! allocates.
//!
//! Questions that several places ask about a request are answered here and nowhere else:
//! [`RequestInfo::is_read`], [`RequestInfo::may_be_replayed`] and [`RequestInfo::part`].

mod display;
mod path;
mod query;
mod text;

use std::borrow::Cow;

use crate::Verb;
use crate::discovery::Part;
use crate::discovery::model::AGGREGATED_GROUP;
use crate::discovery::negotiate::Form;
use text::{any_byte, is_control, percent_decode};

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestInfo<'a> {
    /// An object, a collection or a subresource.
    Resource(ResourceRequest<'a>),
    /// The list of APIs that the server, or the cluster, serves. Always GET or HEAD.
    Discovery(DiscoveryPath<'a>),
    /// The schemas of these APIs. Always GET or HEAD.
    OpenApi(OpenApiPath<'a>),
    /// Any other path, such as `/healthz`, `/version` or `/metrics`, with the verb of the method.
    NonResource(Verb),
    /// A path that kube-apiserver rejects before routing (400 or 500). The server writes the error.
    Malformed,
}

/// A request for an object, a collection or a subresource. The fields are those of kube-apiserver's
/// `RequestInfo`; an absent one is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest<'a> {
    /// The verb, as RBAC names it.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: Cow<'a, str>,
    /// The version of the group.
    pub version: Cow<'a, str>,
    /// The plural name, such as `pods`.
    pub resource: Cow<'a, str>,
    /// The subresource, such as `status`: the path segment after the name.
    pub subresource: Cow<'a, str>,
    /// The namespace; for `namespaces/NAME` that same name.
    pub namespace: Cow<'a, str>,
    /// The object's name, from the path or from a field selector that names one object.
    pub name: Cow<'a, str>,
    /// Whether the method is GET or HEAD. The path prefix `watch` makes a watch of any method.
    safe_method: bool,
    /// Whether the path names an object; a field selector can name one, too.
    named_by_path: bool,
    form: PathForm,
}

/// Whether servers route the path of a resource request. kube-apiserver's `RequestInfo` finds a
/// resource in many paths that its routing answers with a 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathForm {
    /// The path of a resource.
    Usual,
    /// A path that built-in resources do not have, such as `pods/NAME/status/more`. For a custom
    /// resource, servers ignore what follows the subresource.
    Unusual,
    /// A path that begins with two slashes. No server routes it.
    Unrouted,
}

/// A discovery path.
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
    /// The half of the API surface that the document describes.
    pub fn part(&self) -> Part {
        match self {
            DiscoveryPath::Api => Part::Api,
            DiscoveryPath::Apis | DiscoveryPath::Group(_) => Part::Apis,
            DiscoveryPath::GroupVersion(group, _) => Part::of_group(group),
        }
    }

    /// The form of the document at a path that only `mvp` serves: `/apis/apidiscovery.k8s.io/v2` is
    /// the aggregated list. Real servers use that name only as a media type.
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

/// An OpenAPI path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenApiPath<'a> {
    /// `/openapi/v2`
    V2,
    /// `/openapi/v3`: the index.
    V3,
    /// `/openapi/v3/PATH`: one document, by its key in the index (`apis/batch/v1`).
    V3Document(Cow<'a, str>),
}

impl OpenApiPath<'_> {
    /// The half of the API surface that the document describes: [`Part::Api`] for a document of
    /// the core group, [`Part::Apis`] for any other, also for one that describes both halves.
    pub fn part(&self) -> Part {
        match self {
            OpenApiPath::V3Document(key) if key.split('/').next() == Some("api") => Part::Api,
            OpenApiPath::V2 | OpenApiPath::V3 | OpenApiPath::V3Document(_) => Part::Apis,
        }
    }
}

impl<'a> RequestInfo<'a> {
    /// Parses a request. `path` and `query` are the raw parts of the request target.
    pub fn parse(method: &str, path: &'a str, query: Option<&str>) -> RequestInfo<'a> {
        let query = query.unwrap_or_default();
        // One pass over each text finds out whether it needs any decoding.
        let odd_path = any_byte(path, |byte| is_control(byte) | (byte == b'%'));
        let odd_query = any_byte(query, |byte| is_control(byte) | query::is_special(byte));
        if (odd_path && any_byte(path, is_control)) || (odd_query && any_byte(query, is_control)) {
            return RequestInfo::Malformed;
        }
        let mut info = if !odd_path {
            path::parse(method, path)
        } else {
            match percent_decode(path, false) {
                Some(path) => path::parse(method, &path).into_owned(),
                None => RequestInfo::Malformed,
            }
        };
        if let RequestInfo::Resource(request) = &mut info {
            request.settle_verb(query, odd_query);
        }
        info
    }

    /// Whether the request only reads: a server that processes it twice changes nothing. A malformed
    /// request is never a read, because its meaning is unknown.
    pub fn is_read(&self) -> bool {
        match self {
            RequestInfo::Resource(request) => request.is_read(),
            RequestInfo::Discovery(_) | RequestInfo::OpenApi(_) => true,
            RequestInfo::NonResource(verb) => verb.is_read(),
            RequestInfo::Malformed => false,
        }
    }

    /// Whether the request may be sent to a second server after a first one may have processed it:
    /// reads may, but not a request that connects to a container or a backend, and not a connection
    /// `upgrade`.
    pub fn may_be_replayed(&self, upgrade: bool) -> bool {
        let connects = matches!(self, RequestInfo::Resource(request) if request.is_connect());
        self.is_read() && !connects && !upgrade
    }

    /// The half of the API surface that the request is about: [`Part::Api`] for the core group, its
    /// discovery and its OpenAPI documents, [`Part::Apis`] for everything else.
    pub fn part(&self) -> Part {
        match self {
            RequestInfo::Resource(request) => request.part(),
            RequestInfo::Discovery(path) => path.part(),
            RequestInfo::OpenApi(path) => path.part(),
            RequestInfo::NonResource(_) | RequestInfo::Malformed => Part::Apis,
        }
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
                safe_method: r.safe_method,
                named_by_path: r.named_by_path,
                form: r.form,
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
            RequestInfo::NonResource(verb) => RequestInfo::NonResource(verb),
            RequestInfo::Malformed => RequestInfo::Malformed,
        }
    }
}

impl ResourceRequest<'_> {
    /// Whether the request only reads. A watch by path prefix with another method than GET does not
    /// count: servers reject it, but an extension server may process it.
    pub fn is_read(&self) -> bool {
        self.safe_method && self.verb.is_read()
    }

    /// The half of the API surface that the resource belongs to.
    pub fn part(&self) -> Part {
        Part::of_group(&self.group)
    }

    /// Whether the request connects the client to a container or a backend. Such subresources accept
    /// GET, but what they do is up to the other end.
    pub fn is_connect(&self) -> bool {
        matches!(&*self.subresource, "proxy" | "exec" | "attach" | "portforward")
    }

    /// Whether a container or a backend writes the response, instead of the server.
    pub fn is_relayed(&self) -> bool {
        self.is_connect() || self.subresource == "log"
    }

    /// Whether the path names an object.
    pub(crate) fn is_named_by_path(&self) -> bool {
        self.named_by_path
    }

    /// Whether a server that serves the resource may still answer with an unrouted 404: built-in
    /// resources have no such path.
    pub(crate) fn has_unusual_path(&self) -> bool {
        self.form != PathForm::Usual
    }

    /// Whether no server routes the path, whatever it serves.
    pub(crate) fn is_unrouted(&self) -> bool {
        self.form == PathForm::Unrouted
    }

    /// Without a name, a GET is a list or a watch, and a DELETE deletes the collection.
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

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}
