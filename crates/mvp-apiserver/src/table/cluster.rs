//! Columns of the remaining kinds of the core group, and of small groups. Entries: [`core`], [`layout`].

use serde_json::Value;

use super::cell::{AGE, Cell, Column, NAME, View, boolean, first, integer, plain, text, text_of};

pub(super) fn core(resource: &str) -> Option<&'static [Column]> {
    Some(match resource {
        "configmaps" => CONFIG_MAPS,
        "secrets" => SECRETS,
        "serviceaccounts" => SERVICE_ACCOUNTS,
        "namespaces" => NAMESPACES,
        "resourcequotas" => QUOTAS,
        _ => return None,
    })
}

pub(super) fn layout(group: &str, resource: &str) -> Option<&'static [Column]> {
    Some(match (group, resource) {
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => BINDINGS,
        ("coordination.k8s.io", "leases") => LEASES,
        ("coordination.k8s.io", "leasecandidates") => LEASE_CANDIDATES,
        ("policy", "poddisruptionbudgets") => DISRUPTION_BUDGETS,
        ("apiregistration.k8s.io", "apiservices") => API_SERVICES,
        ("internal.apiserver.k8s.io", "storageversions") => STORAGE_VERSIONS,
        ("scheduling.k8s.io", "priorityclasses") => PRIORITY_CLASSES,
        ("node.k8s.io", "runtimeclasses") => RUNTIME_CLASSES,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => FLOW_SCHEMAS,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => PRIORITY_LEVELS,
        ("certificates.k8s.io", "certificatesigningrequests") => SIGNING_REQUESTS,
        ("admissionregistration.k8s.io", _) => match resource {
            "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => WEBHOOKS,
            "validatingadmissionpolicies" => VALIDATING_POLICIES,
            "mutatingadmissionpolicies" => MUTATING_POLICIES,
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
                POLICY_BINDINGS
            }
            _ => return None,
        },
        _ => return None,
    })
}

const CONFIG_MAPS: &[Column] = &[NAME, text("Data", Cell::Computed(entries)), AGE];

const SECRETS: &[Column] =
    &[NAME, text("Type", Cell::Text("type", "Opaque")), text("Data", Cell::Count("data")), AGE];

const SERVICE_ACCOUNTS: &[Column] = &[NAME, AGE];

const NAMESPACES: &[Column] = &[NAME, text("Status", Cell::Text("status.phase", "Active")), AGE];

const QUOTAS: &[Column] = &[
    NAME,
    text("Request", Cell::Computed(|view| quota(view, false))),
    text("Limit", Cell::Computed(|view| quota(view, true))),
    AGE,
];

const BINDINGS: &[Column] = &[
    NAME,
    text("Role", Cell::Computed(role)),
    AGE,
    text("Users", Cell::Computed(|view| subjects(view, "User"))).wide(),
    text("Groups", Cell::Computed(|view| subjects(view, "Group"))).wide(),
    text("ServiceAccounts", Cell::Computed(|view| subjects(view, "ServiceAccount"))).wide(),
];

const LEASES: &[Column] = &[NAME, text("Holder", Cell::Text("spec.holderIdentity", "")), AGE];

const LEASE_CANDIDATES: &[Column] = &[
    NAME,
    text("LeaseName", Cell::Text("spec.leaseName", "")),
    text("BinaryVersion", Cell::Text("spec.binaryVersion", "")),
    text("EmulationVersion", Cell::Text("spec.emulationVersion", "")),
    AGE,
];

const DISRUPTION_BUDGETS: &[Column] = &[
    NAME,
    text("Min Available", Cell::Computed(|view| amount(view, "spec.minAvailable"))),
    text("Max Unavailable", Cell::Computed(|view| amount(view, "spec.maxUnavailable"))),
    integer("Allowed Disruptions", Cell::Integer("status.disruptionsAllowed", 0)),
    AGE,
];

const API_SERVICES: &[Column] = &[
    NAME,
    text("Service", Cell::Computed(service)),
    text("Available", Cell::Computed(available)),
    AGE,
];

const STORAGE_VERSIONS: &[Column] = &[
    NAME,
    text("CommonEncodingVersion", Cell::Text("status.commonEncodingVersion", "<unset>")),
    text("StorageVersions", Cell::Computed(storage_versions)),
    AGE,
];

const PRIORITY_CLASSES: &[Column] = &[
    NAME,
    integer("Value", Cell::Integer("value", 0)),
    boolean("Global-Default", Cell::Boolean("globalDefault", false)),
    AGE,
    text("PreemptionPolicy", Cell::Text("preemptionPolicy", "PreemptLowerPriority")),
];

const RUNTIME_CLASSES: &[Column] = &[NAME, text("Handler", Cell::Text("handler", "")), AGE];

const FLOW_SCHEMAS: &[Column] = &[
    NAME,
    text("PriorityLevel", Cell::Text("spec.priorityLevelConfiguration.name", "")),
    text("MatchingPrecedence", Cell::Integer("spec.matchingPrecedence", 1000)),
    text("DistinguisherMethod", Cell::Text("spec.distinguisherMethod.type", "<none>")),
    AGE,
    text("MissingPL", Cell::Computed(dangling)),
];

const PRIORITY_LEVELS: &[Column] = &[
    NAME,
    text("Type", Cell::Text("spec.type", "")),
    text(
        "NominalConcurrencyShares",
        Cell::Computed(|view| limited(view, "nominalConcurrencyShares")),
    ),
    text("Queues", Cell::Computed(|view| limited(view, "limitResponse.queuing.queues"))),
    text("HandSize", Cell::Computed(|view| limited(view, "limitResponse.queuing.handSize"))),
    text(
        "QueueLengthLimit",
        Cell::Computed(|view| limited(view, "limitResponse.queuing.queueLengthLimit")),
    ),
    AGE,
];

