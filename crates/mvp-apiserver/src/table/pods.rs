//! Columns of pods. Entry: [`PODS`].

use serde_json::{Value, json};

use super::Printer;
use super::age;
use super::cell::{AGE, Cell, Column, NAME, View, at, text, text_of};

pub(super) const PODS: &[Column] = &[
    NAME,
    text("Ready", Cell::Computed(|view| summary(view).ready.into())),
    text("Status", Cell::Computed(|view| summary(view).reason.into())),
    text("Restarts", Cell::Computed(|view| summary(view).restarts.into())),
    AGE,
    text("IP", Cell::Computed(address)).wide(),
    text("Node", Cell::Text("spec.nodeName", "<none>")).wide(),
    text("Nominated Node", Cell::Text("status.nominatedNodeName", "<none>")).wide(),
    text("Readiness Gates", Cell::Computed(readiness_gates)).wide(),
];

/// The condition of a row whose pod has ended; `None` for other objects.
pub(super) fn completed(printer: &Printer<'_>, view: &View<'_>) -> Option<Value> {
    if printer.type_meta.kind != "Pod" || printer.type_meta.api_version != "v1" {
        return None;
    }
    let (reason, message) = match view.text("status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    let condition =
        json!({ "type": "Completed", "status": "True", "reason": reason, "message": message });
    Some(condition)
}

/// What the containers of a pod come to.
struct Summary {
    ready: String,
    reason: String,
    restarts: String,
}

/// Counts of a list of containers.
#[derive(Default)]
struct Counts {
    ready: usize,
    restarts: i64,
    last_restart: Option<i64>,
}

impl Counts {
    fn add_restarts(&mut self, container: &Value) {
        let count = container.get("restartCount").and_then(Value::as_i64).unwrap_or_default();
        self.restarts = self.restarts.saturating_add(count);
        let finished = age::parse(text_of(container, "lastState.terminated.finishedAt"));
        self.last_restart = self.last_restart.max(finished);
    }
}

fn summary(view: &View<'_>) -> Summary {
    let phase = view.text_or("status.phase", "Pending");
    let mut reason = view.text_or("status.reason", phase).to_owned();
    let conditions = view.list("status.conditions");
    let gated = |condition: &Value| {
        text_of(condition, "type") == "PodScheduled"
            && text_of(condition, "reason") == "SchedulingGated"
    };
    if conditions.iter().any(gated) {
        "SchedulingGated".clone_into(&mut reason);
    }

    let specs = view.list("spec.initContainers");
    let is_sidecar = |name: &str| {
        let mut named = specs.iter().filter(|spec| text_of(spec, "name") == name);
        named.next_back().is_some_and(|spec| text_of(spec, "restartPolicy") == "Always")
    };
    let sidecars = specs.iter().filter(|spec| text_of(spec, "restartPolicy") == "Always").count();
    let mut counts = Counts::default();
    let mut of_sidecars = Counts::default();
    let mut initializing = None;
    for (place, container) in view.list("status.initContainerStatuses").iter().enumerate() {
        counts.add_restarts(container);
        let sidecar = is_sidecar(text_of(container, "name"));
        if sidecar {
            of_sidecars.add_restarts(container);
        }
        let started = sidecar && is_true(container, "started");
        if terminated_code(container) == Some(0) {
            continue;
        }
        if started {
            of_sidecars.ready += usize::from(is_true(container, "ready"));
            continue;
        }
        initializing = Some(initial_reason(container, place, specs.len()));
        break;
    }
    counts.ready = of_sidecars.ready;
    let initialized = initializing.is_none() || view.is_true("Initialized");
    if let Some(initializing) = initializing {
        reason = initializing;
    }
    if initialized {
        counts = of_sidecars;
        run(view, &mut counts, &mut reason);
    }

    if view.is_deleting() && view.text("status.reason") == "NodeLost" {
        "Unknown".clone_into(&mut reason);
    } else if view.is_deleting() && phase != "Succeeded" && phase != "Failed" {
        "Terminating".clone_into(&mut reason);
    }
    let restarts = match counts.last_restart {
        Some(last) if counts.restarts != 0 => {
            format!("{} ({} ago)", counts.restarts, age::human(view.now.saturating_sub(last)))
        }
        _ => counts.restarts.to_string(),
    };
    let total = view.list("spec.containers").len() + sidecars;
    Summary { ready: format!("{}/{total}", counts.ready), reason, restarts }
}

/// The reason of a pod whose initialization is at this container.
fn initial_reason(container: &Value, place: usize, total: usize) -> String {
    let waiting = text_of(container, "state.waiting.reason");
    if container.pointer("/state/terminated").is_some_and(Value::is_object) {
        return format!("Init:{}", end_reason(container));
    }
    match waiting {
        "" | "PodInitializing" => format!("Init:{place}/{total}"),
        reason => format!("Init:{reason}"),
    }
}

/// Adds the containers of an initialized pod.
fn run(view: &View<'_>, counts: &mut Counts, reason: &mut String) {
    let (mut running, mut failed) = (false, None);
    for container in view.list("status.containerStatuses").iter().rev() {
        counts.add_restarts(container);
        let waiting = text_of(container, "state.waiting.reason");
        let has = |state| at(Some(container), state).is_some();
        if !waiting.is_empty() {
            waiting.clone_into(reason);
        } else if has("state.terminated") {
            *reason = end_reason(container);
            if terminated_code(container) != Some(0) {
                failed = Some(reason.clone());
            }
        } else if is_true(container, "ready") && has("state.running") {
            running = true;
            counts.ready += 1;
        }
    }
    // A pod is running while one of its containers is.
    if reason == "Completed" {
        if running && view.list("status.conditions").iter().any(is_ready) {
            "Running".clone_into(reason);
        } else if let Some(failed) = failed {
            *reason = failed;
        } else if running {
            "NotReady".clone_into(reason);
        }
    }
}

fn is_ready(condition: &Value) -> bool {
    text_of(condition, "type") == "Ready" && text_of(condition, "status") == "True"
}

/// Why a container ended.
fn end_reason(container: &Value) -> String {
    let number = |field: &str| {
        at(Some(container), &format!("state.terminated.{field}"))
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    match text_of(container, "state.terminated.reason") {
        "" => match number("signal") {
            0 => format!("ExitCode:{}", number("exitCode")),
            signal => format!("Signal:{signal}"),
        },
        reason => reason.to_owned(),
    }
}

/// The exit code of an ended container.
fn terminated_code(container: &Value) -> Option<i64> {
    let terminated = at(Some(container), "state.terminated")?;
    Some(terminated.get("exitCode").and_then(Value::as_i64).unwrap_or_default())
}

fn is_true(container: &Value, field: &str) -> bool {
    container.get(field) == Some(&Value::Bool(true))
}

fn address(view: &View<'_>) -> Value {
    let first = view.list("status.podIPs").first().map_or("", |entry| text_of(entry, "ip"));
    if first.is_empty() { view.text_or("status.podIP", "<none>").into() } else { first.into() }
}

fn readiness_gates(view: &View<'_>) -> Value {
    let gates = view.list("spec.readinessGates");
    let ready = gates.iter().filter(|gate| view.is_true(text_of(gate, "conditionType"))).count();
    if gates.is_empty() { "<none>".into() } else { format!("{ready}/{}", gates.len()).into() }
}
