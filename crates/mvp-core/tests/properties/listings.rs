//! Which members list a request, read from their documents without the code under test.

use std::collections::HashSet;

use mvp_core::discovery::Part;
use mvp_core::request::ResourceRequest;
use mvp_core::{RequestInfo, Verb};
use serde_json::Value;

use crate::clusters::{Cluster, Server};
use crate::contents::{find_resource, find_subresource, list, text};

/// Which members list a request, read from their documents without the code under test.
pub(crate) struct Listing<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) request: &'a ResourceRequest<'a>,
}

impl<'a> Listing<'a> {
    pub(crate) fn of(cluster: &'a Cluster, info: &'a RequestInfo<'a>) -> Listing<'a> {
        let RequestInfo::Resource(request) = info else { panic!("no resource: {info:?}") };
        Listing { cluster, request }
    }

    pub(crate) fn part(&self) -> Part {
        Part::of_group(&self.request.group)
    }

    fn entry(&self, server: &'a Server) -> Option<&'a Value> {
        let document = server.document(self.part())?;
        let request = self.request;
        find_resource(document, &request.group, &request.version, &request.resource)
    }

    /// Whether a member lists the resource, with any subresource and verb.
    pub(crate) fn resource(&self, server: &'a Server) -> bool {
        self.entry(server).is_some()
    }

    /// Whether a member lists the resource, or the requested subresource.
    pub(crate) fn roughly(&self, server: &'a Server) -> bool {
        let entry = self.entry(server);
        entry.is_some_and(|entry| find_subresource(entry, &self.request.subresource).is_some())
    }

    /// Whether a member lists the request, verb included.
    pub(crate) fn exactly(&self, server: &'a Server) -> bool {
        let entry = self.entry(server);
        let entry = entry.and_then(|entry| find_subresource(entry, &self.request.subresource));
        let verb = self.request.verb.as_str();
        entry.is_some_and(|entry| {
            let verbs = list(entry, "verbs");
            self.path_fits() && (verb.is_empty() || verbs.contains(&Value::from(verb)))
        })
    }

    /// Whether the path fits the scope of the resource, if the members agree on the scope.
    fn path_fits(&self) -> bool {
        let scopes: HashSet<&str> = self
            .cluster
            .servers
            .iter()
            .filter_map(|server| self.entry(server))
            .map(|entry| text(entry, "scope"))
            .collect();
        let namespaced = !self.request.namespace.is_empty();
        let of_namespaces = self.request.group.is_empty() && self.request.resource == "namespaces";
        match scopes.iter().copied().collect::<Vec<_>>()[..] {
            ["Namespaced"] => namespaced || matches!(self.request.verb, Verb::List | Verb::Watch),
            ["Cluster"] => !namespaced || of_namespaces,
            _ => true,
        }
    }

    /// Whether a kubelet, a backend or an extension server may write the response.
    pub(crate) fn is_opaque(&self) -> bool {
        let request = self.request;
        let extension = |(group, version): &(String, String)| {
            *group == request.group && *version == request.version
        };
        let connects = ["proxy", "exec", "attach", "portforward"];
        connects.contains(&&*request.subresource) || self.cluster.extensions.iter().any(extension)
    }
}
