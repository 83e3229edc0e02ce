//! Objects from creation to deletion.

use std::collections::HashSet;

use http::Method;
use serde_json::{Value, json};

use crate::support::{WIDGETS, call, get, make, names, server, version_of, widget};

#[tokio::test]
async fn an_object_is_created_read_updated_and_deleted() {
    let server = server();
    let path = format!("{WIDGETS}/one");

    let (code, made) = call(&server, Method::POST, WIDGETS, widget("one")).await;
    assert_eq!(code, 201);
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("Widget"), &json!("example.com/v1")));
    assert_eq!(made["metadata"]["namespace"], "default");
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert_eq!(made["metadata"]["creationTimestamp"].as_str().unwrap().len(), 20);
    assert_eq!(get(&server, &path).await, (200.try_into().unwrap(), made.clone()));

    let mut wanted = made.clone();
    wanted["spec"]["size"] = json!(2);
    wanted["metadata"]["uid"] = Value::Null;
    let (code, updated) = call(&server, Method::PUT, &path, wanted).await;
    assert_eq!((code.as_u16(), &updated["spec"]["size"]), (200, &json!(2)));
    assert_eq!(updated["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(updated["metadata"]["generation"], 2);
    assert!(version_of(&updated) > version_of(&made));

    let (code, status) = call(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(code, 200);
    let expected = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": "one",
            "group": "example.com",
            "kind": "widgets",
            "uid": made["metadata"]["uid"],
        },
    });
    assert_eq!(status, expected);
    assert_eq!(get(&server, &path).await.0, 404);
}

