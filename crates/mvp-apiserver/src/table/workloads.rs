//! Columns of `apps` and `batch`, and of the older kinds like them. Entry: [`layout`].

use serde_json::Value;

use super::age;
use super::cell::{AGE, Cell, Column, NAME, View, boolean, integer, text, text_of};

pub(super) fn layout(resource: &str) -> Option<&'static [Column]> {
    Some(match resource {
        "deployments" => DEPLOYMENTS,
        "replicasets" => REPLICA_SETS,
        "statefulsets" => STATEFUL_SETS,
        "daemonsets" => DAEMON_SETS,
        "controllerrevisions" => REVISIONS,
        "jobs" => JOBS,
        "cronjobs" => CRON_JOBS,
        _ => return None,
    })
}

const CONTAINERS: Column = text("Containers", Cell::Names("spec.template.spec.containers")).wide();
const IMAGES: Column = text("Images", Cell::Images("spec.template.spec.containers")).wide();
const SELECTOR: Column = text("Selector", Cell::Selector("spec.selector")).wide();

const DEPLOYMENTS: &[Column] = &[
    NAME,
    text("Ready", Cell::Computed(ready)),
    text("Up-to-date", Cell::Integer("status.updatedReplicas", 0)),
    text("Available", Cell::Integer("status.availableReplicas", 0)),
    AGE,
    CONTAINERS,
    IMAGES,
    text("Selector", Cell::Computed(|view| super::cell::selector(view.at("spec.selector")).into()))
        .wide(),
];

const REPLICA_SETS: &[Column] = &[
    NAME,
    integer("Desired", Cell::Integer("spec.replicas", 1)),
    integer("Current", Cell::Integer("status.replicas", 0)),
    integer("Ready", Cell::Integer("status.readyReplicas", 0)),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const REPLICATION_CONTROLLERS: &[Column] = &[
    NAME,
    integer("Desired", Cell::Integer("spec.replicas", 1)),
    integer("Current", Cell::Integer("status.replicas", 0)),
    integer("Ready", Cell::Integer("status.readyReplicas", 0)),
    AGE,
    CONTAINERS,
    IMAGES,
    text("Selector", Cell::Labels("spec.selector")).wide(),
];

const STATEFUL_SETS: &[Column] =
    &[NAME, text("Ready", Cell::Computed(ready)), AGE, CONTAINERS, IMAGES];

const DAEMON_SETS: &[Column] = &[
    NAME,
    integer("Desired", Cell::Integer("status.desiredNumberScheduled", 0)),
    integer("Current", Cell::Integer("status.currentNumberScheduled", 0)),
    integer("Ready", Cell::Integer("status.numberReady", 0)),
    integer("Up-to-date", Cell::Integer("status.updatedNumberScheduled", 0)),
    integer("Available", Cell::Integer("status.numberAvailable", 0)),
    text("Node Selector", Cell::Labels("spec.template.spec.nodeSelector")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REVISIONS: &[Column] = &[
    NAME,
    text("Controller", Cell::Computed(controller)),
    text("Revision", Cell::Integer("revision", 0)),
    AGE,
];

pub(super) const POD_TEMPLATES: &[Column] = &[
    NAME,
    text("Containers", Cell::Names("template.spec.containers")),
    text("Images", Cell::Images("template.spec.containers")),
    text("Pod Labels", Cell::Labels("template.metadata.labels")),
];

const JOBS: &[Column] = &[
    NAME,
    text("Status", Cell::Computed(job_status)),
    text("Completions", Cell::Computed(completions)),
    text("Duration", Cell::Computed(duration)),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const CRON_JOBS: &[Column] = &[
    NAME,
    text("Schedule", Cell::Text("spec.schedule", "")),
    text("Timezone", Cell::Text("spec.timeZone", "<none>")),
    boolean("Suspend", Cell::Computed(suspended)),
    integer("Active", Cell::Count("status.active")),
    text("Last Schedule", Cell::Computed(last_schedule)),
    AGE,
    text("Containers", Cell::Names("spec.jobTemplate.spec.template.spec.containers")).wide(),
    text("Images", Cell::Images("spec.jobTemplate.spec.template.spec.containers")).wide(),
    text("Selector", Cell::Selector("spec.jobTemplate.spec.selector")).wide(),
];

fn ready(view: &View<'_>) -> Value {
    let (ready, wanted) = (view.integer("status.readyReplicas"), replicas(view));
    format!("{ready}/{wanted}").into()
}

/// Real servers set 1 if the number is absent.
fn replicas(view: &View<'_>) -> i64 {
    view.integer_or("spec.replicas", 1)
}

fn controller(view: &View<'_>) -> Value {
    let mut owners = view.list("metadata.ownerReferences").iter();
    let Some(owner) = owners.find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
    else {
        return "<none>".into();
    };
    let (kind, name) = (text_of(owner, "kind").to_lowercase(), text_of(owner, "name"));
    match text_of(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()).into(),
        None => format!("{kind}/{name}").into(),
    }
}

fn job_status(view: &View<'_>) -> Value {
    let first = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| view.is_true(kind));
    match first(&["Complete", "Failed"]) {
        Some(status) => status.into(),
        None if view.is_deleting() => "Terminating".into(),
        None => {
            first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running").into()
        }
    }
}

fn completions(view: &View<'_>) -> Value {
    let succeeded = view.integer("status.succeeded");
    let parallelism = view.integer_or("spec.parallelism", 1);
    match view.at("spec.completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}").into(),
        // Real servers set both to 1 if both are absent.
        None if view.at("spec.parallelism").is_none() || parallelism <= 1 => {
            format!("{succeeded}/1").into()
        }
        None => format!("{succeeded}/1 of {parallelism}").into(),
    }
}

fn duration(view: &View<'_>) -> Value {
    let Some(start) = age::parse(view.text("status.startTime")) else {
        return "".into();
    };
    let end = age::parse(view.text("status.completionTime")).unwrap_or(view.now);
    age::human(end.saturating_sub(start)).into()
}

fn suspended(view: &View<'_>) -> Value {
    match view.at("spec.suspend") {
        Some(Value::Bool(true)) => "True".into(),
        // Real servers set false if it is absent.
        _ => "False".into(),
    }
}

fn last_schedule(view: &View<'_>) -> Value {
    match view.text("status.lastScheduleTime") {
        "" => "<none>".into(),
        _ => view.since("status.lastScheduleTime").into(),
    }
}
