//! Which columns a resource has. Entry: [`layout`].

use super::cell::{Cell, Column, NAME, text};
use super::{autoscaling, cluster, events, networking, nodes, pods, storage, workloads};

/// The columns of resources that have no printer of their own.
const DEFAULT: &[Column] = &[NAME, text("Created At", Cell::Created).date()];

/// The columns of a built-in resource, in every version.
pub(crate) fn layout(group: &str, resource: &str, subresource: &str) -> &'static [Column] {
    if subresource == "scale" {
        return autoscaling::SCALE;
    }
    let found = match group {
        "" => match resource {
            "pods" => Some(pods::PODS),
            "nodes" => Some(nodes::NODES),
            "events" => Some(events::EVENTS),
            "services" => Some(networking::SERVICES),
            "endpoints" => Some(networking::ENDPOINTS),
            "persistentvolumes" => Some(storage::VOLUMES),
            "persistentvolumeclaims" => Some(storage::CLAIMS),
            "replicationcontrollers" => Some(workloads::REPLICATION_CONTROLLERS),
            "podtemplates" => Some(workloads::POD_TEMPLATES),
            _ => cluster::core(resource),
        },
        "apps" | "batch" => workloads::layout(resource),
        "autoscaling" if resource == "horizontalpodautoscalers" => Some(autoscaling::AUTOSCALERS),
        "events.k8s.io" => Some(events::EVENTS),
        "networking.k8s.io" | "discovery.k8s.io" => networking::layout(resource),
        "storage.k8s.io" => storage::layout(resource),
        _ => cluster::layout(group, resource),
    };
    found.unwrap_or(DEFAULT)
}
