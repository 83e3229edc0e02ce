//! Server-side apply, and the managers of fields.

use http::Method;
use mvp_apiserver::{ApiServer, Release, RuntimeConfig, Storage};
use serde_json::{Value, json};

use crate::patches::patch;
use crate::support::{WIDGETS, call, get, read, request, send, server, version_of};

const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn release() -> ApiServer {
    let spec = Release::V1_36.spec("a", &RuntimeConfig::default()).unwrap();
    ApiServer::new(spec, Storage::new())
}

fn deployment(replicas: Option<u64>, image: &str) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": image }] },
            },
        },
    });
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = replicas.into();
    }
    object
}

/// The managers and operations of an object, and who owns the replicas.
fn managers(object: &Value) -> Vec<(&str, &str, bool)> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let text = |value: &'_ Value| value.is_object();
    entries
        .iter()
        .map(|entry| {
            (
                entry["manager"].as_str().unwrap(),
                entry["operation"].as_str().unwrap(),
                text(&entry["fieldsV1"]["f:spec"]["f:replicas"]),
            )
        })
        .collect()
}

#[tokio::test]
async fn an_apply_creates_changes_and_removes() {
    let server = server();
    let path = format!("{WIDGETS}/one?fieldManager=test");
    let yaml = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: one\n";
    let first = format!("{yaml}spec:\n  size: 3\n  color: red\n");
    let (code, made) = patch(&server, &path, APPLY, &first).await;
    assert_eq!((code.as_u16(), &made["spec"]), (201, &json!({ "size": 3, "color": "red" })));
    let fields = json!({ "f:spec": { ".": {}, "f:color": {}, "f:size": {} } });
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], fields);

    let (code, same) = patch(&server, &path, APPLY, &first).await;
    assert_eq!((code.as_u16(), version_of(&same)), (200, version_of(&made)));
    let second = format!("{yaml}spec:\n  size: 3\n");
    let (code, changed) = patch(&server, &path, APPLY, &second).await;
    assert_eq!((code.as_u16(), &changed["spec"]), (200, &json!({ "size": 3 })));

    let dry = format!("{path}&dryRun=All&force=true");
    let third = format!("{yaml}spec:\n  size: 4\n");
    let (code, dry) = patch(&server, &dry, APPLY, &third).await;
    assert_eq!((code.as_u16(), &dry["spec"]["size"]), (200, &json!(4)));
    let live = get(&server, &format!("{WIDGETS}/one")).await.1;
    assert_eq!(live["spec"]["size"], 3);
}

#[tokio::test]
async fn an_apply_is_refused_with_the_texts_of_kubernetes() {
    let server = server();
    let path = format!("{WIDGETS}/one");
    let named = format!("{path}?fieldManager=test");
    let yaml = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: one\n";
    let (code, status) = patch(&server, &path, APPLY, yaml).await;
    let text = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required \
                for apply patch";
    assert_eq!((code.as_u16(), &status["message"]), (422, &json!(text)));
    let cases = [
        ("spec: {}", 400, "invalid object type: /, Kind="),
        ("{apiVersion: v1, kind: Pod}", 400, "invalid object type: /v1, Kind=Pod"),
        (
            "{apiVersion: example.com/v1, kind: Widget, metadata: {managedFields: []}}",
            400,
            "metadata.managedFields must be nil",
        ),
    ];
    for (body, expected, text) in cases {
        let (code, status) = patch(&server, &named, APPLY, body).await;
        assert_eq!((code.as_u16(), &status["message"]), (expected, &json!(text)), "{body}");
    }
    for (name, body) in [("other", yaml), ("one", "a: ["), ("one/status", yaml)] {
        let path = format!("{WIDGETS}/{name}?fieldManager=test");
        let expected = if name == "one/status" { 404 } else { 400 };
        assert_eq!(patch(&server, &path, APPLY, body).await.0, expected, "{name}");
    }
    crate::support::make(&server, "one").await;
    let forced = format!("{path}?force=true");
    let (code, status) = patch(&server, &forced, "application/merge-patch+json", "{}").await;
    let text = "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for \
                non-apply patch";
    assert_eq!((code.as_u16(), &status["message"]), (422, &json!(text)));
}

