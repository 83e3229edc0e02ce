//! Cells of the kinds other than pods and workloads.

use serde_json::{Value, json};

use super::{NOW, check, print};

#[test]
fn services_and_endpoints() {
    let service = |spec: Value, status: Value| json!({ "metadata": { "name": "s" }, "spec": spec, "status": status });
    let ingress =
        json!({ "loadBalancer": { "ingress": [{ "ip": "3.4.5.6" }, { "hostname": "h" }] } });
    let cases = [
        (
            service(
                json!({ "clusterIPs": ["10.9.8.7"], "ports": [{ "port": 80, "nodePort": 8888, "protocol": "tcp" }, { "port": 5 }] }),
                json!({}),
            ),
            json!([
                "s",
                "ClusterIP",
                "10.9.8.7",
                "<none>",
                "80:8888/tcp,5/TCP",
                "<unknown>",
                "<none>"
            ]),
        ),
        (
            service(json!({ "type": "LoadBalancer", "selector": { "a": "b" } }), json!({})),
            json!(["s", "LoadBalancer", "<none>", "<pending>", "<none>", "<unknown>", "a=b"]),
        ),
        (
            service(json!({ "type": "LoadBalancer", "externalIPs": ["9.9.9.9"] }), ingress),
            json!([
                "s",
                "LoadBalancer",
                "<none>",
                "3.4.5.6,h,9.9.9.9",
                "<none>",
                "<unknown>",
                "<none>"
            ]),
        ),
        (
            service(json!({ "type": "ExternalName", "externalName": "n" }), json!({})),
            json!(["s", "ExternalName", "<none>", "n", "<none>", "<unknown>", "<none>"]),
        ),
    ];
    for (service, expected) in cases {
        check("", "services", service, expected);
    }
    let addresses = json!([{ "ip": "1.2.3.4" }, { "ip": "5::6" }]);
    let endpoints = json!({ "metadata": { "name": "e" }, "subsets": [{ "addresses": addresses, "ports": [{ "port": 80 }, { "port": 81 }] }] });
    check(
        "",
        "endpoints",
        endpoints,
        json!(["e", "1.2.3.4:80,[5::6]:80,1.2.3.4:81 + 1 more...", "<unknown>"]),
    );
    let slice = json!({
        "metadata": { "name": "e" },
        "addressType": "IPv4",
        "ports": [{ "port": 80 }, { "name": "http" }, {}],
        "endpoints": [{ "addresses": ["10.1.2.3", "2001:db8::1234:5678"] }],
    });
    check(
        "discovery.k8s.io",
        "endpointslices",
        slice,
        json!(["e", "IPv4", "80,http,*", "10.1.2.3,2001:db8::1234:5678", "<unknown>"]),
    );
    let ingress = json!({
        "metadata": { "name": "i" },
        "spec": { "rules": [{ "host": "a" }, { "host": "b" }, { "host": "c" }, { "host": "d" }], "tls": [{}] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "2.3.4.5" }] } },
    });
    check(
        "networking.k8s.io",
        "ingresses",
        ingress,
        json!(["i", "<none>", "a,b,c + 1 more...", "2.3.4.5", "80, 443", "<unknown>"]),
    );
}

#[test]
fn nodes_events_and_volumes() {
    let node = json!({
        "metadata": { "name": "n", "labels": { "node-role.kubernetes.io/b": "", "kubernetes.io/role": "a" } },
        "spec": { "unschedulable": true },
        "status": {
            "conditions": [{ "type": "Ready", "status": "False" }],
            "addresses": [{ "type": "InternalIP", "address": "1.1.1.1" }],
            "nodeInfo": { "kubeletVersion": "v1.36.0", "kernelVersion": "6", "architecture": "amd64" },
        },
    });
    let expected = json!([
        "n",
        "NotReady,SchedulingDisabled",
        "a,b",
        "<unknown>",
        "v1.36.0",
        "1.1.1.1",
        "<none>",
        "<unknown>",
        "6 (amd64)",
        "<unknown>"
    ]);
    check("", "nodes", node, expected);
    let event = json!({
        "metadata": { "name": "e" },
        "source": { "component": "kubelet", "host": "fakehost" },
        "involvedObject": { "kind": "Deployment", "name": "d", "fieldPath": "spec.x" },
        "reason": "Event Reason", "message": " text ", "type": "Warning", "count": 6,
        "firstTimestamp": "2026-01-07T00:00:00Z", "lastTimestamp": "2026-01-09T00:00:00Z",
    });
    let expected = json!([
        "24h",
        "Warning",
        "Event Reason",
        "deployment/d",
        "spec.x",
        "kubelet, fakehost",
        "text",
        "3d",
        6,
        "e"
    ]);
    check("", "events", event, expected);
    let event = json!({
        "metadata": { "name": "e" }, "regarding": { "kind": "Pod", "name": "p" }, "note": "text",
        "eventTime": "2026-01-09T23:59:00.000000Z", "reportingController": "c",
    });
    check(
        "events.k8s.io",
        "events",
        event,
        json!(["60s", "", "", "pod/p", "", "c", "text", "60s", 1, "e"]),
    );
    let claim = json!({
        "metadata": { "name": "c" },
        "spec": { "volumeName": "v", "storageClassName": "fast", "volumeMode": "Filesystem" },
        "status": { "phase": "Bound", "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": { "storage": "4Gi" } },
    });
    check(
        "",
        "persistentvolumeclaims",
        claim,
        json!(["c", "Bound", "v", "4Gi", "RWO,RWX", "fast", "<unset>", "<unknown>", "Filesystem"]),
    );
}

