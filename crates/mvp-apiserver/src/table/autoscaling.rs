//! Columns of autoscalers and of the subresource `scale`. Entries: [`AUTOSCALERS`], [`SCALE`].

use serde_json::Value;

use super::cell::{AGE, Cell, Column, NAME, View, at, first, integer, plain, text, text_of};

pub(super) const AUTOSCALERS: &[Column] = &[
    NAME,
    text("Reference", Cell::Computed(reference)),
    text("Targets", Cell::Computed(targets)),
    text("MinPods", Cell::Computed(minimum)),
    text("MaxPods", Cell::Integer("spec.maxReplicas", 0)),
    text("Replicas", Cell::Integer("status.currentReplicas", 0)),
    AGE,
];

pub(super) const SCALE: &[Column] = &[
    Column { format: "", ..NAME },
    integer("Desired", Cell::Integer("spec.replicas", 0)),
    integer("Available", Cell::Integer("status.replicas", 0)),
    AGE,
];

fn reference(view: &View<'_>) -> Value {
    let target = |field| view.text(field);
    format!("{}/{}", target("spec.scaleTargetRef.kind"), target("spec.scaleTargetRef.name")).into()
}

fn minimum(view: &View<'_>) -> Value {
    // Real servers set 1 if it is absent.
    view.integer_or("spec.minReplicas", 1).to_string().into()
}

fn targets(view: &View<'_>) -> Value {
    let (wanted, current) = (view.list("spec.metrics"), view.list("status.currentMetrics"));
    if wanted.is_empty() {
        return of_version_1(view);
    }
    let metrics: Vec<_> = wanted
        .iter()
        .take(2)
        .enumerate()
        .map(|(place, wanted)| metric(wanted, current.get(place)))
        .collect();
    first(&metrics, wanted.len(), ", ").into()
}

/// Version 1 has no metrics but a target for the CPU.
fn of_version_1(view: &View<'_>) -> Value {
    let percent = |path| view.at(path).and_then(Value::as_i64).map(|value| format!("{value}%"));
    let current = percent("status.currentCPUUtilizationPercentage");
    match percent("spec.targetCPUUtilizationPercentage") {
        Some(target) => {
            format!("cpu: {}/{target}", current.unwrap_or("<unknown>".to_owned())).into()
        }
        None => "<none>".into(),
    }
}

fn metric(wanted: &Value, current: Option<&Value>) -> String {
    let (field, named) = match text_of(wanted, "type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let target = |name: &str| plain(at(wanted.get(field), &format!("target.{name}")));
    let current = |name: &str| {
        let value = plain(at(current, &format!("{field}.current.{name}")));
        value.unwrap_or_else(|| "<unknown>".to_owned())
    };
    let average = target("averageValue");
    match (named, average) {
        (true, average) => {
            let name = text_of(wanted, &format!("{field}.name")).to_owned();
            match average {
                Some(average) => format!("{name}: {}/{average}", current("averageValue")),
                None => {
                    let target =
                        target("averageUtilization").map_or("<auto>".to_owned(), |t| t + "%");
                    match current("averageUtilization").as_str() {
                        "<unknown>" => format!("{name}: <unknown>/{target}"),
                        current => format!("{name}: {current}%/{target}"),
                    }
                }
            }
        }
        (false, Some(average)) if field == "pods" => {
            format!("{}/{average}", current("averageValue"))
        }
        (false, Some(average)) => format!("{}/{average} (avg)", current("averageValue")),
        (false, None) => {
            format!("{}/{}", current("value"), target("value").unwrap_or_else(|| "0".to_owned()))
        }
    }
}
