//! Defaults of built-in kinds, compared with the responses of a real server.

use http::Method;
use mvp_apiserver::{ApiServer, Release, RuntimeConfig, Storage};
use serde_json::{Value, json};

use crate::support::call;

fn server() -> ApiServer {
    let spec = Release::V1_36.spec("a", &RuntimeConfig::default()).unwrap();
    ApiServer::new(spec, Storage::new())
}

/// Removes what only a server with allocators, or with a controller beside it, can set.
fn comparable(mut object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let remove = |object: &mut Value, pointer: &str, names: &[&str]| {
        if let Some(Value::Object(fields)) = object.pointer_mut(pointer) {
            names.iter().for_each(|name| drop(fields.remove(*name)));
        }
    };
    remove(&mut object, "", &["metadata", "status"]);
    match kind.as_str() {
        "Service" => {
            let allocated = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
            remove(&mut object, "/spec", &allocated);
            remove(&mut object, "/spec/ports/0", &["nodePort"]);
        }
        // The selector has the UID of the job.
        "Job" => {
            remove(&mut object, "/spec", &["selector"]);
            remove(&mut object, "/spec/template", &["metadata"]);
        }
        "CronJob" => {
            remove(&mut object, "/spec/jobTemplate", &["metadata"]);
            remove(&mut object, "/spec/jobTemplate/spec/template", &["metadata"]);
        }
        _ => {}
    }
    object
}

#[tokio::test]
async fn created_objects_have_the_defaults_of_a_real_server() {
    let server = server();
    let fixtures = include_str!("../fixtures/defaults.jsonl");
    for line in fixtures.lines() {
        let fixture: Value = serde_json::from_str(line).unwrap();
        let path = fixture["path"].as_str().unwrap();
        let (code, object) = call(&server, Method::POST, path, fixture["sent"].clone()).await;
        assert_eq!(code, 201, "{path}: {object}");
        let expected = comparable(fixture["received"].clone());
        assert_eq!(comparable(object), expected, "{}", fixture["sent"]);
    }
}

#[tokio::test]
async fn an_older_version_of_autoscalers_gets_no_metrics() {
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let sent = json!({ "metadata": { "name": "a" }, "spec": {
        "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": { "kind": "Deployment", "name": "d" },
    } });
    let (code, object) = call(&server(), Method::POST, path, sent).await;
    assert_eq!(code, 201, "{object}");
    assert!(object["spec"]["metrics"].is_null() && object["spec"]["minReplicas"] == 1, "{object}");
}
