//! Cells of built-in kinds. The expectations follow the printers and their tests of Kubernetes 1.36
//! (`pkg/printers/internalversion`), with all columns, as its server prints them.

mod kinds;

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-10T00:00:00Z";

fn print(group: &str, resource: &str, object: Value) -> Value {
    let Value::Object(fields) = object else { panic!("not an object") };
    let view = View { fields: &fields, now: age::parse(NOW).unwrap() };
    Columns::BuiltIn(layout(group, resource, "")).cells(&view).into()
}

fn check(group: &str, resource: &str, object: Value, expected: Value) {
    assert_eq!(print(group, resource, object), expected, "{group}/{resource}");
}

#[test]
fn the_columns_are_those_of_kubernetes() {
    let cases = [
        ("", "pods", "Name,Ready,Status,Restarts,Age,*IP,*Node,*Nominated Node,*Readiness Gates"),
        (
            "apps",
            "deployments",
            "Name,Ready,Up-to-date,Available,Age,*Containers,*Images,*Selector",
        ),
        ("apps", "replicasets", "Name,Desired,Current,Ready,Age,*Containers,*Images,*Selector"),
        ("apps", "statefulsets", "Name,Ready,Age,*Containers,*Images"),
        ("batch", "jobs", "Name,Status,Completions,Duration,Age,*Containers,*Images,*Selector"),
        ("", "services", "Name,Type,Cluster-IP,External-IP,Port(s),Age,*Selector"),
        (
            "",
            "events",
            "Last Seen,Type,Reason,Object,*Subobject,*Source,Message,*First Seen,*Count,*Name",
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            "Name,Role,Age,*Users,*Groups,*ServiceAccounts",
        ),
        ("rbac.authorization.k8s.io", "roles", "Name,Created At"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "Name,Created At"),
        ("apiregistration.k8s.io", "apiservices", "Name,Service,Available,Age"),
        (
            "internal.apiserver.k8s.io",
            "storageversions",
            "Name,CommonEncodingVersion,StorageVersions,Age",
        ),
        ("example.com", "pods", "Name,Created At"),
    ];
    for (group, resource, expected) in cases {
        let mark =
            |column: &Column| format!("{}{}", ["", "*"][usize::from(column.priority)], column.name);
        let columns: Vec<_> = layout(group, resource, "").iter().map(mark).collect();
        assert_eq!(columns.join(","), expected, "{group}/{resource}");
    }
    let definitions = Columns::BuiltIn(layout("batch", "cronjobs", "")).definitions();
    let expected = |name: &str, kind: &str, format: &str| json!({ "name": name, "type": kind, "format": format, "description": "", "priority": 0 });
    assert_eq!(definitions[0], expected("Name", "string", "name"));
    assert_eq!(definitions[3], expected("Suspend", "boolean", ""));
    let definitions = Columns::BuiltIn(layout("", "limitranges", "")).definitions();
    assert_eq!(definitions[1], expected("Created At", "date", ""));
}

fn pod(containers: usize, initial: usize, status: Value) -> Value {
    let containers = vec![json!({}); containers];
    let initial = vec![json!({}); initial];
    let spec = json!({ "containers": containers, "initContainers": initial });
    json!({ "metadata": { "name": "p" }, "spec": spec, "status": status })
}

#[test]
fn pods_are_summed_up() {
    let running =
        |count: u32| json!({ "ready": true, "restartCount": count, "state": { "running": {} } });
    let restarted = |count: u32, at: &str| {
        json!({
            "restartCount": count,
            "state": { "running": {} },
            "lastState": { "terminated": { "finishedAt": at } },
        })
    };
    let ended = |reason: &str, code: u32| json!({ "state": { "terminated": { "reason": reason, "exitCode": code } } });
    let waiting =
        |reason: &str| json!({ "restartCount": 3, "state": { "waiting": { "reason": reason } } });
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let cases = [
        (pod(2, 0, json!({})), ["0/2", "Pending", "0"]),
        (
            pod(
                2,
                0,
                json!({ "phase": "x", "containerStatuses": [running(3), { "restartCount": 3 }] }),
            ),
            ["1/2", "x", "6"],
        ),
        (
            pod(2, 0, json!({ "phase": "x", "containerStatuses": [running(3), waiting("Why")] })),
            ["1/2", "Why", "6"],
        ),
        (
            pod(
                2,
                0,
                json!({ "phase": "x", "containerStatuses": [waiting("Why"), ended("End", 0)] }),
            ),
            ["0/2", "Why", "3"],
        ),
        (pod(1, 0, json!({ "phase": "x", "reason": "Evicted" })), ["0/1", "Evicted", "0"]),
        (
            pod(2, 0, json!({ "containerStatuses": [ended("Completed", 0), running(0)] })),
            ["1/2", "NotReady", "0"],
        ),
        (
            pod(
                2,
                0,
                json!({ "conditions": ready, "containerStatuses": [ended("Completed", 0), running(0)] }),
            ),
            ["1/2", "Running", "0"],
        ),
        (pod(1, 0, json!({ "containerStatuses": [ended("", 7)] })), ["0/1", "ExitCode:7", "0"]),
        (
            pod(
                1,
                2,
                json!({ "initContainerStatuses": [ended("", 0), restarted(3, "2026-01-09T23:59:50Z")] }),
            ),
            ["0/1", "Init:1/2", "3 (10s ago)"],
        ),
        (
            pod(1, 1, json!({ "initContainerStatuses": [ended("Error", 1)] })),
            ["0/1", "Init:Error", "0"],
        ),
        (
            pod(
                2,
                0,
                json!({ "phase": "Running", "containerStatuses": [
                restarted(6, "2026-01-05T00:00:00Z"), restarted(3, "2025-12-21T00:00:00Z")] }),
            ),
            ["0/2", "Running", "9 (5d ago)"],
        ),
    ];
    for (pod, expected) in cases {
        let cells = print("", "pods", pod.clone());
        assert_eq!(&cells.as_array().unwrap()[1..4], expected, "{pod}");
    }
}

