//! What the trace of a request tells of its way through the layer. Entry item: [`served`].

use std::time::Instant;

use mvp_core::RequestInfo;

use super::exchange::Exchange;
use crate::metrics::Record;
use crate::trace::{Served, Trace};

impl Exchange<'_> {
    /// The begin of a step, if the request is traced.
    pub(super) fn step_begins(&self) -> Option<Instant> {
        self.request.trace.as_ref().map(|_| Instant::now())
    }

    /// Ends a step that began at `began`.
    pub(super) fn step_ends(&self, began: Option<Instant>, end: impl FnOnce(&Trace, Instant)) {
        if let (Some(trace), Some(began)) = (&self.request.trace, began) {
            end(trace, began);
        }
    }
}

/// How a request was served, for its trace.
pub(super) fn served<'a>(record: &Record<'a>) -> Served<'a> {
    Served {
        action: record.by.as_str(),
        reason: record.reason.as_str(),
        member: record.member,
        at_fault: record.at_fault,
        route: route(record),
    }
}

/// The path with placeholders for names, as kube-apiserver names its spans. Only of resources that a
/// member lists: clients choose the names of others.
fn route(record: &Record<'_>) -> Option<String> {
    let RequestInfo::Resource(request) = record.info else { return None };
    let (group, version, resource) = (&*request.group, &*request.version, &*request.resource);
    record.snapshot.listing(group, version, resource).next()?;
    let mut route = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let parts = [
        (!request.namespace.is_empty(), "namespaces/{:namespace}"),
        (true, resource),
        (!request.name.is_empty(), "{:name}"),
        (is_known(&request.subresource), &*request.subresource),
    ];
    for (_, part) in parts.into_iter().filter(|(present, _)| *present) {
        route.push('/');
        route.push_str(part);
    }
    Some(route)
}

/// Whether there is a subresource that Kubernetes has: clients may invent others.
fn is_known(subresource: &str) -> bool {
    const KNOWN: [&str; 14] = [
        "status",
        "scale",
        "exec",
        "attach",
        "portforward",
        "log",
        "proxy",
        "eviction",
        "binding",
        "ephemeralcontainers",
        "resize",
        "token",
        "approval",
        "finalize",
    ];
    KNOWN.contains(&subresource)
}