#[tokio::test]
async fn names_are_generated_and_differ() {
    let server = server();
    let mut seen = HashSet::new();
    for _ in 0..20 {
        let body = json!({ "metadata": { "generateName": "some-" } });
        let (code, made) = call(&server, Method::POST, WIDGETS, body).await;
        assert_eq!(code, 201);
        let name = made["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("some-") && name.len() == 10, "{name}");
        assert!(seen.insert(name.to_owned()));
    }
}

#[tokio::test]
async fn lists_are_filtered_by_namespace_label_and_field() {
    let server = server();
    let cases = [("default", "a", "x"), ("default", "b", "y"), ("other", "a", "x")];
    for (namespace, name, label) in cases {
        let path = format!("/apis/example.com/v1/namespaces/{namespace}/widgets");
        let body = json!({ "metadata": { "name": name, "labels": { "l": label } } });
        assert_eq!(call(&server, Method::POST, &path, body).await.0, 201);
    }
    let all = "/apis/example.com/v1/widgets";
    let expectations = [
        (all.to_owned(), vec!["a", "b", "a"]),
        (WIDGETS.to_owned(), vec!["a", "b"]),
        (format!("{all}?labelSelector=l%3Dx"), vec!["a", "a"]),
        (format!("{all}?labelSelector=l!=x"), vec!["b"]),
        (format!("{all}?labelSelector=l,l=y"), vec!["b"]),
        (format!("{all}?labelSelector=!l"), vec![]),
        (format!("{all}?fieldSelector=metadata.name%3Da"), vec!["a", "a"]),
        (format!("{all}?fieldSelector=metadata.namespace=other"), vec!["a"]),
        (format!("{WIDGETS}?fieldSelector=metadata.name!=a"), vec!["b"]),
        (format!("{WIDGETS}?labelSelector=l=x&fieldSelector=metadata.name=b"), vec![]),
    ];
    for (path, expected) in expectations {
        let (code, list) = get(&server, &path).await;
        assert_eq!((code.as_u16(), names(&list)), (200, expected), "{path}");
        assert_eq!(list["kind"], "WidgetList");
        assert_eq!(version_of(&list), server.storage().resource_version());
    }
}

#[tokio::test]
async fn deletecollection_honours_selectors() {
    let server = server();
    for name in ["a", "b", "c"] {
        make(&server, name).await;
    }
    let path = format!("{WIDGETS}?fieldSelector=metadata.name!=b");
    let (code, deleted) = call(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!((code.as_u16(), names(&deleted)), (200, vec!["a", "c"]));
    assert_eq!(names(&get(&server, WIDGETS).await.1), ["b"]);
}

#[tokio::test]
async fn status_is_written_separately() {
    let server = server();
    let mut body = widget("one");
    body["status"] = json!({ "ready": true });
    let (_, made) = call(&server, Method::POST, WIDGETS, body.clone()).await;
    assert_eq!(made.get("status"), None);

    let path = format!("{WIDGETS}/one/status");
    body["spec"] = json!({ "size": 9 });
    let (code, updated) = call(&server, Method::PUT, &path, body).await;
    assert_eq!((code.as_u16(), &updated["status"]), (200, &json!({ "ready": true })));
    assert_eq!(updated["spec"], json!({ "size": 1 }));
    assert_eq!(updated["metadata"]["generation"], 1);
    assert_eq!(get(&server, &path).await.1, updated);

    let (_, replaced) = call(&server, Method::PUT, &format!("{WIDGETS}/one"), widget("one")).await;
    assert_eq!(replaced["status"], json!({ "ready": true }));

    let patch = json!({ "status": { "ready": null }, "spec": { "size": 7 } });
    let (code, patched) = call(&server, Method::PATCH, &path, patch).await;
    assert_eq!((code.as_u16(), &patched["status"]), (200, &json!({})));
    assert_eq!(patched["spec"], json!({ "size": 1 }));
}

#[tokio::test]
async fn a_stale_update_is_a_conflict_and_an_equal_update_is_no_change() {
    let server = server();
    let path = format!("{WIDGETS}/one");
    let first = make(&server, "one").await;
    let mut second = first.clone();
    second["spec"]["size"] = json!(2);
    let (_, second) = call(&server, Method::PUT, &path, second).await;

    let mut stale = first.clone();
    stale["spec"]["size"] = json!(3);
    let (code, status) = call(&server, Method::PUT, &path, stale).await;
    assert_eq!((code.as_u16(), &status["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on widgets.example.com \"one\": the object has been \
         modified; please apply your changes to the latest version and try again"
    );

    let (code, same) = call(&server, Method::PUT, &path, second.clone()).await;
    assert_eq!((code.as_u16(), same), (200, second));
}

#[tokio::test]
async fn a_deletion_may_have_preconditions() {
    let server = server();
    let made = make(&server, "one").await;
    let path = format!("{WIDGETS}/one");
    for wrong in [json!({ "uid": "another" }), json!({ "resourceVersion": "1" })] {
        let body = json!({ "kind": "DeleteOptions", "preconditions": wrong });
        let (code, status) = call(&server, Method::DELETE, &path, body).await;
        assert_eq!((code.as_u16(), &status["reason"]), (409, &json!("Conflict")));
    }
    let body = json!({ "preconditions": { "uid": made["metadata"]["uid"] } });
    assert_eq!(call(&server, Method::DELETE, &path, body).await.0, 200);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = server();
    let before = server.storage().resource_version();
    let path = format!("{WIDGETS}?dryRun=All");
    assert_eq!(call(&server, Method::POST, &path, widget("one")).await.0, 201);
    assert_eq!(get(&server, &format!("{WIDGETS}/one")).await.0, 404);
    assert_eq!(server.storage().resource_version(), before);

    make(&server, "one").await;
    let path = format!("{WIDGETS}/one?dryRun=All");
    assert_eq!(call(&server, Method::DELETE, &path, Value::Null).await.0, 200);
    let patch = json!({ "spec": { "size": 5 } });
    assert_eq!(call(&server, Method::PATCH, &path, patch).await.1["spec"]["size"], 5);
    assert_eq!(get(&server, &format!("{WIDGETS}/one")).await.1["spec"]["size"], 1);
}

#[tokio::test]
async fn namespaces_are_objects_like_others() {
    let server = server();
    let body = json!({ "metadata": { "name": "team" } });
    let (code, made) = call(&server, Method::POST, "/api/v1/namespaces", body).await;
    assert_eq!((code.as_u16(), made["metadata"].get("namespace")), (201, None));
    assert_eq!(get(&server, "/api/v1/namespaces/team").await.1, made);
    assert_eq!(get(&server, "/api/v1/namespaces/team/status").await.1, made);
    assert_eq!(names(&get(&server, "/api/v1/namespaces").await.1), ["team"]);
    let (code, list) = get(&server, "/api/v1/namespaces/team/configmaps").await;
    assert_eq!((code.as_u16(), names(&list).len()), (200, 0));
}

#[tokio::test]
async fn processed_requests_are_counted_and_unrouted_ones_are_not() {
    let server = server();
    make(&server, "one").await;
    call(&server, Method::POST, WIDGETS, widget("one")).await;
    get(&server, WIDGETS).await;
    assert_eq!(server.processed(&Method::POST), 2);
    assert_eq!(server.processed(&Method::GET), 1);
    assert_eq!(server.processed(&Method::DELETE), 0);

    call(&server, Method::POST, "/apis/example.com/v2/gears", json!({})).await;
    call(&server, Method::POST, &format!("{WIDGETS}/one"), json!({})).await;
    call(&server, Method::POST, WIDGETS, json!("x".repeat(4 << 20))).await;
    assert_eq!(server.processed(&Method::POST), 2);
}
