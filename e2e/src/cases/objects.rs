//! Objects of APIs that some server of the cluster does not serve.

use serde_json::{Value, json};

/// A kind: its collection, and one object of it.
pub(crate) struct Kind {
    /// The name, such as `jobs.v1.batch`.
    pub(crate) name: &'static str,
    pub(crate) collection: String,
    pub(crate) object: Value,
}

/// `jobs.v1.batch`, which `b` lacks.
pub(crate) fn job(namespace: &str, name: &str) -> Kind {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "example.com/nothing"},
    ]}});
    Kind {
        name: "jobs.v1.batch",
        collection: format!("/apis/batch/v1/namespaces/{namespace}/jobs"),
        object: json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"suspend": true, "template": pod},
        }),
    }
}

/// `horizontalpodautoscalers.v2.autoscaling`, which `a` lacks.
pub(crate) fn autoscaler(namespace: &str, name: &str) -> Kind {
    Kind {
        name: "horizontalpodautoscalers.v2.autoscaling",
        collection: format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"),
        object: json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {"maxReplicas": 3, "scaleTargetRef":
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nothing"}},
        }),
    }
}

/// `poddisruptionbudgets.v1.policy`, which `c` lacks.
pub(crate) fn disruption_budget(namespace: &str, name: &str) -> Kind {
    Kind {
        name: "poddisruptionbudgets.v1.policy",
        collection: format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"),
        object: json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "nothing"}}},
        }),
    }
}

/// `mutatingadmissionpolicies.v1.admissionregistration.k8s.io`: new in 1.36, in a group and version
/// that 1.34 has, too.
pub(crate) fn mutating_policy(name: &str) -> Kind {
    let expression = r#"[JSONPatch{op: "add", path: "/metadata/labels", value: {}}]"#;
    Kind {
        name: "mutatingadmissionpolicies.v1.admissionregistration.k8s.io",
        collection: "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies".to_owned(),
        object: json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Ignore",
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": ["example.com"], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["nothings"],
                }]},
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
            },
        }),
    }
}

/// `workloads.v1alpha2.scheduling.k8s.io`, which 1.36 has where it is switched on, in namespaces.
pub(crate) fn workload(namespace: &str, name: &str) -> Kind {
    Kind {
        name: "workloads.v1alpha2.scheduling.k8s.io",
        collection: format!("/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/workloads"),
        object: json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload",
            "metadata": {"name": name},
            "spec": {"podGroupTemplates": [{"name": "all", "schedulingPolicy": {"basic": {}}}]},
        }),
    }
}

/// `volumeattributesclasses.v1alpha1.storage.k8s.io`, which 1.34 has where it is switched on, and
/// 1.36 no more.
pub(crate) fn old_volume_class(name: &str) -> Kind {
    Kind {
        name: "volumeattributesclasses.v1alpha1.storage.k8s.io",
        collection: "/apis/storage.k8s.io/v1alpha1/volumeattributesclasses".to_owned(),
        object: json!({
            "apiVersion": "storage.k8s.io/v1alpha1", "kind": "VolumeAttributesClass",
            "metadata": {"name": name}, "driverName": "example.com", "parameters": {"speed": "1"},
        }),
    }
}

/// `csidrivers.v1.storage.k8s.io`, which all have, with a field that 1.34 does not know.
pub(crate) fn csi_driver(name: &str) -> Kind {
    Kind {
        name: "csidrivers.v1.storage.k8s.io",
        collection: "/apis/storage.k8s.io/v1/csidrivers".to_owned(),
        object: json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name},
            "spec": {"tokenRequests": [{"audience": "e2e"}], "serviceAccountTokenInSecrets": true},
        }),
    }
}
