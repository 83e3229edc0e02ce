//! Finds the resource of a request. Entry: [`find`].

use http::Method;
use mvp_core::Verb;
use mvp_core::request::ResourceRequest;

use crate::query;
use crate::spec::{GroupSpec, ResourceSpec, SubresourceSpec};
use crate::status::Failure;
use crate::storage::{CollectionKey, ObjectKey};

/// A served resource, and the request for it.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) verb: Verb,
    pub(crate) group: &'a GroupSpec,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a ResourceSpec,
    pub(crate) subresource: Option<&'a SubresourceSpec>,
    /// The namespace; empty for cluster-scoped resources, and for all namespaces.
    pub(crate) namespace: String,
    /// The name; empty for a collection, unless a selector names one object.
    pub(crate) name: String,
}

/// Why there is no target.
#[derive(Debug)]
pub(crate) enum NoTarget {
    /// An unknown path: 404 in plain text.
    PageNotFound,
    /// An error as a `Status`.
    Failure(Failure),
}

/// Finds the target of a request.
pub(crate) fn find<'a>(
    groups: &'a [GroupSpec],
    method: &Method,
    path: &str,
    request: &ResourceRequest<'_>,
) -> Result<Target<'a>, NoTarget> {
    let not_routed = || NoTarget::Failure(Failure::not_routed());
    let not_allowed = || NoTarget::Failure(Failure::method_not_allowed());

    if path.starts_with("//") {
        return Err(NoTarget::PageNotFound);
    }
    let group = groups.iter().find(|group| group.name == request.group);
    let group = group.ok_or_else(|| match &*request.group {
        // Real servers always serve `/api`.
        "" => not_routed(),
        _ => NoTarget::PageNotFound,
    })?;
    let version = group.versions.iter().find(|version| version.version == request.version);
    let version = version.ok_or_else(not_routed)?;
    let resource = version.resources.iter().find(|entry| entry.plural == request.resource);
    let resource = resource.ok_or_else(not_routed)?;
    let shape = Shape::of(path, request).ok_or_else(not_routed)?;
    let subresource = match &*request.subresource {
        "" => None,
        name => {
            let found = resource.subresources.iter().find(|entry| entry.name == name);
            Some(found.ok_or_else(not_routed)?)
        }
    };
    if shape.in_namespace && !resource.namespaced {
        return Err(not_routed());
    }
    if resource.namespaced && !shape.in_namespace {
        match request.verb {
            Verb::List | Verb::Watch if !shape.named => {}
            _ if shape.named => return Err(not_routed()),
            _ => return Err(not_allowed()),
        }
    }

    let verbs = subresource.map_or(&resource.verbs, |subresource| &subresource.verbs);
    let fits = match request.verb {
        Verb::Get => shape.named && method == Method::GET,
        Verb::Update | Verb::Patch | Verb::Delete => shape.named,
        // Only GET is a list or a watch.
        Verb::List | Verb::Watch => method == Method::GET,
        // A subresource is created in its object.
        Verb::Create => shape.named == subresource.is_some(),
        Verb::DeleteCollection => true,
        Verb::Proxy => return Err(not_routed()),
        Verb::Other => false,
    };
    if !fits || !verbs.contains(&request.verb) {
        return Err(not_allowed());
    }
    Ok(Target {
        verb: request.verb,
        group,
        version: &version.version,
        resource,
        subresource,
        namespace: if resource.namespaced { request.namespace.to_string() } else { String::new() },
        name: request.name.to_string(),
    })
}

/// The parts of a path.
struct Shape {
    in_namespace: bool,
    named: bool,
}

impl Shape {
    /// `None` for a path with empty segments, or with more segments than a resource has.
    fn of(path: &str, request: &ResourceRequest<'_>) -> Option<Shape> {
        let path = query::decode(path, false)?;
        let steps: Vec<_> = path.strip_prefix('/')?.trim_end_matches('/').split('/').collect();
        let base = if request.group.is_empty() { 2 } else { 3 };
        let mut tail = steps.get(base..)?;
        let watch = request.verb == Verb::Watch && tail.first() == Some(&"watch");
        if watch {
            tail = tail.get(1..)?;
        }
        let itself = request.resource == "namespaces";
        let in_namespace = tail.first() == Some(&"namespaces") && !itself;
        // The name of a list comes from its selector.
        let named = !request.name.is_empty()
            && match request.verb {
                Verb::List => false,
                Verb::Watch => watch,
                _ => true,
            };
        let expected = 2 * usize::from(in_namespace)
            + 1
            + usize::from(named)
            + usize::from(!request.subresource.is_empty());
        let whole = tail.len() == expected && steps.iter().all(|step| !step.is_empty());
        whole.then_some(Shape { in_namespace, named })
    }
}

impl Target<'_> {
    /// The storage key of the resource.
    pub(crate) fn collection(&self) -> CollectionKey {
        CollectionKey { group: self.group.name.clone(), resource: self.resource.plural.clone() }
    }

    /// The storage key of the object.
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// `example.com/v1`; `v1` in the core group.
    pub(crate) fn api_version(&self) -> String {
        match self.group.name.as_str() {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `widgets.example.com`; `pods` in the core group.
    pub(crate) fn qualified_resource(&self) -> String {
        self.qualified(&self.resource.plural)
    }

    /// `Widget.example.com`; `Pod` in the core group.
    pub(crate) fn qualified_kind(&self) -> String {
        self.qualified(&self.resource.kind)
    }

    fn qualified(&self, name: &str) -> String {
        match self.group.name.as_str() {
            "" => name.to_owned(),
            group => format!("{name}.{group}"),
        }
    }
}
