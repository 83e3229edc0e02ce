//! Objects as tables and as partial metadata, as kubectl and metadata informers ask for them.

use http::Method;
use http_body_util::Full;
use mvp_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::{Lines, WIDGETS, call, make, read, request, send, server, version_of};

/// What kubectl sends.
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                       application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

async fn get_as(server: &ApiServer, path: &str, accept: &str) -> (u16, Value) {
    let request = request(Method::GET, path).header("accept", accept);
    let (code, body) = read(send(server, request.body(Full::default()).unwrap()).await).await;
    (code.as_u16(), body)
}

#[tokio::test]
async fn a_list_and_an_object_are_tables() {
    let server = server();
    let one = make(&server, "one").await;
    make(&server, "two").await;

    let (code, table) = get_as(&server, WIDGETS, KUBECTL).await;
    assert_eq!((code, &table["kind"]), (200, &json!("Table")));
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(version_of(&table), server.storage().resource_version());
    let columns = json!([
        { "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0 },
        { "name": "Created At", "type": "date", "format": "", "description": "", "priority": 0 },
    ]);
    assert_eq!(table["columnDefinitions"], columns);
    assert_eq!(table["rows"][0]["cells"], json!(["one", one["metadata"]["creationTimestamp"]]));
    let object = json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": one["metadata"],
    });
    assert_eq!(table["rows"][0]["object"], object);
    assert_eq!(table["rows"].as_array().unwrap().len(), 2);

    let (_, table) = get_as(&server, &format!("{WIDGETS}/one"), KUBECTL).await;
    assert_eq!(version_of(&table), version_of(&one));
    assert_eq!(table["rows"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn rows_have_the_part_of_the_object_that_the_query_wants() {
    let server = server();
    let one = make(&server, "one").await;
    let (_, table) = get_as(&server, &format!("{WIDGETS}?includeObject=Object"), KUBECTL).await;
    assert_eq!(table["rows"][0]["object"], one);
    let (_, table) = get_as(&server, &format!("{WIDGETS}?includeObject=None"), KUBECTL).await;
    assert_eq!(table["rows"][0]["object"], Value::Null);
    let (code, status) = get_as(&server, &format!("{WIDGETS}?includeObject=All"), KUBECTL).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be \
         'Metadata', 'Object', 'None', or empty"
    );
    // Without a table the parameter has no meaning.
    assert_eq!(get_as(&server, &format!("{WIDGETS}?includeObject=All"), "*/*").await.0, 200);
}

#[tokio::test]
async fn the_form_is_negotiated() {
    let server = server();
    make(&server, "one").await;
    let cases = [
        ("application/json", "WidgetList", "example.com/v1"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", "Table", "meta.k8s.io/v1beta1"),
        (
            "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
            "WidgetList",
            "example.com/v1",
        ),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1,application/json",
            "WidgetList",
            "example.com/v1",
        ),
        ("application/vnd.kubernetes.protobuf,*/*", "WidgetList", "example.com/v1"),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            "PartialObjectMetadataList",
            "meta.k8s.io/v1",
        ),
    ];
    for (accept, kind, api_version) in cases {
        let (code, list) = get_as(&server, WIDGETS, accept).await;
        assert_eq!((code, &list["kind"]), (200, &json!(kind)), "{accept}");
        assert_eq!(list["apiVersion"], api_version);
    }
    for accept in ["application/json;as=Table;v=v9;g=meta.k8s.io", "application/yaml", "text/html"]
    {
        let (code, status) = get_as(&server, WIDGETS, accept).await;
        assert_eq!((code, &status["reason"]), (406, &json!("NotAcceptable")), "{accept}");
    }
    let single = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(get_as(&server, WIDGETS, single).await.0, 406);
    let (code, object) = get_as(&server, &format!("{WIDGETS}/one"), single).await;
    assert_eq!((code, &object["kind"]), (200, &json!("PartialObjectMetadata")));
    assert_eq!((&object["metadata"]["name"], object.get("spec")), (&json!("one"), None));
    // Errors have no other form.
    assert_eq!(get_as(&server, &format!("{WIDGETS}/none"), KUBECTL).await.1["kind"], "Status");
}

#[tokio::test]
async fn only_the_first_event_of_a_watch_has_columns() {
    let server = server();
    make(&server, "one").await;
    let mut watch = Lines::open_as(&server, &format!("{WIDGETS}?watch=true"), KUBECTL).await;
    let first = watch.next().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(first["object"]["columnDefinitions"].as_array().unwrap().len(), 2);

    let path = format!("{WIDGETS}/one");
    let (_, changed) = call(&server, Method::PATCH, &path, json!({ "spec": { "size": 2 } })).await;
    let second = watch.next().await.unwrap();
    assert_eq!(second["type"], "MODIFIED");
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
    assert_eq!(version_of(&second["object"]), version_of(&changed));
    let row = &second["object"]["rows"][0];
    assert_eq!(row["cells"][0], "one");
    assert_eq!(row["object"]["metadata"], changed["metadata"]);
}