#[tokio::test]
async fn conflicts_name_the_managers_and_force_takes_the_fields() {
    let server = release();
    let by = |manager: &str| format!("{DEPLOYMENTS}/web?fieldManager={manager}");
    let body = deployment(Some(1), "web:1").to_string();
    let (code, made) = patch(&server, &by("a"), APPLY, &body).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(managers(&made), [("a", "Apply", true)]);

    let scale = "application/merge-patch+json";
    let patched = patch(&server, &by("scaler"), scale, r#"{"spec":{"replicas":5}}"#).await.1;
    assert_eq!(managers(&patched), [("a", "Apply", false), ("scaler", "Update", true)]);
    let (code, status) = patch(&server, &by("a"), APPLY, &body).await;
    let text =
        "Apply failed with 1 conflict: conflict with \"scaler\" using apps/v1: .spec.replicas";
    assert_eq!((code.as_u16(), &status["message"]), (409, &json!(text)));
    let causes = json!([{
        "reason": "FieldManagerConflict",
        "message": "conflict with \"scaler\" using apps/v1",
        "field": ".spec.replicas",
    }]);
    assert_eq!(status["details"], json!({ "causes": causes }));
    assert_eq!(status["reason"], "Conflict");

    let (code, forced) = patch(&server, &format!("{}&force=true", by("a")), APPLY, &body).await;
    assert_eq!((code.as_u16(), &forced["spec"]["replicas"]), (200, &json!(1)));
    assert_eq!(managers(&forced), [("a", "Apply", true)]);

    let mut odd = deployment(None, "web:1");
    odd["spec"]["replica"] = 1.into();
    let (code, status) = patch(&server, &by("a"), APPLY, &odd.to_string()).await;
    let text = "failed to create typed patch object (/web; apps/v1, Kind=Deployment): \
                .spec.replica: field not declared in schema";
    assert_eq!((code.as_u16(), &status["message"]), (500, &json!(text)));
}

#[tokio::test]
async fn creates_and_updates_are_recorded_by_manager_and_user_agent() {
    let server = release();
    let body = deployment(Some(1), "web:1").to_string();
    let post = request(Method::POST, DEPLOYMENTS)
        .header("content-type", "application/json")
        .header("user-agent", "kubectl/v1.36 (linux)");
    let response = send(&server, post.body(body.into()).unwrap()).await;
    let (code, made) = read(response).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(managers(&made), [("kubectl", "Update", true)]);
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["apiVersion"], &entry["fieldsType"]),
        (&json!("apps/v1"), &json!("FieldsV1"))
    );
    let containers = &entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"];
    assert!(containers[r#"k:{"name":"main"}"#]["f:image"].is_object(), "{containers}");
    assert!(entry["fieldsV1"]["f:metadata"]["f:name"].is_null());

    let path = format!("{DEPLOYMENTS}/web");
    let status = json!({ "status": { "replicas": 1 } }).to_string();
    let status_path = format!("{path}/status?fieldManager=controller");
    let merge = "application/merge-patch+json";
    let (code, object) = patch(&server, &status_path, merge, &status).await;
    assert_eq!(code, 200, "{object}");
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == "controller").unwrap();
    assert_eq!(entry["subresource"], "status");
    assert!(entry["fieldsV1"]["f:status"].is_object() && entry["fieldsV1"]["f:spec"].is_null());

    // An update without a difference changes nothing.
    let (_, again) = patch(&server, &status_path, merge, &status).await;
    assert_eq!(version_of(&again), version_of(&object));
    // An empty list forgets the managers.
    let reset = r#"{"metadata":{"managedFields":[{}]}}"#;
    let (code, object) = patch(&server, &path, merge, reset).await;
    assert_eq!(code, 200, "{object}");
    assert!(object["metadata"].get("managedFields").is_none(), "{object}");

    let body = deployment(Some(1), "web:2").to_string();
    let force = format!("{path}?fieldManager=a&force=true");
    let (code, object) = patch(&server, &force, APPLY, &body).await;
    assert_eq!(code, 200, "{object}");
    let names: Vec<_> = managers(&object).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["a", "before-first-apply"]);
}

#[tokio::test]
async fn kubectl_takes_over_what_it_applied_on_the_clients_side() {
    let server = release();
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut body = deployment(Some(1), "web:1");
    body["metadata"]["annotations"] = json!({ annotation: body.to_string() });
    let create = format!("{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply");
    assert_eq!(call(&server, Method::POST, &create, body).await.0, 201);

    let applied = deployment(Some(1), "web:2").to_string();
    let path = |manager: &str| format!("{DEPLOYMENTS}/web?fieldManager={manager}");
    assert_eq!(patch(&server, &path("other"), APPLY, &applied).await.0, 409);
    let (code, object) = patch(&server, &path("kubectl"), APPLY, &applied).await;
    assert_eq!(code, 200, "{object}");
    let image = &object["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "web:2");
    let noted = object["metadata"]["annotations"][annotation].as_str().unwrap();
    assert!(noted.contains("web:2"), "{noted}");
}
