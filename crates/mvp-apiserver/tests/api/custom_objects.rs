//! Objects of custom kinds: validation, shape, versions, subresources, tables and documents.

use http::Method;
use http_body_util::Full;
use mvp_apiserver::{ApiServer, Release, RuntimeConfig, Storage};
use serde_json::{Value, json};

use crate::crds::{CRDS, code_of, crontabs, define, server, wait_for};
use crate::support::{call, get, read, request, send};

const CRONTABS: &str = "/apis/stable.example.com/v1/namespaces/default/crontabs";

fn crontab(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": { "name": name }, "spec": spec })
}

#[tokio::test(start_paused = true)]
async fn objects_are_validated_by_their_schema() {
    let server = server();
    define(&server, crontabs()).await;
    let every = "* * * * *";
    let cases = [
        (json!({}), "FieldValueRequired", "spec.cronSpec", "Required value"),
        (
            json!({ "cronSpec": 7 }),
            "FieldValueTypeInvalid",
            "spec.cronSpec",
            "Invalid value: \"integer\": spec.cronSpec in body must be of type string: \"integer\"",
        ),
        (
            json!({ "cronSpec": "never" }),
            "FieldValueInvalid",
            "spec.cronSpec",
            "Invalid value: \"never\": spec.cronSpec in body should match \
             '^(\\d+|\\*)(/\\d+)?(\\s+(\\d+|\\*)(/\\d+)?){4}$'",
        ),
        (
            json!({ "cronSpec": every, "replicas": 11 }),
            "FieldValueInvalid",
            "spec.replicas",
            "Invalid value: 11: spec.replicas in body should be less than or equal to 10",
        ),
        (
            json!({ "cronSpec": every, "replicas": 0 }),
            "FieldValueInvalid",
            "spec.replicas",
            "Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
        ),
        (
            json!({ "cronSpec": every, "mode": "Odd" }),
            "FieldValueNotSupported",
            "spec.mode",
            "Unsupported value: \"Odd\": supported values: \"Fast\", \"Slow\"",
        ),
        (
            json!({ "cronSpec": every, "image": "x" }),
            "FieldValueInvalid",
            "spec.image",
            "Invalid value: \"x\": spec.image in body should be at least 2 chars long",
        ),
        (
            json!({ "cronSpec": every, "image": "much too long" }),
            "FieldValueTooLong",
            "spec.image",
            "Too long: may not be more than 5 bytes",
        ),
        (
            json!({ "cronSpec": every, "tags": ["a", "b", "c"] }),
            "FieldValueTooMany",
            "spec.tags",
            "Too many: 3: must have at most 2 items",
        ),
        (
            json!({ "cronSpec": every, "port": true }),
            "FieldValueTypeInvalid",
            "spec.port",
            "Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
        ),
    ];
    for (spec, reason, field, message) in cases {
        let (code, status) = call(&server, Method::POST, CRONTABS, crontab("one", spec)).await;
        assert_eq!((code.as_u16(), &status["reason"]), (422, &json!("Invalid")), "{message}");
        let cause = json!({ "reason": reason, "message": message, "field": field });
        assert_eq!(status["details"]["causes"], json!([cause]));
        let whole = format!("CronTab.stable.example.com \"one\" is invalid: {field}: {message}");
        assert_eq!(status["message"], whole);
    }
}