#[test]
fn small_kinds() {
    let metadata = json!({ "name": "x" });
    check(
        "",
        "configmaps",
        json!({ "metadata": metadata, "data": { "a": "1" }, "binaryData": { "b": "" } }),
        json!(["x", 2, "<unknown>"]),
    );
    check(
        "",
        "namespaces",
        json!({ "metadata": metadata, "status": { "phase": "Terminating" } }),
        json!(["x", "Terminating", "<unknown>"]),
    );
    check(
        "coordination.k8s.io",
        "leases",
        json!({ "metadata": metadata, "spec": { "holderIdentity": "me" } }),
        json!(["x", "me", "<unknown>"]),
    );
    check(
        "policy",
        "poddisruptionbudgets",
        json!({ "metadata": metadata, "spec": { "minAvailable": "30%" }, "status": { "disruptionsAllowed": 2 } }),
        json!(["x", "30%", "N/A", 2, "<unknown>"]),
    );
    let binding = json!({
        "metadata": metadata, "roleRef": { "kind": "Role", "name": "r" },
        "subjects": [{ "kind": "User", "name": "u" }, { "kind": "User", "name": "v" }, { "kind": "ServiceAccount", "name": "s", "namespace": "n" }],
    });
    check(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        binding,
        json!(["x", "Role/r", "<unknown>", "u, v", "", "n/s"]),
    );
    let version = |id: &str| json!({ "apiServerID": id, "encodingVersion": "v1" });
    let versions = json!({ "metadata": metadata, "status": { "commonEncodingVersion": "v1",
        "storageVersions": [version("a"), version("b"), version("c"), version("d")] } });
    check(
        "internal.apiserver.k8s.io",
        "storageversions",
        versions,
        json!(["x", "v1", "a=v1,b=v1,c=v1 + 1 more...", "<unknown>"]),
    );
    check(
        "internal.apiserver.k8s.io",
        "storageversions",
        json!({ "metadata": metadata }),
        json!(["x", "<unset>", "<unset>", "<unknown>"]),
    );
    let service = json!({ "metadata": metadata, "spec": { "service": { "namespace": "n", "name": "s" } },
        "status": { "conditions": [{ "type": "Available", "status": "False", "reason": "R" }] } });
    check(
        "apiregistration.k8s.io",
        "apiservices",
        service,
        json!(["x", "n/s", "False (R)", "<unknown>"]),
    );
    let created = json!({ "metadata": { "name": "x", "creationTimestamp": NOW } });
    check("rbac.authorization.k8s.io", "roles", created, json!(["x", NOW]));
}

#[test]
fn small_kinds_of_other_groups() {
    let metadata = json!({ "name": "x" });
    let autoscaler = json!({
        "metadata": metadata,
        "spec": { "scaleTargetRef": { "kind": "Deployment", "name": "d" }, "maxReplicas": 9, "metrics": [
            { "type": "Resource", "resource": { "name": "cpu", "target": { "averageUtilization": 80 } } },
            { "type": "Pods", "pods": { "target": { "averageValue": "100m" } } }, { "type": "Object" }] },
        "status": { "currentReplicas": 4, "currentMetrics": [{ "resource": { "current": { "averageUtilization": 50 } } }] },
    });
    check(
        "autoscaling",
        "horizontalpodautoscalers",
        autoscaler,
        json!([
            "x",
            "Deployment/d",
            "cpu: 50%/80%, <unknown>/100m + 1 more...",
            "1",
            9,
            4,
            "<unknown>"
        ]),
    );
    let class = json!({ "metadata": { "name": "x", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "p" });
    check(
        "storage.k8s.io",
        "storageclasses",
        class,
        json!(["x (default)", "p", "Delete", "Immediate", false, "<unknown>"]),
    );
    let binding =
        json!({ "metadata": metadata, "spec": { "policyName": "p", "paramRef": { "name": "q" } } });
    check(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        binding,
        json!(["x", "p", "*/q", "<unknown>"]),
    );
    check(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        json!({ "metadata": metadata, "webhooks": [{}, {}] }),
        json!(["x", 2, "<unknown>"]),
    );
    check(
        "networking.k8s.io",
        "networkpolicies",
        json!({ "metadata": metadata, "spec": { "podSelector": {} } }),
        json!(["x", "<none>", "<unknown>"]),
    );
}

/// No object makes a printer fail: every value may have any type.
#[test]
fn wrong_types_are_printed_as_absent() {
    let odd = json!({ "metadata": { "name": "x", "ownerReferences": 1, "annotations": [] }, "spec": 7, "status": { "conditions": {}, "containerStatuses": [3, null] }, "subsets": [null], "subjects": "x" });
    for (group, resource) in [
        ("", "pods"),
        ("", "services"),
        ("", "endpoints"),
        ("", "nodes"),
        ("", "events"),
        ("apps", "deployments"),
        ("apps", "controllerrevisions"),
        ("batch", "cronjobs"),
        ("storage.k8s.io", "csidrivers"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("certificates.k8s.io", "certificatesigningrequests"),
    ] {
        assert!(print(group, resource, odd.clone()).is_array());
    }
}
