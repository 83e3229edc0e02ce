//! Custom resources: definitions, establishment on each server, schemas, versions, subresources.
//! Texts and rules are those of kube-apiserver 1.36.

use std::time::Duration;

use http::Method;
use http_body_util::Full;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use serde_json::{Value, json};

use crate::support::{call, get, names, request, send};

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRONTABS: &str = "/apis/stable.example.com/v1/namespaces/default/crontabs";
const DEFINITION: &str = "crontabs.stable.example.com";

pub(crate) fn server_on(storage: &Storage, delay: Duration) -> ApiServer {
    let definitions =
        ResourceSpec::cluster("customresourcedefinitions", "CustomResourceDefinition");
    let spec = ServerSpec {
        id: "a".to_owned(),
        git_version: "v1.36.4".to_owned(),
        groups: vec![
            GroupSpec::new("apiextensions.k8s.io").version("v1", [definitions.with_status()]),
        ],
        ..ServerSpec::default()
    };
    ApiServer::new(spec, storage.clone()).with_establishing_delay(delay)
}

pub(crate) fn server() -> ApiServer {
    server_on(&Storage::new(), Duration::from_millis(100))
}

/// The definition of the Kubernetes documentation, with a few more rules.
pub(crate) fn crontabs() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["cronSpec"],
        "properties": {
            "cronSpec": { "type": "string", "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$" },
            "image": { "type": "string", "minLength": 2, "maxLength": 5 },
            "replicas": { "type": "integer", "minimum": 1, "maximum": 10, "default": 1 },
            "mode": { "type": "string", "enum": ["Fast", "Slow"] },
            "port": { "x-kubernetes-int-or-string": true },
            "tags": { "type": "array", "maxItems": 2, "items": { "type": "string" } },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    });
    let status = json!({ "type": "object", "properties": { "replicas": { "type": "integer" } } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": DEFINITION },
        "spec": {
            "group": "stable.example.com",
            "scope": "Namespaced",
            "names": { "plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"], "categories": ["all"] },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec, "status": status } } },
                "subresources": {
                    "status": {},
                    "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
                },
                "additionalPrinterColumns": [
                    { "name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec", "description": "d" },
                    { "name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1 },
                    { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                ],
            }],
        },
    })
}

fn crontab(name: &str) -> Value {
    json!({
        "apiVersion": "stable.example.com/v1",
        "kind": "CronTab",
        "metadata": { "name": name },
        "spec": { "cronSpec": "* * * * */5" },
    })
}

