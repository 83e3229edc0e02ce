//! Servers of one cluster with one storage, and their callers.

use std::thread;

use http::Method;
use http_body_util::Full;
use mvp_apiserver::{ApiServer, Caller, GroupSpec, ResourceSpec, ServerSpec, Storage};
use serde_json::{Value, json};

use crate::support::{Lines, WIDGETS, call, get, make, read, request, send, server, server_on};

/// A newer server of the same cluster: one more version, and one more group.
fn newer(storage: Storage) -> ApiServer {
    let widgets = || ResourceSpec::namespaced("widgets", "Widget").with_status();
    let spec = ServerSpec {
        id: "b".to_owned(),
        git_version: "v1.37.0".to_owned(),
        groups: vec![
            GroupSpec::new("example.com").version("v2", [widgets()]).version("v1", [widgets()]),
            GroupSpec::new("new.example.com")
                .version("v1", [ResourceSpec::namespaced("widgets", "Widget")]),
        ],
        ..ServerSpec::default()
    };
    ApiServer::new(spec, storage)
}

#[tokio::test]
async fn servers_on_one_storage_see_the_same_objects() {
    let storage = Storage::new();
    let (old, new) = (server_on(storage.clone()), newer(storage));
    let path = "/apis/example.com/v2/namespaces/default/widgets";
    let mut watch = Lines::open(&new, &format!("{path}?watch=true")).await;

    let made = make(&old, "one").await;
    let (_, seen) = get(&new, &format!("{path}/one")).await;
    assert_eq!(seen["apiVersion"], "example.com/v2");
    assert_eq!(seen["metadata"], made["metadata"]);
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]), (&json!("ADDED"), &seen));

    let change = json!({ "apiVersion": "example.com/v2", "spec": { "size": 2 } });
    call(&new, Method::PATCH, &format!("{path}/one"), change).await;
    let (_, seen) = get(&old, "/apis/example.com/v1beta1/namespaces/default/widgets").await;
    assert_eq!(seen["items"][0]["spec"]["size"], 2);
    assert_eq!(seen["items"][0]["apiVersion"], "example.com/v1beta1");

    // A resource of the same name in another group is another resource.
    let other = "/apis/new.example.com/v1/namespaces/default/widgets";
    assert_eq!(get(&new, other).await.1["items"], json!([]));
    assert_eq!(old.processed(&Method::PATCH) + new.processed(&Method::POST), 0);
}

/// Many concurrent writers, each of which reads, adds one and updates: no update is lost.
#[test]
fn no_update_is_lost() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 50;
    let storage = Storage::new();
    let path = format!("{WIDGETS}/one");
    let start = tokio::runtime::Builder::new_current_thread().build().unwrap();
    start.block_on(make(&server_on(storage.clone()), "one"));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (storage, path) = (storage.clone(), &path);
            scope.spawn(move || {
                let server = match writer % 2 {
                    0 => server_on(storage),
                    _ => newer(storage),
                };
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    for _ in 0..EACH {
                        add_one(&server, path).await;
                    }
                });
            });
        }
    });
    let (_, object) = start.block_on(get(&server_on(storage), &path));
    assert_eq!(object["spec"]["size"], 1 + WRITERS * EACH);
}

async fn add_one(server: &ApiServer, path: &str) {
    loop {
        let (_, mut object) = get(server, path).await;
        object["spec"]["size"] = json!(object["spec"]["size"].as_u64().unwrap() + 1);
        let (code, answer) = call(server, Method::PUT, path, object).await;
        match code.as_u16() {
            200 => return,
            409 => {}
            code => panic!("{code}: {answer}"),
        }
    }
}

async fn who_am_i(server: &ApiServer, caller: Option<Caller>) -> Value {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let mut request = request(Method::POST, path).body(Full::from("{}")).unwrap();
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    let (code, review) = read(send(server, request).await).await;
    assert_eq!(code, 201);
    assert_eq!(review["kind"], "SelfSubjectReview");
    review["status"]["userInfo"].clone()
}

#[tokio::test]
async fn a_self_subject_review_returns_the_caller() {
    let server = server();
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    let alice = Caller { name: "alice".to_owned(), groups: groups.clone() };
    let expected = json!({ "username": "alice", "groups": groups });
    assert_eq!(who_am_i(&server, Some(alice)).await, expected);
    let anonymous = json!({ "username": "system:anonymous", "groups": ["system:unauthenticated"] });
    assert_eq!(who_am_i(&server, None).await, anonymous);
    assert_eq!(server.storage().resource_version(), 1);
}