const SIGNING_REQUESTS: &[Column] = &[
    NAME,
    AGE,
    text("SignerName", Cell::Text("spec.signerName", "<none>")),
    text("Requestor", Cell::Text("spec.username", "")),
    text("RequestedDuration", Cell::Computed(requested_duration)),
    text("Condition", Cell::Computed(approval)),
];

const WEBHOOKS: &[Column] = &[NAME, integer("Webhooks", Cell::Count("webhooks")), AGE];

const VALIDATING_POLICIES: &[Column] = &[
    NAME,
    integer("Validations", Cell::Count("spec.validations")),
    text("ParamKind", Cell::Computed(parameter_kind)),
    AGE,
];

const MUTATING_POLICIES: &[Column] = &[
    NAME,
    integer("Mutations", Cell::Count("spec.mutations")),
    text("ParamKind", Cell::Computed(parameter_kind)),
    AGE,
];

const POLICY_BINDINGS: &[Column] = &[
    NAME,
    text("PolicyName", Cell::Text("spec.policyName", "")),
    text("ParamRef", Cell::Computed(parameter)),
    AGE,
];

fn entries(view: &View<'_>) -> Value {
    (view.count("data") + view.count("binaryData")).into()
}

fn quota(view: &View<'_>, limits: bool) -> Value {
    let used = view.map("status.used");
    let hard = view.map("status.hard").into_iter().flatten();
    let mut hard: Vec<_> = hard.filter(|(name, _)| name.starts_with("limits.") == limits).collect();
    hard.sort_by_key(|(name, _)| name.as_str());
    let entries: Vec<_> = hard
        .into_iter()
        .map(|(name, hard)| {
            let used =
                plain(used.and_then(|used| used.get(name))).unwrap_or_else(|| "0".to_owned());
            format!("{name}: {used}/{}", plain(Some(hard)).unwrap_or_default())
        })
        .collect();
    entries.join(", ").into()
}

fn role(view: &View<'_>) -> Value {
    format!("{}/{}", view.text("roleRef.kind"), view.text("roleRef.name")).into()
}

fn subjects(view: &View<'_>, kind: &str) -> Value {
    let subjects = view.list("subjects").iter();
    let names: Vec<_> = subjects
        .filter(|subject| text_of(subject, "kind") == kind)
        .map(|subject| match kind {
            "ServiceAccount" => {
                format!("{}/{}", text_of(subject, "namespace"), text_of(subject, "name"))
            }
            _ => text_of(subject, "name").to_owned(),
        })
        .collect();
    names.join(", ").into()
}

fn amount(view: &View<'_>, path: &str) -> Value {
    plain(view.at(path)).unwrap_or_else(|| "N/A".to_owned()).into()
}

fn service(view: &View<'_>) -> Value {
    match view.at("spec.service") {
        Some(service) => {
            format!("{}/{}", text_of(service, "namespace"), text_of(service, "name")).into()
        }
        None => "Local".into(),
    }
}

fn available(view: &View<'_>) -> Value {
    let Some(condition) = view.condition("Available") else {
        return "Unknown".into();
    };
    match (text_of(condition, "status"), text_of(condition, "reason")) {
        ("True", _) => "True".into(),
        (status, "") => status.into(),
        (status, reason) => format!("{status} ({reason})").into(),
    }
}

fn storage_versions(view: &View<'_>) -> Value {
    let versions = view.list("status.storageVersions");
    let shown: Vec<_> = versions
        .iter()
        .take(3)
        .map(|version| {
            format!("{}={}", text_of(version, "apiServerID"), text_of(version, "encodingVersion"))
        })
        .collect();
    if shown.is_empty() { "<unset>".into() } else { first(&shown, versions.len(), ",").into() }
}

fn dangling(view: &View<'_>) -> Value {
    view.condition("Dangling").map_or("?", |condition| text_of(condition, "status")).into()
}

fn limited(view: &View<'_>, path: &str) -> Value {
    let value = super::cell::at(view.at("spec.limited"), path);
    value.cloned().unwrap_or_else(|| "<none>".into())
}

fn requested_duration(view: &View<'_>) -> Value {
    match view.at("spec.expirationSeconds").and_then(Value::as_i64) {
        Some(seconds) => super::age::human(seconds).into(),
        None => "<none>".into(),
    }
}

fn approval(view: &View<'_>) -> Value {
    let mut status = match () {
        () if view.condition("Denied").is_some() => "Denied",
        () if view.condition("Approved").is_some() => "Approved",
        () => "Pending",
    }
    .to_owned();
    if view.condition("Failed").is_some() {
        status.push_str(",Failed");
    }
    if !view.text("status.certificate").is_empty() {
        status.push_str(",Issued");
    }
    status.into()
}

fn parameter_kind(view: &View<'_>) -> Value {
    match view.at("spec.paramKind") {
        Some(kind) => format!("{}/{}", text_of(kind, "apiVersion"), text_of(kind, "kind")).into(),
        None => "<unset>".into(),
    }
}

fn parameter(view: &View<'_>) -> Value {
    match (view.text("spec.paramRef.namespace"), view.text("spec.paramRef.name")) {
        (_, "") => match view.at("spec.paramRef.selector") {
            Some(labels) => super::cell::selector(Some(labels)).into(),
            None => "<unset>".into(),
        },
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}
