//! Columns of volumes and of the group `storage.k8s.io`. Entry: [`layout`].

use serde_json::Value;

use super::cell::{AGE, Cell, Column, NAME, View, boolean, integer, plain, text, text_of};

pub(super) fn layout(resource: &str) -> Option<&'static [Column]> {
    Some(match resource {
        "storageclasses" => CLASSES,
        "volumeattributesclasses" => ATTRIBUTES_CLASSES,
        "volumeattachments" => ATTACHMENTS,
        "csinodes" => NODES,
        "csidrivers" => DRIVERS,
        "csistoragecapacities" => CAPACITIES,
        _ => return None,
    })
}

const ATTRIBUTES_CLASS: Column =
    text("VolumeAttributesClass", Cell::Text("spec.volumeAttributesClassName", "<unset>"));
const STORAGE_CLASS: Column = text("StorageClass", Cell::Computed(storage_class));
const VOLUME_MODE: Column = text("VolumeMode", Cell::Text("spec.volumeMode", "<unset>")).wide();

pub(super) const VOLUMES: &[Column] = &[
    NAME,
    text("Capacity", Cell::Computed(|view| quantity(view, "spec.capacity.storage").into())),
    text("Access Modes", Cell::Computed(|view| access_modes(view, "spec.accessModes").into())),
    text("Reclaim Policy", Cell::Text("spec.persistentVolumeReclaimPolicy", "")),
    text("Status", Cell::Computed(phase)),
    text("Claim", Cell::Computed(claim)),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    text("Reason", Cell::Text("status.reason", "")),
    AGE,
    VOLUME_MODE,
];

pub(super) const CLAIMS: &[Column] = &[
    NAME,
    text("Status", Cell::Computed(phase)),
    text("Volume", Cell::Text("spec.volumeName", "")),
    text("Capacity", Cell::Computed(|view| bound(view, quantity(view, "status.capacity.storage")))),
    text(
        "Access Modes",
        Cell::Computed(|view| bound(view, access_modes(view, "status.accessModes"))),
    ),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    AGE,
    VOLUME_MODE,
];

const CLASSES: &[Column] = &[
    Column { format: "name", ..text("Name", Cell::Computed(class_name)) },
    text("Provisioner", Cell::Text("provisioner", "")),
    text("ReclaimPolicy", Cell::Text("reclaimPolicy", "Delete")),
    text("VolumeBindingMode", Cell::Text("volumeBindingMode", "Immediate")),
    text("AllowVolumeExpansion", Cell::Boolean("allowVolumeExpansion", false)),
    AGE,
];

const ATTRIBUTES_CLASSES: &[Column] =
    &[NAME, text("DriverName", Cell::Text("driverName", "")), AGE];

const ATTACHMENTS: &[Column] = &[
    NAME,
    Column { format: "name", ..text("Attacher", Cell::Text("spec.attacher", "")) },
    text("PV", Cell::Text("spec.source.persistentVolumeName", "")),
    text("Node", Cell::Text("spec.nodeName", "")),
    boolean("Attached", Cell::Boolean("status.attached", false)),
    AGE,
];

const NODES: &[Column] = &[NAME, integer("Drivers", Cell::Count("spec.drivers")), AGE];

const DRIVERS: &[Column] = &[
    NAME,
    boolean("AttachRequired", Cell::Boolean("spec.attachRequired", true)),
    boolean("PodInfoOnMount", Cell::Boolean("spec.podInfoOnMount", false)),
    boolean("StorageCapacity", Cell::Boolean("spec.storageCapacity", false)),
    text("TokenRequests", Cell::Computed(token_requests)),
    boolean("RequiresRepublish", Cell::Boolean("spec.requiresRepublish", false)),
    text("Modes", Cell::Computed(modes)),
    AGE,
];

const CAPACITIES: &[Column] = &[
    NAME,
    text("StorageClassName", Cell::Text("storageClassName", "")),
    text(
        "Capacity",
        Cell::Computed(|view| plain(view.at("capacity")).unwrap_or("<unset>".into()).into()),
    ),
];

/// A quantity as it was sent; real servers print it in its canonical form.
fn quantity(view: &View<'_>, path: &str) -> String {
    plain(view.at(path)).unwrap_or_else(|| "0".to_owned())
}

/// A cell of a claim that is empty until the claim has a volume.
fn bound(view: &View<'_>, text: String) -> Value {
    if view.text("spec.volumeName").is_empty() { "".into() } else { text.into() }
}

fn access_modes(view: &View<'_>, path: &str) -> String {
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = view.list(path);
    let modes = known.into_iter().filter(|(mode, _)| modes.iter().any(|value| value == mode));
    modes.map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

fn phase(view: &View<'_>) -> Value {
    if view.is_deleting() {
        "Terminating".into()
    } else {
        view.text_or("status.phase", "Pending").into()
    }
}

fn claim(view: &View<'_>) -> Value {
    match view.at("spec.claimRef") {
        Some(claim) => format!("{}/{}", text_of(claim, "namespace"), text_of(claim, "name")).into(),
        None => "".into(),
    }
}

fn storage_class(view: &View<'_>) -> Value {
    let annotations = view.map("metadata.annotations");
    let old = annotations.and_then(|map| map.get("volume.beta.kubernetes.io/storage-class"));
    match old.and_then(Value::as_str) {
        Some(class) => class.into(),
        None => view.text("spec.storageClassName").into(),
    }
}

fn class_name(view: &View<'_>) -> Value {
    let default = view.annotated("storageclass.kubernetes.io/is-default-class")
        || view.annotated("storageclass.beta.kubernetes.io/is-default-class");
    match default {
        true => format!("{} (default)", view.name()).into(),
        false => view.name().into(),
    }
}

fn token_requests(view: &View<'_>) -> Value {
    match view.at("spec.tokenRequests").and_then(Value::as_array) {
        Some(requests) => {
            let audiences: Vec<_> =
                requests.iter().map(|request| text_of(request, "audience")).collect();
            audiences.join(",").into()
        }
        None => "<unset>".into(),
    }
}

fn modes(view: &View<'_>) -> Value {
    let modes: Vec<_> =
        view.list("spec.volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    if modes.is_empty() { "<none>".into() } else { modes.join(",").into() }
}
