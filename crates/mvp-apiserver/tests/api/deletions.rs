//! Deletions that take time: finalizers, propagation and grace periods.

use http::Method;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage, SubresourceSpec};
use serde_json::{Value, json};

use crate::support::{Lines, WIDGETS, call, get, make, names, server, widget};

async fn delete(server: &ApiServer, path: &str, body: Value) -> (u16, Value) {
    let (code, answer) = call(server, Method::DELETE, path, body).await;
    (code.as_u16(), answer)
}

#[tokio::test]
async fn an_object_stays_until_its_last_finalizer_is_removed() {
    let server = server();
    let mut body = widget("one");
    body["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    let (_, made) = call(&server, Method::POST, WIDGETS, body).await;
    let path = format!("{WIDGETS}/one");
    let (code, deleting) = delete(&server, &path, Value::Null).await;
    assert_eq!((code, &deleting["kind"]), (200, &json!("Widget")));
    assert_eq!(deleting["metadata"]["deletionTimestamp"].as_str().unwrap().len(), 20);
    assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(deleting["metadata"]["generation"], 2);
    assert_eq!(deleting["metadata"]["uid"], made["metadata"]["uid"]);

    // Deleting it again changes nothing.
    assert_eq!(delete(&server, &path, Value::Null).await, (200, deleting.clone()));

    let more = json!({ "metadata": { "finalizers": ["example.com/a", "example.com/c"] } });
    let (code, status) = call(&server, Method::PATCH, &path, more).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Widget.example.com \"one\" is invalid: metadata.finalizers: Forbidden: no new finalizers \
         can be added if the object is being deleted, found new finalizers \
         []string{\"example.com/c\"}"
    );

    let mut watch = Lines::open(&server, &format!("{WIDGETS}?watch=true")).await;
    assert_eq!(watch.event().await.0, "ADDED");
    let fewer = json!({ "metadata": { "finalizers": ["example.com/b"] } });
    assert_eq!(call(&server, Method::PATCH, &path, fewer).await.0, 200);
    let mut rest = get(&server, &path).await.1;
    assert_eq!(rest["metadata"]["deletionTimestamp"], deleting["metadata"]["deletionTimestamp"]);
    rest["metadata"]["finalizers"] = json!([]);
    let (code, last) = call(&server, Method::PUT, &path, rest).await;
    assert_eq!((code.as_u16(), &last["kind"]), (200, &json!("Widget")));
    assert_eq!(get(&server, &path).await.0, 404);
    assert_eq!(watch.event().await.0, "MODIFIED");
    assert_eq!(watch.event().await.0, "DELETED");
}

