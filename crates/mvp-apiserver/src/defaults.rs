//! Defaults of built-in kinds: what a real server fills into an object that it decodes. Entry:
//! [`set`].
//!
//! OpenAPI documents have few of them: most are code in Kubernetes. These are the ones of the kinds
//! that people create by hand. Admission plugins of a real server add more, such as the service
//! account of a pod; this server has none.

mod pod;

use serde_json::{Map, Value, json};

use crate::base64;
use crate::storage::Fields;

/// Sets the defaults of an object of a resource.
pub(crate) fn set(group: &str, plural: &str, object: &mut Fields) {
    match (group, plural) {
        ("", "secrets") => secret(object),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding(object),
        ("", "podtemplates") => {
            if let Some(spec) = below(object, &["template", "spec"]) {
                pod::set(spec);
            }
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            absent(object, "preemptionPolicy", json!("PreemptLowerPriority"));
        }
        ("storage.k8s.io", "storageclasses") => {
            absent(object, "reclaimPolicy", json!("Delete"));
            absent(object, "volumeBindingMode", json!("Immediate"));
        }
        _ => {
            if let Some(Value::Object(spec)) = object.get_mut("spec") {
                spec_of(group, plural, spec);
            }
        }
    }
}

fn spec_of(group: &str, plural: &str, spec: &mut Fields) {
    match (group, plural) {
        ("", "pods") => {
            pod::set(spec);
            pod::set_requests(spec);
            absent(spec, "enableServiceLinks", json!(true));
        }
        ("", "services") => service(spec),
        ("", "replicationcontrollers") => absent(spec, "replicas", json!(1)),
        ("", "persistentvolumes") => {
            absent(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
            absent(spec, "volumeMode", json!("Filesystem"));
        }
        ("", "persistentvolumeclaims") => absent(spec, "volumeMode", json!("Filesystem")),
        ("apps", "deployments") => {
            absent(spec, "replicas", json!(1));
            absent(spec, "revisionHistoryLimit", json!(10));
            absent(spec, "progressDeadlineSeconds", json!(600));
            let rolling = json!({ "maxSurge": "25%", "maxUnavailable": "25%" });
            strategy(spec, "strategy", &rolling);
        }
        ("apps", "replicasets") => absent(spec, "replicas", json!(1)),
        ("apps", "daemonsets") => {
            absent(spec, "revisionHistoryLimit", json!(10));
            strategy(spec, "updateStrategy", &json!({ "maxSurge": 0, "maxUnavailable": 1 }));
        }
        ("apps", "statefulsets") => {
            absent(spec, "replicas", json!(1));
            absent(spec, "podManagementPolicy", json!("OrderedReady"));
            absent(spec, "revisionHistoryLimit", json!(10));
            let retain = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
            absent(spec, "persistentVolumeClaimRetentionPolicy", retain);
            strategy(spec, "updateStrategy", &json!({ "partition": 0 }));
        }
        ("batch", "jobs") => job(spec),
        ("batch", "cronjobs") => {
            absent(spec, "concurrencyPolicy", json!("Allow"));
            absent(spec, "suspend", json!(false));
            absent(spec, "successfulJobsHistoryLimit", json!(3));
            absent(spec, "failedJobsHistoryLimit", json!(1));
            if let Some(template) = below(spec, &["jobTemplate", "spec", "template", "spec"]) {
                pod::set(template);
            }
        }
        ("autoscaling", "horizontalpodautoscalers") => autoscaler(spec),
        ("networking.k8s.io", "networkpolicies") => {
            let egress = spec.get("egress").and_then(Value::as_array);
            let egress = egress.is_some_and(|rules| !rules.is_empty());
            let both = json!(["Ingress", "Egress"]);
            absent(spec, "policyTypes", if egress { both } else { json!(["Ingress"]) });
        }
        _ => return,
    }
    if let Some(template) = below(spec, &["template", "spec"]) {
        pod::set(template);
    }
}

/// The type of an update strategy, and the values of a rolling update.
fn strategy(spec: &mut Fields, name: &str, rolling: &Value) {
    absent(spec, name, json!({}));
    let Some(Value::Object(strategy)) = spec.get_mut(name) else { return };
    absent(strategy, "type", json!("RollingUpdate"));
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        absent(strategy, "rollingUpdate", json!({}));
        if let (Some(Value::Object(values)), Value::Object(defaults)) =
            (strategy.get_mut("rollingUpdate"), rolling)
        {
            for (name, value) in defaults {
                absent(values, name, value.clone());
            }
        }
    }
}

/// Version 1 has no metrics; the percentage of the processor time is a field of its own there.
fn autoscaler(spec: &mut Fields) {
    absent(spec, "minReplicas", json!(1));
    if !spec.contains_key("targetCPUUtilizationPercentage") {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        absent(spec, "metrics", json!([metric]));
    }
}

fn job(spec: &mut Fields) {
    // A job with a parallelism but without completions is done when any of its pods is.
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        absent(spec, "completions", json!(1));
    }
    absent(spec, "parallelism", json!(1));
    absent(spec, "manualSelector", json!(false));
    absent(spec, "completionMode", json!("NonIndexed"));
    absent(spec, "suspend", json!(false));
    let by_policy = spec.contains_key("podFailurePolicy");
    if !spec.contains_key("backoffLimitPerIndex") {
        absent(spec, "backoffLimit", json!(6));
    }
    let replacement = if by_policy { "Failed" } else { "TerminatingOrFailed" };
    absent(spec, "podReplacementPolicy", json!(replacement));
}

fn service(spec: &mut Fields) {
    absent(spec, "type", json!("ClusterIP"));
    absent(spec, "sessionAffinity", json!("None"));
    if spec.get("type") != Some(&json!("ExternalName")) {
        absent(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if matches!(spec.get("type").and_then(Value::as_str), Some("NodePort" | "LoadBalancer")) {
        absent(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    for port in objects(spec, "ports") {
        absent(port, "protocol", json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            absent(port, "targetPort", number);
        }
    }
}

/// Text that the caller sent is stored as bytes.
fn secret(object: &mut Fields) {
    absent(object, "type", json!("Opaque"));
    let Some(Value::Object(texts)) = object.remove("stringData") else { return };
    absent(object, "data", json!({}));
    if let Some(Value::Object(data)) = object.get_mut("data") {
        for (name, text) in texts {
            let text = text.as_str().unwrap_or_default();
            data.insert(name, base64::encode(text.as_bytes()).into());
        }
    }
}

fn binding(object: &mut Fields) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(Value::Object(role)) = object.get_mut("roleRef") {
        absent(role, "apiGroup", json!(GROUP));
    }
    for subject in objects(object, "subjects") {
        if subject.get("kind") != Some(&json!("ServiceAccount")) {
            absent(subject, "apiGroup", json!(GROUP));
        }
    }
}

/// Sets a field that is absent or an empty text.
fn absent(object: &mut Fields, name: &str, value: Value) {
    if object.get(name).is_none_or(|known| known == "") {
        object.insert(name.to_owned(), value);
    }
}

/// The object at a path, if it is there.
fn below<'o>(object: &'o mut Fields, path: &[&str]) -> Option<&'o mut Fields> {
    let mut object = object;
    for name in path {
        object = object.get_mut(*name)?.as_object_mut()?;
    }
    Some(object)
}

/// The objects of a list.
fn objects<'o>(
    object: &'o mut Fields,
    name: &str,
) -> impl Iterator<Item = &'o mut Map<String, Value>> + use<'o> {
    let list = object.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}
