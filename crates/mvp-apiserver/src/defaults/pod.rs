//! The defaults of pods and pod templates. Entries: [`set`] and [`set_requests`].

use serde_json::{Value, json};

use super::{absent, below, objects};
use crate::storage::Fields;

/// Sets the defaults of the spec of a pod.
pub(super) fn set(spec: &mut Fields) {
    absent(spec, "restartPolicy", json!("Always"));
    absent(spec, "terminationGracePeriodSeconds", json!(30));
    absent(spec, "dnsPolicy", json!("ClusterFirst"));
    absent(spec, "securityContext", json!({}));
    absent(spec, "schedulerName", json!("default-scheduler"));
    for list in ["containers", "initContainers"] {
        objects(spec, list).for_each(container);
    }
    objects(spec, "volumes").for_each(volume);
}

/// Sets the requests of a pod that has limits only. Templates are left as they are.
pub(super) fn set_requests(spec: &mut Fields) {
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            let Some(resources) = below(container, &["resources"]) else { continue };
            let Some(Value::Object(limits)) = resources.get("limits").cloned() else { continue };
            absent(resources, "requests", json!({}));
            if let Some(requests) = below(resources, &["requests"]) {
                limits.into_iter().for_each(|(name, limit)| absent(requests, &name, limit));
            }
        }
    }
}

fn container(container: &mut Fields) {
    absent(container, "terminationMessagePath", json!("/dev/termination-log"));
    absent(container, "terminationMessagePolicy", json!("File"));
    absent(container, "resources", json!({}));
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    absent(container, "imagePullPolicy", json!(policy));
    for port in objects(container, "ports") {
        absent(port, "protocol", json!("TCP"));
    }
    for variable in objects(container, "env") {
        if let Some(field) = below(variable, &["valueFrom", "fieldRef"]) {
            absent(field, "apiVersion", json!("v1"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(probe)) = container.get_mut(name) {
            set_probe(probe);
        }
    }
}

fn set_probe(probe: &mut Fields) {
    absent(probe, "timeoutSeconds", json!(1));
    absent(probe, "periodSeconds", json!(10));
    absent(probe, "successThreshold", json!(1));
    absent(probe, "failureThreshold", json!(3));
    if let Some(Value::Object(get)) = probe.get_mut("httpGet") {
        absent(get, "path", json!("/"));
        absent(get, "scheme", json!("HTTP"));
    }
}

fn volume(volume: &mut Fields) {
    if volume.keys().all(|name| name == "name") {
        absent(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(Value::Object(source)) = volume.get_mut(source) {
            // 0644 in octal digits.
            absent(source, "defaultMode", json!(420));
        }
    }
    if let Some(Value::Object(path)) = volume.get_mut("hostPath") {
        absent(path, "type", json!(""));
    }
}

/// Whether an image has the tag `latest`, or neither a tag nor a digest.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.split_once(':') {
        _ if name.contains('@') => false,
        Some((_, tag)) => tag == "latest",
        None => true,
    }
}
