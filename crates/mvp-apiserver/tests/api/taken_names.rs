//! Definitions that want names which others have: a built-in resource, or a definition of the same
//! moment.

use std::time::Duration;

use http::Method;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use serde_json::{Value, json};

use crate::crds::{CRDS, crontabs};
use crate::support::{call, get, names};

const CRONTABS: &str = "/apis/stable.example.com/v1/namespaces/default/crontabs";
const DEFINITION: &str = "crontabs.stable.example.com";

fn server(built_in: Vec<GroupSpec>) -> ApiServer {
    let definitions =
        ResourceSpec::cluster("customresourcedefinitions", "CustomResourceDefinition");
    let mut groups =
        vec![GroupSpec::new("apiextensions.k8s.io").version("v1", [definitions.with_status()])];
    groups.extend(built_in);
    let (id, git_version) = ("a".to_owned(), "v1.36.4".to_owned());
    let spec = ServerSpec { id, git_version, groups, ..ServerSpec::default() };
    ApiServer::new(spec, Storage::new()).with_establishing_delay(Duration::ZERO)
}

/// Waits until the names of a definition are judged. Returns the status and reason of the judgement.
async fn judged(server: &ApiServer, name: &str) -> (String, String) {
    for _ in 0..1000 {
        let (_, definition) = get(server, &format!("{CRDS}/{name}")).await;
        let condition = &definition["status"]["conditions"][0];
        if condition["type"] == "NamesAccepted" {
            let text = |key: &str| condition[key].as_str().unwrap().to_owned();
            return (text("status"), text("reason"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the names of {name} are not judged");
}

#[tokio::test]
async fn a_definition_does_not_touch_a_built_in_resource() {
    let built_in = ResourceSpec::namespaced("crontabs", "CronTab");
    let group = GroupSpec::new("stable.example.com").version("v1", [built_in]);
    let server = server(vec![group]);
    // The schema of the definition would refuse it.
    let object = json!({"metadata": {"name": "one"}, "spec": {"anything": 1}});
    assert_eq!(call(&server, Method::POST, CRONTABS, object.clone()).await.0, 201);
    assert_eq!(call(&server, Method::POST, CRDS, crontabs()).await.0, 201);
    let refused = ("False".to_owned(), "PluralConflict".to_owned());
    assert_eq!(judged(&server, DEFINITION).await, refused);

    // Even if another server has established it.
    let (_, mut definition) = get(&server, &format!("{CRDS}/{DEFINITION}")).await;
    definition["status"]["acceptedNames"] = definition["spec"]["names"].clone();
    definition["status"]["conditions"] = json!([
        { "type": "NamesAccepted", "status": "True" },
        { "type": "Established", "status": "True" },
    ]);
    let status = format!("{CRDS}/{DEFINITION}/status");
    assert_eq!(call(&server, Method::PUT, &status, definition).await.0, 200);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut other = object;
    other["metadata"]["name"] = json!("two");
    let (code, made) = call(&server, Method::POST, CRONTABS, other).await;
    assert_eq!((code.as_u16(), &made["spec"]["anything"]), (201, &json!(1)));

    let path = format!("{CRDS}/{DEFINITION}");
    assert_eq!(call(&server, Method::DELETE, &path, Value::Null).await.0, 200);
    for _ in 0..1000 {
        if get(&server, &path).await.0 == 404 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(get(&server, &path).await.0, 404);
    assert_eq!(names(&get(&server, CRONTABS).await.1), ["one", "two"]);
}

#[tokio::test]
async fn one_of_two_new_definitions_gets_the_name() {
    let server = server(Vec::new());
    let mut other = crontabs();
    other["metadata"]["name"] = json!("tables.stable.example.com");
    other["spec"]["names"] = json!({ "plural": "tables", "kind": "Table", "shortNames": ["ct"] });
    // The server looks at both at once: this test does not wait in between.
    for definition in [crontabs(), other] {
        assert_eq!(call(&server, Method::POST, CRDS, definition).await.0, 201);
    }
    let mut judgements = Vec::new();
    for name in [DEFINITION, "tables.stable.example.com"] {
        judgements.push(judged(&server, name).await.0);
    }
    judgements.sort();
    assert_eq!(judgements, ["False", "True"]);
}

/// A server that lacks a kind of Kubernetes must not get it by mistake.
#[tokio::test]
async fn a_group_of_the_kubernetes_project_needs_an_approval() {
    let server = server(Vec::new());
    let group = "stable.k8s.io";
    let mut definition = crontabs();
    definition["spec"]["group"] = json!(group);
    definition["metadata"]["name"] = json!(format!("crontabs.{group}"));
    let (code, refusal) = call(&server, Method::POST, CRDS, definition.clone()).await;
    let message = "CustomResourceDefinition.apiextensions.k8s.io \"crontabs.stable.k8s.io\" is \
                   invalid: metadata.annotations[api-approved.kubernetes.io]: Required value: \
                   protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                   https://github.com/kubernetes/enhancements/pull/1111";
    assert_eq!((code.as_u16(), &refusal["message"]), (422, &json!(message)));
    for (approval, expected) in [
        ("yes", 422),
        ("https:///x", 422),
        ("unapproved, an experiment", 201),
        ("https://github.com/kubernetes/enhancements/pull/1", 409),
    ] {
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": approval});
        let (code, said) = call(&server, Method::POST, CRDS, definition.clone()).await;
        assert_eq!(code, expected, "{approval}: {said}");
    }
}
