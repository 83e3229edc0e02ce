//! Columns of nodes. Entry: [`NODES`].

use std::collections::BTreeSet;

use serde_json::Value;

use super::cell::{AGE, Cell, Column, NAME, View, text, text_of};

pub(super) const NODES: &[Column] = &[
    NAME,
    text("Status", Cell::Computed(status)),
    text("Roles", Cell::Computed(roles)),
    AGE,
    text("Version", Cell::Text("status.nodeInfo.kubeletVersion", "")),
    text("Internal-IP", Cell::Computed(|view| address(view, "InternalIP"))).wide(),
    text("External-IP", Cell::Computed(|view| address(view, "ExternalIP"))).wide(),
    text("OS-Image", Cell::Text("status.nodeInfo.osImage", "<unknown>")).wide(),
    text("Kernel-Version", Cell::Computed(kernel)).wide(),
    text("Container-Runtime", Cell::Text("status.nodeInfo.containerRuntimeVersion", "<unknown>"))
        .wide(),
];

fn status(view: &View<'_>) -> Value {
    let mut status = match view.condition("Ready") {
        None => "Unknown",
        Some(ready) if text_of(ready, "status") == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if view.at("spec.unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

fn roles(view: &View<'_>) -> Value {
    let labels = view.map("metadata.labels").into_iter().flatten();
    let roles: BTreeSet<_> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    match roles.is_empty() {
        true => "<none>".into(),
        false => roles.into_iter().collect::<Vec<_>>().join(",").into(),
    }
}

fn address(view: &View<'_>, kind: &str) -> Value {
    let mut addresses = view.list("status.addresses").iter();
    let found = addresses.find(|address| text_of(address, "type") == kind);
    found.map_or("<none>", |address| text_of(address, "address")).into()
}

fn kernel(view: &View<'_>) -> Value {
    let version = view.text_or("status.nodeInfo.kernelVersion", "<unknown>");
    match view.text("status.nodeInfo.architecture") {
        "" => version.into(),
        architecture => format!("{version} ({architecture})").into(),
    }
}