#[tokio::test]
async fn propagation_is_a_finalizer_for_the_garbage_collector() {
    let server = server();
    let cases = [
        (json!({ "propagationPolicy": "Foreground" }), Some("foregroundDeletion")),
        (json!({ "propagationPolicy": "Orphan" }), Some("orphan")),
        (json!({ "orphanDependents": true }), Some("orphan")),
        (json!({ "propagationPolicy": "Background" }), None),
        (json!({ "orphanDependents": false }), None),
        (json!({}), None),
    ];
    for (index, (options, finalizer)) in cases.into_iter().enumerate() {
        let name = format!("w{index}");
        make(&server, &name).await;
        let (code, answer) = delete(&server, &format!("{WIDGETS}/{name}"), options).await;
        assert_eq!(code, 200);
        match finalizer {
            Some(finalizer) => assert_eq!(answer["metadata"]["finalizers"], json!([finalizer])),
            None => assert_eq!(answer["status"], "Success"),
        }
    }
    make(&server, "query").await;
    let path = format!("{WIDGETS}/query?propagationPolicy=Foreground");
    let (_, answer) = delete(&server, &path, Value::Null).await;
    assert_eq!(answer["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

#[tokio::test]
async fn invalid_options_change_nothing() {
    let server = server();
    make(&server, "one").await;
    let path = format!("{WIDGETS}/one");
    let cases = [
        (
            json!({ "propagationPolicy": "Sometimes" }),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \
             \"Sometimes\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
        ),
        (
            json!({ "propagationPolicy": "Orphan", "orphanDependents": true }),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \
             \"Orphan\": orphanDependents and deletionPropagation cannot be both set",
        ),
    ];
    for (options, message) in cases {
        let (code, status) = delete(&server, &path, options).await;
        assert_eq!((code, &status["message"]), (422, &json!(message)));
    }
    for options in [
        json!({ "gracePeriodSeconds": "soon" }),
        json!({ "orphanDependents": 1 }),
        json!({ "dryRun": "All" }),
        json!({ "kind": "Widget" }),
    ] {
        assert_eq!(delete(&server, &path, options.clone()).await.0, 400, "{options}");
    }
    assert_eq!(delete(&server, &path, json!({ "dryRun": ["All"] })).await.0, 200);
    assert_eq!(get(&server, &path).await.0, 200);
}

#[tokio::test]
async fn a_wrong_precondition_says_what_differs() {
    let server = server();
    let made = make(&server, "one").await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let options = json!({ "preconditions": { "uid": "other" } });
    let (code, status) = delete(&server, &format!("{WIDGETS}/one"), options).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    let text = format!(
        "the UID in the precondition (other) does not match the UID in record ({uid}). The object \
         might have been deleted and then recreated"
    );
    assert!(status["message"].as_str().unwrap().ends_with(&text), "{status}");
}

#[tokio::test]
async fn deletecollection_marks_objects_with_finalizers() {
    let server = server();
    make(&server, "a").await;
    let mut body = widget("b");
    body["metadata"]["finalizers"] = json!(["example.com/x"]);
    body["metadata"]["labels"] = json!({ "l": "x" });
    call(&server, Method::POST, WIDGETS, body).await;
    let path = format!("{WIDGETS}?labelSelector=l+in+(x,y)");
    let (code, list) = delete(&server, &path, Value::Null).await;
    assert_eq!((code, names(&list)), (200, vec!["b"]));
    assert!(list["items"][0]["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(names(&get(&server, WIDGETS).await.1), ["a", "b"]);
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pods() -> ApiServer {
    let mut pods = ResourceSpec::namespaced("pods", "Pod").with_status();
    for name in ["binding", "eviction", "log"] {
        let verbs = match name {
            "log" => vec![mvp_apiserver::Verb::Get],
            _ => vec![mvp_apiserver::Verb::Create],
        };
        let name = name.to_owned();
        pods.subresources.push(SubresourceSpec { name, verbs, ..SubresourceSpec::default() });
    }
    let groups = vec![GroupSpec::new("").version("v1", [pods])];
    ApiServer::new(ServerSpec { groups, ..ServerSpec::default() }, Storage::new())
}

async fn make_pod(server: &ApiServer, name: &str, spec: Value) {
    let body = json!({ "metadata": { "name": name }, "spec": spec });
    assert_eq!(call(server, Method::POST, PODS, body).await.0, 201);
}

#[tokio::test]
async fn a_pod_on_a_node_has_time_to_end() {
    let server = pods();
    let spec = json!({ "nodeName": "n", "terminationGracePeriodSeconds": 30 });
    make_pod(&server, "one", spec.clone()).await;
    let path = format!("{PODS}/one");
    let (code, pod) = delete(&server, &path, Value::Null).await;
    assert_eq!((code, &pod["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(30)));
    // Only a shorter time is accepted from now on.
    let (_, pod) = delete(&server, &path, json!({ "gracePeriodSeconds": 60 })).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    let (_, pod) = delete(&server, &path, json!({ "gracePeriodSeconds": 5 })).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 5);
    let (code, pod) = delete(&server, &path, json!({ "gracePeriodSeconds": 0 })).await;
    assert_eq!((code, &pod["kind"]), (200, &json!("Pod")));
    assert_eq!(get(&server, &path).await.0, 404);

    // Without a node, nobody would end it.
    make_pod(&server, "two", json!({ "terminationGracePeriodSeconds": 30 })).await;
    assert_eq!(delete(&server, &format!("{PODS}/two"), Value::Null).await.0, 200);
    assert_eq!(get(&server, &format!("{PODS}/two")).await.0, 404);
}

#[tokio::test]
async fn pods_are_bound_and_evicted() {
    let server = pods();
    make_pod(&server, "one", json!({})).await;
    let path = format!("{PODS}/one");
    let binding = json!({ "metadata": { "name": "one" }, "target": { "name": "n1" } });
    let bind = format!("{path}/binding");
    let (code, status) = call(&server, Method::POST, &bind, binding.clone()).await;
    assert_eq!((code.as_u16(), &status["status"]), (201, &json!("Success")));
    assert_eq!(get(&server, &path).await.1["spec"]["nodeName"], "n1");
    let (code, status) = call(&server, Method::POST, &bind, binding).await;
    assert_eq!(code, 409);
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with("pod one is already assigned to node \"n1\""), "{message}");

    let eviction = json!({ "metadata": { "name": "one" } });
    let evict = format!("{path}/eviction");
    assert_eq!(call(&server, Method::POST, &evict, eviction.clone()).await.0, 201);
    assert_eq!(get(&server, &path).await.0, 404);
    assert_eq!(call(&server, Method::POST, &evict, eviction).await.0, 404);

    let (code, status) = get(&server, &format!("{path}/log")).await;
    assert_eq!((code.as_u16(), &status["reason"]), (405, &json!("MethodNotAllowed")));
    assert_eq!(status["message"], "get is not supported on resources of kind \"pods/log\"");
}

#[tokio::test]
async fn pods_are_selected_by_their_own_fields() {
    let server = pods();
    make_pod(&server, "one", json!({ "nodeName": "n1" })).await;
    make_pod(&server, "two", json!({ "nodeName": "n2" })).await;
    let status = json!({ "status": { "phase": "Running" } });
    let path = format!("{PODS}/two/status");
    assert_eq!(call(&server, Method::PATCH, &path, status).await.0, 200);
    let cases = [
        ("spec.nodeName=n1", vec!["one"]),
        ("spec.nodeName!=n1", vec!["two"]),
        ("status.phase=Running", vec!["two"]),
        ("status.phase=Pending", vec!["one"]),
        ("spec.hostNetwork=false,metadata.namespace=default", vec!["one", "two"]),
    ];
    for (selector, expected) in cases {
        let (code, list) = get(&server, &format!("{PODS}?fieldSelector={selector}")).await;
        assert_eq!((code.as_u16(), names(&list)), (200, expected), "{selector}");
    }
    let (code, status) = get(&server, &format!("{PODS}?fieldSelector=spec.color=red")).await;
    assert_eq!(code, 400);
    assert_eq!(status["message"], "field label not supported: spec.color");
}

#[tokio::test]
async fn scale_reads_and_changes_the_replicas() {
    let mut deployments = ResourceSpec::namespaced("deployments", "Deployment").with_status();
    deployments.subresources.push(SubresourceSpec {
        name: "scale".to_owned(),
        verbs: deployments.subresources[0].verbs.clone(),
        ..SubresourceSpec::default()
    });
    let groups = vec![GroupSpec::new("apps").version("v1", [deployments])];
    let spec = ServerSpec { groups, ..ServerSpec::default() };
    let server = ApiServer::new(spec, Storage::new());
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let body = json!({
        "metadata": { "name": "one" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "x" } } },
    });
    let (_, made) = call(&server, Method::POST, path, body).await;

    let scale = format!("{path}/one/scale");
    let (code, mut found) = get(&server, &scale).await;
    assert_eq!(code, 200);
    let metadata = &made["metadata"];
    let expected = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": "one",
            "namespace": "default",
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": 2 },
        "status": { "replicas": 0, "selector": "app=x" },
    });
    assert_eq!(found, expected);

    found["spec"]["replicas"] = json!(5);
    let (code, scaled) = call(&server, Method::PUT, &scale, found.clone()).await;
    assert_eq!((code.as_u16(), &scaled["spec"]["replicas"]), (200, &json!(5)));
    let (_, object) = get(&server, &format!("{path}/one")).await;
    assert_eq!(
        (&object["spec"]["replicas"], &object["metadata"]["generation"]),
        (&json!(5), &json!(2))
    );

    let patch = json!({ "spec": { "replicas": 4 } });
    let (code, patched) = call(&server, Method::PATCH, &scale, patch).await;
    assert_eq!((code.as_u16(), &patched["spec"]["replicas"]), (200, &json!(4)));

    // The version that was read first is stale now.
    assert_eq!(call(&server, Method::PUT, &scale, found).await.0, 409);
    let negative = json!({ "metadata": { "name": "one" }, "spec": { "replicas": -1 } });
    let (code, status) = call(&server, Method::PUT, &scale, negative).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Scale.autoscaling \"one\" is invalid: spec.replicas: Invalid value: -1: must be greater \
         than or equal to 0"
    );
}

#[tokio::test]
async fn some_namespaces_of_a_real_server_cannot_be_deleted() {
    let mut namespaces = ResourceSpec::cluster("namespaces", "Namespace").with_status();
    namespaces.subresources.push(SubresourceSpec {
        name: "finalize".to_owned(),
        verbs: vec![mvp_apiserver::Verb::Update],
        ..SubresourceSpec::default()
    });
    let groups = vec![GroupSpec::new("").version("v1", [namespaces])];
    let spec = ServerSpec { groups, ..ServerSpec::default() };
    let server = ApiServer::new(spec, Storage::new());
    for name in ["default", "team"] {
        let body = json!({ "metadata": { "name": name } });
        assert_eq!(call(&server, Method::POST, "/api/v1/namespaces", body).await.0, 201);
    }
    let (code, status) = delete(&server, "/api/v1/namespaces/default", Value::Null).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    let message = "namespaces \"default\" is forbidden: this namespace may not be deleted";
    assert_eq!(status["message"], message);
    assert_eq!(delete(&server, "/api/v1/namespaces/team", Value::Null).await.0, 200);
}