#[tokio::test(start_paused = true)]
async fn valid_objects_are_accepted_and_updates_are_validated_as_a_whole() {
    let server = server();
    define(&server, crontabs()).await;
    let every = "* * * * *";
    for port in [json!(80), json!("http")] {
        let spec = json!({ "cronSpec": every, "port": port });
        let (code, _) =
            call(&server, Method::POST, &format!("{CRONTABS}?dryRun=All"), crontab("one", spec))
                .await;
        assert_eq!(code, 201);
    }
    call(&server, Method::POST, CRONTABS, crontab("one", json!({ "cronSpec": every }))).await;
    let patch = json!({ "spec": { "cronSpec": null } });
    assert_eq!(call(&server, Method::PATCH, &format!("{CRONTABS}/one"), patch).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_pruned_reported_or_refused() {
    let server = server();
    define(&server, crontabs()).await;
    let spec = json!({ "cronSpec": "* * * * *", "unknown": 1, "free": { "any": { "thing": 1 } } });
    let path = format!("{CRONTABS}?fieldValidation=Strict");
    let (code, status) = call(&server, Method::POST, &path, crontab("one", spec.clone())).await;
    assert_eq!((code.as_u16(), &status["reason"]), (400, &json!("BadRequest")));
    let message = "CronTab in version \"v1\" cannot be handled as a CronTab: strict decoding error: \
                   unknown field \"spec.unknown\"";
    assert_eq!(status["message"], message);

    let body = crontab("one", spec).to_string();
    let post = request(Method::POST, CRONTABS).header("content-type", "application/json");
    let response = send(&server, post.body(Full::new(body.into())).unwrap()).await;
    assert_eq!(response.headers()["warning"], "299 - \"unknown field \\\"spec.unknown\\\"\"");
    let (code, made) = read(response).await;
    assert_eq!(code, 201);
    let expected =
        json!({ "cronSpec": "* * * * *", "replicas": 1, "free": { "any": { "thing": 1 } } });
    assert_eq!(made["spec"], expected);
}

#[tokio::test(start_paused = true)]
async fn status_and_scale_are_written_separately() {
    let server = server();
    define(&server, crontabs()).await;
    let mut object = crontab("one", json!({ "cronSpec": "* * * * *", "replicas": 3 }));
    object["status"] = json!({ "replicas": 9 });
    let (_, made) = call(&server, Method::POST, CRONTABS, object).await;
    assert_eq!(made.get("status"), None);
    let patch = json!({ "status": { "replicas": 2 }, "spec": { "replicas": 9 } });
    let (code, patched) =
        call(&server, Method::PATCH, &format!("{CRONTABS}/one/status"), patch).await;
    assert_eq!((code.as_u16(), &patched["status"]["replicas"]), (200, &json!(2)));
    assert_eq!(patched["spec"]["replicas"], 3);

    let path = format!("{CRONTABS}/one/scale");
    let (code, scale) = get(&server, &path).await;
    assert_eq!((code.as_u16(), &scale["kind"]), (200, &json!("Scale")));
    assert_eq!(scale["apiVersion"], "autoscaling/v1");
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(3), &json!(2)));
    let patch = json!({ "spec": { "replicas": 5 } });
    let (code, scale) = call(&server, Method::PATCH, &path, patch).await;
    assert_eq!((code.as_u16(), &scale["spec"]["replicas"]), (200, &json!(5)));
    assert_eq!(get(&server, &format!("{CRONTABS}/one")).await.1["spec"]["replicas"], 5);
    // The schema holds for this way, too.
    let patch = json!({ "spec": { "replicas": 50 } });
    assert_eq!(call(&server, Method::PATCH, &path, patch).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn versions_share_objects_and_have_their_own_schemas() {
    let server = server();
    let mut definition = crontabs();
    let mut beta = definition["spec"]["versions"][0].clone();
    beta["name"] = json!("v1beta1");
    beta["storage"] = json!(false);
    beta["deprecated"] = json!(true);
    let spec = json!({ "type": "object", "properties": {
        "cronSpec": { "type": "string" }, "note": { "type": "string", "default": "old" } } });
    beta["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    definition["spec"]["versions"].as_array_mut().unwrap().insert(0, beta);
    define(&server, definition).await;

    call(
        &server,
        Method::POST,
        CRONTABS,
        crontab("one", json!({ "cronSpec": "* * * * *", "replicas": 2 })),
    )
    .await;
    let old = CRONTABS.replace("/v1/", "/v1beta1/");
    let response =
        send(&server, request(Method::GET, &format!("{old}/one")).body(Full::default()).unwrap())
            .await;
    let warning = "299 - \"stable.example.com/v1beta1 CronTab is deprecated\"";
    assert_eq!(response.headers()["warning"], warning);
    let (_, object) = read(response).await;
    assert_eq!(object["apiVersion"], "stable.example.com/v1beta1");
    assert_eq!(object["spec"], json!({ "cronSpec": "* * * * *", "note": "old" }));

    let (_, group) = get(&server, "/apis/stable.example.com").await;
    let versions: Vec<_> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["version"].clone())
        .collect();
    assert_eq!(versions, [json!("v1"), json!("v1beta1")]);
    assert_eq!(group["preferredVersion"]["version"], "v1");
}

#[tokio::test(start_paused = true)]
async fn tables_have_the_columns_of_the_definition() {
    let server = server();
    define(&server, crontabs()).await;
    call(&server, Method::POST, CRONTABS, crontab("one", json!({ "cronSpec": "* * * * *" }))).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let get = request(Method::GET, CRONTABS).header("accept", accept);
    let (_, table) = read(send(&server, get.body(Full::default()).unwrap()).await).await;
    let column = |name: &str, kind: &str, format: &str, description: &str, priority: u8| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority });
    let path = "Custom resource definition column (in JSONPath format): ";
    let expected = json!([
        column("Name", "string", "name", "", 0),
        column("Spec", "string", "", "d", 0),
        column("Replicas", "integer", "", &format!("{path}.spec.replicas"), 1),
        column("Age", "date", "", &format!("{path}.metadata.creationTimestamp"), 0),
    ]);
    assert_eq!(table["columnDefinitions"], expected);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], [json!("one"), json!("* * * * *"), json!(1)]);
    assert!(cells[3].as_str().unwrap().ends_with('s'));
}