/// Waits until a condition of a definition is true, as `kubectl wait` does.
pub(crate) async fn wait_for(server: &ApiServer, name: &str, condition: &str) -> Value {
    let wanted = |definition: &Value| {
        let conditions = definition["status"]["conditions"].as_array().cloned();
        conditions
            .unwrap_or_default()
            .iter()
            .any(|entry| entry["type"] == condition && entry["status"] == "True")
    };
    for _ in 0..1000 {
        let (_, definition) = get(server, &format!("{CRDS}/{name}")).await;
        if wanted(&definition) {
            return definition;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} is not {condition}");
}

pub(crate) async fn define(server: &ApiServer, definition: Value) -> Value {
    let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
    let (code, made) = call(server, Method::POST, CRDS, definition).await;
    assert_eq!(code, 201, "{made}");
    wait_for(server, &name, "Established").await
}

pub(crate) async fn code_of(server: &ApiServer, path: &str) -> u16 {
    let request = request(Method::GET, path).body(Full::default()).unwrap();
    send(server, request).await.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_definition_lives_from_its_creation_to_the_removal_of_its_objects() {
    let server = server();
    let (code, made) = call(&server, Method::POST, CRDS, crontabs()).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["names"]["singular"], "crontab");
    assert_eq!(made["spec"]["names"]["listKind"], "CronTabList");
    assert_eq!(made["spec"]["conversion"], json!({ "strategy": "None" }));
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(code_of(&server, CRONTABS).await, 404);

    let definition = wait_for(&server, DEFINITION, "Established").await;
    assert_eq!(definition["status"]["acceptedNames"], made["spec"]["names"]);
    let conditions: Vec<_> = definition["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["type"].clone(), entry["status"].clone(), entry["reason"].clone()))
        .collect();
    let expected = [
        (json!("NamesAccepted"), json!("True"), json!("NoConflicts")),
        (json!("Established"), json!("True"), json!("InitialNamesAccepted")),
    ];
    assert_eq!(conditions, expected);

    let (code, one) = call(&server, Method::POST, CRONTABS, crontab("one")).await;
    assert_eq!((code.as_u16(), &one["kind"]), (201, &json!("CronTab")));
    assert_eq!(one["spec"]["replicas"], 1);
    let (_, list) = get(&server, CRONTABS).await;
    assert_eq!((&list["kind"], names(&list)), (&json!("CronTabList"), vec!["one"]));
    let path = format!("{CRONTABS}/one");
    let patch = json!({ "spec": { "image": "img" } });
    let (code, patched) = call(&server, Method::PATCH, &path, patch).await;
    assert_eq!((code.as_u16(), &patched["spec"]["image"]), (200, &json!("img")));
    assert_eq!(patched["metadata"]["generation"], 2);

    let (code, deleted) =
        call(&server, Method::DELETE, &format!("{CRDS}/{DEFINITION}"), Value::Null).await;
    assert_eq!(code, 200);
    let finalizer = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(deleted["metadata"]["finalizers"], json!([finalizer]));
    for _ in 0..1000 {
        if code_of(&server, CRONTABS).await == 404 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(code_of(&server, CRONTABS).await, 404);
    assert_eq!(code_of(&server, &format!("{CRDS}/{DEFINITION}")).await, 404);
    // The objects are gone, not hidden.
    define(&server, crontabs()).await;
    assert_eq!(names(&get(&server, CRONTABS).await.1).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_server_establishes_in_its_own_time() {
    let storage = Storage::new();
    let quick = server_on(&storage, Duration::from_millis(100));
    let slow = server_on(&storage, Duration::from_secs(5));
    define(&quick, crontabs()).await;
    assert_eq!(code_of(&quick, CRONTABS).await, 200);
    assert_eq!(code_of(&slow, CRONTABS).await, 404);
    // The condition is in the shared storage: any server may have set it.
    wait_for(&slow, DEFINITION, "Established").await;
    assert_eq!(code_of(&slow, CRONTABS).await, 404);
    assert_eq!(call(&quick, Method::POST, CRONTABS, crontab("one")).await.0, 201);

    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(names(&get(&slow, CRONTABS).await.1), ["one"]);

    // One writer: the conditions were set once each, and nobody writes again.
    let before = storage.resource_version();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(storage.resource_version(), before);

    // A server that joins serves what is established at once.
    let late = server_on(&storage, Duration::from_secs(5));
    get(&late, CRDS).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(names(&get(&late, CRONTABS).await.1), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn objects_with_finalizers_hold_up_the_deletion_of_their_definition() {
    let server = server();
    define(&server, crontabs()).await;
    let mut object = crontab("one");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(call(&server, Method::POST, CRONTABS, object).await.0, 201);
    call(&server, Method::DELETE, &format!("{CRDS}/{DEFINITION}"), Value::Null).await;
    tokio::time::sleep(Duration::from_secs(10)).await;

    let path = format!("{CRONTABS}/one");
    let (code, held) = get(&server, &path).await;
    assert_eq!((code.as_u16(), held["metadata"]["deletionTimestamp"].is_string()), (200, true));
    let (code, status) = call(&server, Method::POST, CRONTABS, crontab("two")).await;
    assert_eq!((code.as_u16(), &status["reason"]), (405, &json!("MethodNotAllowed")));
    let message = "create not allowed while custom resource definition is terminating";
    assert_eq!(status["message"], message);

    let patch = json!({ "metadata": { "finalizers": null } });
    assert_eq!(call(&server, Method::PATCH, &path, patch).await.0, 200);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(code_of(&server, &format!("{CRDS}/{DEFINITION}")).await, 404);
}

#[tokio::test(start_paused = true)]
async fn names_of_another_definition_are_refused_until_they_are_free() {
    let server = server();
    define(&server, crontabs()).await;
    let mut other = crontabs();
    other["metadata"]["name"] = json!("tables.stable.example.com");
    let taken = json!({ "plural": "tables", "kind": "Table", "shortNames": ["ct"] });
    other["spec"]["names"] = taken;
    assert_eq!(call(&server, Method::POST, CRDS, other).await.0, 201);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, refused) = get(&server, &format!("{CRDS}/tables.stable.example.com")).await;
    let condition = &refused["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("NamesAccepted"), &json!("False"))
    );
    assert_eq!(condition["reason"], "ShortNamesConflict");
    assert_eq!(condition["message"], "\"ct\" is already in use");
    assert_eq!(refused["status"]["conditions"][1]["reason"], "NotAccepted");
    assert_eq!(code_of(&server, "/apis/stable.example.com/v1/tables").await, 404);

    call(&server, Method::DELETE, &format!("{CRDS}/{DEFINITION}"), Value::Null).await;
    wait_for(&server, "tables.stable.example.com", "Established").await;
    assert_eq!(code_of(&server, "/apis/stable.example.com/v1/tables").await, 200);
}

/// The definition with another value at a place.
fn with(pointer: &str, value: Value) -> Value {
    let mut definition = crontabs();
    *definition.pointer_mut(pointer).unwrap() = value;
    definition
}

async fn check_refused(cases: impl IntoIterator<Item = (Value, String)>) {
    let server = server();
    for (definition, expected) in cases {
        let (code, status) = call(&server, Method::POST, CRDS, definition).await;
        assert_eq!((code.as_u16(), &status["reason"]), (422, &json!("Invalid")), "{expected}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(&expected), "{message}\n{expected}");
        assert!(message.starts_with("CustomResourceDefinition.apiextensions.k8s.io \""));
        assert!(!status["details"]["causes"].as_array().unwrap().is_empty());
    }
    assert_eq!(names(&get(&server, CRDS).await.1).len(), 0);
}

#[tokio::test]
async fn invalid_definitions_are_refused_with_the_texts_of_kubernetes() {
    check_refused([
        (
            with("/metadata/name", json!("wrong.example.com")),
            "metadata.name: Invalid value: \"wrong.example.com\": must be \
             spec.names.plural+\".\"+spec.group"
                .to_owned(),
        ),
        (
            with("/spec/scope", json!("Everywhere")),
            "spec.scope: Unsupported value: \"Everywhere\": supported values: \"Cluster\", \
             \"Namespaced\""
                .to_owned(),
        ),
        (with("/spec/names/kind", json!("")), "spec.names.kind: Required value".to_owned()),
        (
            with("/spec/versions/0/storage", json!(false)),
            "must have exactly one version marked as storage version".to_owned(),
        ),
        (
            with("/spec/versions/0/schema", json!({})),
            "spec.versions[0].schema.openAPIV3Schema: Required value".to_owned(),
        ),
        (
            with("/spec/versions/0/additionalPrinterColumns/0/type", json!("text")),
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be \
             one of boolean,date,integer,number,string"
                .to_owned(),
        ),
        (
            with("/spec/versions/0/subresources/scale/specReplicasPath", json!(".status.x")),
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.x\": \
             should be a json path under .spec"
                .to_owned(),
        ),
        (
            with("/spec/names/shortNames", json!(["NO"])),
            "spec.names.shortNames[0]: Invalid value: \"NO\": a DNS-1035 label must consist"
                .to_owned(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn schemas_that_are_not_structural_are_refused() {
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    // A real server keeps the contents of a single version outside of the list of versions.
    let path = "spec.validation.openAPIV3Schema";
    let spec = format!("{schema}/properties/spec");
    check_refused([
        (
            with(schema, json!({ "properties": {} })),
            format!("{path}.type: Required value: must not be empty at the root"),
        ),
        (
            with(schema, json!({ "type": "string" })),
            format!("{path}.type: Invalid value: \"string\": must be object at the root"),
        ),
        (
            with(&spec, json!({ "type": "object", "$ref": "#/x" })),
            format!("{path}.properties[spec].$ref: Forbidden: $ref is not supported"),
        ),
        (
            with(&spec, json!({ "properties": {} })),
            format!(
                "{path}.properties[spec].type: Required value: must not be empty for specified \
                 object fields"
            ),
        ),
        (
            with(&spec, json!({ "type": "array" })),
            format!("{path}.properties[spec].items: Required value: must be specified"),
        ),
        (
            with(&spec, json!({ "type": "date" })),
            format!(
                "{path}.properties[spec].type: Unsupported value: \"date\": supported values: \
                 \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""
            ),
        ),
        (
            with(&spec, json!({ "type": "object", "anyOf": [{ "type": "object" }] })),
            format!(
                "{path}.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural"
            ),
        ),
        (
            with(&spec, json!({ "type": "string", "pattern": "(" })),
            format!(
                "{path}.properties[spec].pattern: Invalid value: \"(\": must be a valid regular"
            ),
        ),
        (
            with(&spec, json!({ "type": "object", "uniqueItems": true })),
            format!("{path}.properties[spec].uniqueItems: Forbidden"),
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_established_cannot_change_its_kind() {
    let server = server();
    let mut definition = define(&server, crontabs()).await;
    definition["spec"]["names"]["kind"] = json!("Other");
    definition["spec"]["names"]["listKind"] = json!("OtherList");
    let path = format!("{CRDS}/{DEFINITION}");
    let (code, status) = call(&server, Method::PUT, &path, definition).await;
    assert_eq!(code, 422);
    let expected = "spec.names.kind: Invalid value: \"Other\": field is immutable";
    assert!(status["message"].as_str().unwrap().contains(expected), "{status}");
}
