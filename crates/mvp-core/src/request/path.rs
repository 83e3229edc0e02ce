//! The path of a request, parsed by the rules of kube-apiserver's `RequestInfoFactory`.

use std::borrow::Cow;

use super::text::Parts;
use super::{DiscoveryPath, OpenApiPath, PathForm, RequestInfo, ResourceRequest};
use crate::Verb;

/// Parses a decoded path. The caller settles a verb that depends on the query.
pub(super) fn parse<'a>(method: &str, path: &'a str) -> RequestInfo<'a> {
    if !path.starts_with('/') {
        // `OPTIONS *` and the empty path of an absolute target are valid.
        return match path {
            "" | "*" => RequestInfo::NonResource(method_verb(method)),
            _ => RequestInfo::Malformed,
        };
    }
    // Resources first: most requests are for them, and no path matches both parsers.
    match parse_resource(method, path) {
        RequestInfo::NonResource(verb) => {
            parse_described(verb, path).unwrap_or(RequestInfo::NonResource(verb))
        }
        info => info,
    }
}

fn parse_resource<'a>(method: &str, path: &'a str) -> RequestInfo<'a> {
    let method_verb = method_verb(method);
    let mut parts = Parts::new(trimmed(path), b'/');
    let group = match parts.next() {
        Some("api") => "",
        Some("apis") => match parts.next() {
            Some(group) => group,
            None => return RequestInfo::NonResource(method_verb),
        },
        _ => return RequestInfo::NonResource(method_verb),
    };
    let (Some(version), Some(mut first)) = (parts.next(), parts.next()) else {
        return RequestInfo::NonResource(method_verb);
    };

    let verb = match prefix_verb(first) {
        Some(verb) => {
            let Some(next) = parts.next() else {
                return RequestInfo::Malformed;
            };
            first = next;
            verb
        }
        None => method_verb,
    };

    let (namespace, resource, name, subresource);
    if first == "namespaces" {
        namespace = parts.next().unwrap_or_default();
        match parts.next() {
            // What follows the namespace is a resource in it, unless it is the namespace's own
            // subresource.
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

    // Objects are created in a collection, which names none.
    let creates_named = verb == Verb::Create && !name.is_empty() && subresource.is_empty();
    let form = if path.starts_with("//") {
        PathForm::Unrouted
    } else if creates_named || parts.next().is_some() {
        PathForm::Unusual
    } else {
        PathForm::Usual
    };
    RequestInfo::Resource(ResourceRequest {
        verb,
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        resource: Cow::Borrowed(resource),
        subresource: Cow::Borrowed(if verb == Verb::Proxy { "" } else { subresource }),
        namespace: Cow::Borrowed(namespace),
        name: Cow::Borrowed(name),
        safe_method: method_verb == Verb::Get,
        named_by_path: !name.is_empty(),
        form,
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

/// Parses the paths of discovery and OpenAPI, for GET and HEAD. Real servers accept trailing slashes
/// on a discovery path, but not on an OpenAPI path.
fn parse_described(method_verb: Verb, path: &str) -> Option<RequestInfo<'_>> {
    if method_verb != Verb::Get {
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

    let mut parts = Parts::new(path.strip_prefix('/')?.trim_end_matches('/'), b'/');
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

#[inline]
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