async fn aggregated(server: &ApiServer) -> (String, Value) {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let get = request(Method::GET, "/apis").header("accept", accept);
    let response = send(server, get.body(Full::default()).unwrap()).await;
    let etag = response.headers()["etag"].to_str().unwrap().to_owned();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (etag, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test(start_paused = true)]
async fn discovery_and_openapi_follow_the_definitions() {
    let spec = Release::V1_36.spec("a", &RuntimeConfig::default()).unwrap();
    let server = ApiServer::new(spec, Storage::new());
    let (before, _) = aggregated(&server).await;
    assert_eq!(code_of(&server, "/apis/stable.example.com/v1").await, 404);
    define(&server, crontabs()).await;

    let (after, document) = aggregated(&server).await;
    assert_ne!(before, after);
    let groups = document["items"].as_array().unwrap();
    let group =
        groups.iter().find(|group| group["metadata"]["name"] == "stable.example.com").unwrap();
    let resource = &group["versions"][0]["resources"][0];
    assert_eq!(resource["resource"], "crontabs");
    assert_eq!(resource["singularResource"], "crontab");
    assert_eq!(
        (&resource["shortNames"], &resource["categories"]),
        (&json!(["ct"]), &json!(["all"]))
    );
    let scale = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    assert_eq!(resource["subresources"][1]["responseKind"], scale);
    let (_, list) = get(&server, "/apis/stable.example.com/v1").await;
    let names: Vec<_> =
        list["resources"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, [json!("crontabs"), json!("crontabs/status"), json!("crontabs/scale")]);

    let (_, index) = get(&server, "/openapi/v3").await;
    let url = index["paths"]["apis/stable.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let (code, document) = get(&server, url).await;
    assert_eq!(code, 200);
    let schema = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert_eq!(schema["properties"]["spec"]["properties"]["replicas"]["maximum"], 10);
    let kind = json!([{ "group": "stable.example.com", "version": "v1", "kind": "CronTab" }]);
    assert_eq!(schema["x-kubernetes-group-version-kind"], kind);

    call(&server, Method::DELETE, &format!("{CRDS}/crontabs.stable.example.com"), Value::Null)
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert_eq!(aggregated(&server).await.0, before);
    assert_eq!(code_of(&server, "/apis/stable.example.com/v1").await, 404);
}

#[tokio::test(start_paused = true)]
async fn a_new_version_of_a_served_definition_is_served() {
    let server = server();
    let mut definition = define(&server, crontabs()).await;
    let mut next = definition["spec"]["versions"][0].clone();
    next["name"] = json!("v2");
    definition["spec"]["versions"][0]["storage"] = json!(false);
    definition["spec"]["versions"].as_array_mut().unwrap().push(next);
    let path = format!("{CRDS}/crontabs.stable.example.com");
    let (code, updated) = call(&server, Method::PUT, &path, definition).await;
    assert_eq!((code.as_u16(), &updated["status"]["storedVersions"]), (200, &json!(["v1", "v2"])));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(code_of(&server, &CRONTABS.replace("/v1/", "/v2/")).await, 200);
    wait_for(&server, "crontabs.stable.example.com", "Established").await;

    // A version that has stored objects cannot go.
    let mut without = get(&server, &path).await.1;
    without["spec"]["versions"].as_array_mut().unwrap().remove(0);
    let (code, status) = call(&server, Method::PUT, &path, without).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains(
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"
        ),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn rules_that_are_not_evaluated_are_a_warning() {
    let server = server();
    let mut definition = crontabs();
    let rules = json!([{ "rule": "self.replicas > 1" }]);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
        rules;
    let request = request(Method::POST, CRDS).header("content-type", "application/json");
    let response =
        send(&server, request.body(Full::new(definition.to_string().into())).unwrap()).await;
    let warning = response.headers()["warning"].to_str().unwrap().to_owned();
    assert_eq!(
        warning,
        "299 - \"x-kubernetes-validations: this server does not evaluate CEL rules\""
    );
    assert_eq!(read(response).await.0, 201);
}