#[test]
fn a_gated_pod_says_so() {
    let gated = json!([{ "type": "PodScheduled", "reason": "SchedulingGated" }]);
    let cells = print("", "pods", pod(1, 0, json!({ "conditions": gated })));
    assert_eq!(cells.as_array().unwrap()[1..4], ["0/1", "SchedulingGated", "0"]);
}

#[test]
fn a_deleted_pod_is_terminating() {
    let mut deleted = pod(1, 0, json!({ "phase": "Running", "podIPs": [{ "ip": "10.0.0.1" }] }));
    deleted["metadata"]["deletionTimestamp"] = json!(NOW);
    deleted["spec"]["nodeName"] = json!("n");
    let expected =
        json!(["p", "0/1", "Terminating", "0", "<unknown>", "10.0.0.1", "n", "<none>", "<none>"]);
    check("", "pods", deleted, expected);
}

#[test]
fn sidecars_count_as_containers() {
    let mut pod = pod(
        1,
        0,
        json!({ "phase": "Running",
        "initContainerStatuses": [{ "name": "s", "ready": true, "started": true, "restartCount": 2, "state": { "running": {} } }],
        "containerStatuses": [{ "ready": true, "restartCount": 1, "state": { "running": {} } }] }),
    );
    pod["spec"]["initContainers"] = json!([{ "name": "s", "restartPolicy": "Always" }]);
    let cells = print("", "pods", pod);
    assert_eq!(cells.as_array().unwrap()[1..4], ["2/2", "Running", "3"]);
}

#[test]
fn workloads_show_their_replicas_containers_and_selectors() {
    let template = json!({ "spec": { "containers": [{ "name": "a", "image": "i" }, { "name": "b", "image": "j" }] } });
    let metadata = json!({ "name": "x", "creationTimestamp": "2026-01-09T23:58:20Z" });
    let selector = json!({
        "matchLabels": { "b": "2", "a": "1" },
        "matchExpressions": [{ "key": "c", "operator": "In", "values": ["y", "x"] }, { "key": "d", "operator": "DoesNotExist" }],
    });
    let object = json!({
        "metadata": metadata,
        "spec": { "replicas": 5, "template": template, "selector": selector },
        "status": { "replicas": 4, "readyReplicas": 3, "updatedReplicas": 2, "availableReplicas": 1,
            "desiredNumberScheduled": 9, "numberReady": 8 },
    });
    let text = "a=1,b=2,c in (x,y),!d";
    check(
        "apps",
        "deployments",
        object.clone(),
        json!(["x", "3/5", 2, 1, "100s", "a,b", "i,j", text]),
    );
    check("apps", "replicasets", object.clone(), json!(["x", 5, 4, 3, "100s", "a,b", "i,j", text]));
    check("apps", "statefulsets", object.clone(), json!(["x", "3/5", "100s", "a,b", "i,j"]));
    check(
        "apps",
        "daemonsets",
        object,
        json!(["x", 9, 0, 8, 0, 0, "<none>", "100s", "a,b", "i,j", text]),
    );
    check(
        "apps",
        "deployments",
        json!({ "metadata": { "name": "x" } }),
        json!(["x", "0/1", 0, 0, "<unknown>", "", "", ""]),
    );
    check(
        "apps",
        "replicasets",
        json!({ "metadata": { "name": "x" } }),
        json!(["x", 1, 0, 0, "<unknown>", "", "", "<none>"]),
    );
}

#[test]
fn jobs_and_cron_jobs() {
    let job = |spec: Value, status: Value| json!({ "metadata": { "name": "j" }, "spec": spec, "status": status });
    let condition = |kind: &str| json!({ "conditions": [{ "type": kind, "status": "True" }] });
    let cases = [
        (
            job(json!({ "completions": 2 }), json!({ "succeeded": 1 })),
            json!(["Running", "1/2", ""]),
        ),
        (job(json!({ "parallelism": 3 }), json!({})), json!(["Running", "0/1 of 3", ""])),
        (job(json!({}), condition("Complete")), json!(["Complete", "0/1", ""])),
        (job(json!({}), condition("Suspended")), json!(["Suspended", "0/1", ""])),
        (
            job(json!({}), json!({ "startTime": "2026-01-09T22:00:00Z" })),
            json!(["Running", "0/1", "120m"]),
        ),
        (
            job(
                json!({}),
                json!({ "startTime": "2026-01-09T22:00:00Z", "completionTime": "2026-01-09T22:00:30Z" }),
            ),
            json!(["Running", "0/1", "30s"]),
        ),
    ];
    for (job, expected) in cases {
        let cells = print("batch", "jobs", job);
        assert_eq!(cells.as_array().unwrap()[1..4], *expected.as_array().unwrap());
    }
    let cron = json!({
        "metadata": { "name": "c" },
        "spec": { "schedule": "0/5 * * * ?", "suspend": true, "timeZone": "Etc/UTC" },
        "status": { "active": [{}, {}], "lastScheduleTime": "2026-01-09T00:00:00Z" },
    });
    let expected =
        json!(["c", "0/5 * * * ?", "Etc/UTC", "True", 2, "24h", "<unknown>", "", "", "<none>"]);
    check("batch", "cronjobs", cron, expected);
}
