//! What real servers set in new objects of built-in kinds. Entries: [`has_generation`],
//! [`initial_status`].

use serde_json::{Value, json};

use crate::route::Target;

/// The built-in resources whose changes are counted.
const COUNTED: [(&str, &[&str]); 11] = [
    ("", &["pods", "podtemplates", "replicationcontrollers"]),
    ("admissionregistration.k8s.io", ALL),
    ("apiextensions.k8s.io", ALL),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("batch", ALL),
    ("discovery.k8s.io", ALL),
    ("flowcontrol.apiserver.k8s.io", ALL),
    ("networking.k8s.io", &["ingresses", "ingressclasses", "networkpolicies"]),
    ("policy", ALL),
    ("resource.k8s.io", &["deviceclasses", "devicetaintrules", "resourceslices"]),
    ("scheduling.k8s.io", ALL),
];
/// All resources of a group.
const ALL: &[&str] = &[];

/// Whether the changes of such objects are counted in `metadata.generation`. Those of custom resources
/// always are.
pub(crate) fn has_generation(target: &Target<'_>) -> bool {
    let (group, plural) = (target.group.name.as_str(), target.resource.plural.as_str());
    let counted = COUNTED.iter().find(|(name, _)| *name == group);
    let built_in = group.ends_with(".k8s.io") || ["", "apps", "autoscaling"].contains(&group);
    match counted {
        Some((_, resources)) => resources.is_empty() || resources.contains(&plural),
        None => !built_in,
    }
}

/// The status of a new object, if its kind has one from the start.
pub(crate) fn initial_status(target: &Target<'_>) -> Option<Value> {
    let phase = |phase: &str| Some(json!({ "phase": phase }));
    match (target.group.name.as_str(), target.resource.plural.as_str()) {
        ("", "pods" | "persistentvolumes" | "persistentvolumeclaims") => phase("Pending"),
        ("", "services") => Some(json!({ "loadBalancer": {} })),
        _ => None,
    }
}

/// Whether new objects keep the status that was sent. Nodes register themselves with it.
pub(crate) fn keeps_status(target: &Target<'_>) -> bool {
    target.group.name.is_empty() && target.resource.plural == "nodes"
}
