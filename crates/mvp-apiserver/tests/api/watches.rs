//! Watches: every change once, from any start.

use std::time::Duration;

use http::Method;
use mvp_apiserver::Storage;
use serde_json::{Value, json};

use crate::support::{Lines, WIDGETS, call, get, make, server, server_on, version_of, widget};

fn named(kind: &str, name: &str, version: u64) -> (String, String, u64) {
    (kind.to_owned(), name.to_owned(), version)
}

#[tokio::test]
async fn a_watch_starts_with_the_current_objects_and_has_every_change_once() {
    let server = server();
    let one = make(&server, "one").await;
    let mut watch = Lines::open(&server, &format!("{WIDGETS}?watch=true")).await;
    assert_eq!(watch.event().await, named("ADDED", "one", version_of(&one)));
    assert!(watch.is_idle());

    let two = make(&server, "two").await;
    let path = format!("{WIDGETS}/one");
    let change = json!({ "spec": { "size": 2 } });
    let (_, changed) = call(&server, Method::PATCH, &path, change).await;
    call(&server, Method::DELETE, &path, Value::Null).await;
    let latest = server.storage().resource_version();
    assert_eq!(watch.event().await, named("ADDED", "two", version_of(&two)));
    assert_eq!(watch.event().await, named("MODIFIED", "one", version_of(&changed)));
    assert_eq!(watch.event().await, named("DELETED", "one", latest));
    assert!(watch.is_idle());
}

#[tokio::test]
async fn a_watch_continues_from_a_list_or_another_watch() {
    let server = server();
    make(&server, "one").await;
    let (_, list) = get(&server, WIDGETS).await;
    let from = version_of(&list);
    let two = make(&server, "two").await;
    let three = make(&server, "three").await;

    let path = format!("{WIDGETS}?watch=1&resourceVersion={from}");
    let mut watch = Lines::open(&server, &path).await;
    assert_eq!(watch.event().await, named("ADDED", "two", version_of(&two)));
    drop(watch);
    let path = format!("{WIDGETS}?watch=1&resourceVersion={}", version_of(&two));
    let mut watch = Lines::open(&server, &path).await;
    assert_eq!(watch.event().await, named("ADDED", "three", version_of(&three)));
    assert!(watch.is_idle());
}

#[tokio::test]
async fn resource_version_zero_starts_with_the_current_objects() {
    let server = server();
    make(&server, "one").await;
    let path = "/apis/example.com/v1/widgets?watch=true&resourceVersion=0";
    let mut watch = Lines::open(&server, path).await;
    assert_eq!(watch.event().await.1, "one");
}

#[tokio::test]
async fn dropped_changes_are_expired() {
    let server = server_on(Storage::with_log_capacity(2));
    let from = version_of(&make(&server, "one").await);
    for name in ["two", "three", "four"] {
        make(&server, name).await;
    }
    let path = format!("{WIDGETS}?watch=true&resourceVersion={from}");
    let mut watch = Lines::open(&server, &path).await;
    let expected = json!({
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": format!("too old resource version: {from} ({})", from + 1),
            "reason": "Expired",
            "code": 410,
        },
    });
    assert_eq!(watch.next().await, Some(expected));
    assert_eq!(watch.next().await, None);

    // After the last dropped change, all later ones are known.
    let path = format!("{WIDGETS}?watch=true&resourceVersion={}", from + 1);
    let mut watch = Lines::open(&server, &path).await;
    assert_eq!(watch.event().await.1, "three");
    assert_eq!(watch.event().await.1, "four");
}

#[tokio::test]
async fn a_slow_watch_is_ended_and_affects_no_other() {
    let server = server_on(Storage::with_log_capacity(8));
    let (mut slow, mut quick) = (
        Lines::open(&server, &format!("{WIDGETS}?watch=true")).await,
        Lines::open(&server, &format!("{WIDGETS}?watch=true")).await,
    );
    for index in 0..50 {
        let name = format!("w{index}");
        make(&server, &name).await;
        assert_eq!(quick.event().await.1, name);
    }
    assert_eq!(slow.next().await.unwrap()["object"]["code"], 410);
    assert_eq!(slow.next().await, None);
    assert!(quick.is_idle());
}

#[tokio::test]
async fn changes_of_other_resources_expire_nothing() {
    let server = server_on(Storage::with_log_capacity(1));
    let from = version_of(&make(&server, "one").await);
    for index in 0..5 {
        let body = json!({ "metadata": { "name": format!("g{index}") } });
        call(&server, Method::POST, "/apis/example.com/v1/gears", body).await;
    }
    let path = format!("{WIDGETS}?watch=true&resourceVersion={from}");
    let mut watch = Lines::open(&server, &path).await;
    make(&server, "two").await;
    assert_eq!(watch.event().await.1, "two");
}

#[tokio::test]
async fn objects_are_added_and_deleted_as_they_match_the_selector() {
    let server = server();
    let path = format!("{WIDGETS}?watch=true&labelSelector=l%3Dx");
    let mut watch = Lines::open(&server, &path).await;
    let one = format!("{WIDGETS}/one");
    let label = |value: Value| json!({ "metadata": { "labels": { "l": value } } });
    make(&server, "one").await;
    for value in [json!("y"), json!("x")] {
        call(&server, Method::PATCH, &one, label(value)).await;
    }
    let added = server.storage().resource_version();
    call(&server, Method::PATCH, &one, json!({ "spec": { "size": 2 } })).await;
    call(&server, Method::PATCH, &one, label(Value::Null)).await;
    let gone = server.storage().resource_version();
    call(&server, Method::DELETE, &one, Value::Null).await;

    assert_eq!(watch.event().await, named("ADDED", "one", added));
    assert_eq!(watch.event().await, named("MODIFIED", "one", added + 1));
    assert_eq!(watch.event().await, named("DELETED", "one", gone));
    assert!(watch.is_idle());
}

#[tokio::test]
async fn one_object_or_one_namespace_can_be_watched() {
    let server = server();
    let watched = [
        format!("{WIDGETS}?watch=true&fieldSelector=metadata.name=two"),
        "/apis/example.com/v1/watch/namespaces/default/widgets/two".to_owned(),
        "/apis/example.com/v1/namespaces/other/widgets?watch=true".to_owned(),
    ];
    let mut watches = Vec::new();
    for path in &watched {
        watches.push(Lines::open(&server, path).await);
    }
    make(&server, "one").await;
    make(&server, "two").await;
    let mut body = widget("two");
    body["spec"]["size"] = json!(9);
    call(&server, Method::POST, "/apis/example.com/v1/namespaces/other/widgets", body).await;
    for (index, watch) in watches.iter_mut().enumerate() {
        let event = watch.next().await.unwrap();
        let expected = if index == 2 { "other" } else { "default" };
        assert_eq!(event["object"]["metadata"]["name"], "two");
        assert_eq!(event["object"]["metadata"]["namespace"], expected);
        assert!(watch.is_idle());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout_with_a_bookmark_if_requested() {
    let server = server();
    make(&server, "one").await;
    let latest = server.storage().resource_version();
    let path = format!("{WIDGETS}?watch=true&resourceVersion={latest}&timeoutSeconds=5");
    let mut watch = Lines::open(&server, &path).await;
    assert_eq!(watch.next().await, None);

    let path = format!("{path}&allowWatchBookmarks=true");
    let mut watch = Lines::open(&server, &path).await;
    let object = json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": { "resourceVersion": latest.to_string() },
    });
    assert_eq!(watch.next().await, Some(json!({ "type": "BOOKMARK", "object": object })));
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout_while_changes_continue() {
    let server = server();
    let path = format!("{WIDGETS}?watch=true&timeoutSeconds=5");
    let mut watch = Lines::open(&server, &path).await;
    make(&server, "one").await;
    assert_eq!(watch.event().await.1, "one");
    tokio::time::advance(Duration::from_secs(5)).await;
    make(&server, "two").await;
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_timeout_beyond_the_clock_is_none() {
    let server = server();
    let path = format!("{WIDGETS}?watch=true&timeoutSeconds={}", u64::MAX);
    let mut watch = Lines::open(&server, &path).await;
    make(&server, "one").await;
    assert_eq!(watch.event().await.1, "one");
}

#[tokio::test]
async fn a_streamed_list_ends_with_a_bookmark() {
    let server = server();
    make(&server, "one").await;
    let path = format!(
        "{WIDGETS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
         &resourceVersionMatch=NotOlderThan"
    );
    let mut watch = Lines::open(&server, &path).await;
    assert_eq!(watch.event().await.0, "ADDED");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let metadata = &bookmark["object"]["metadata"];
    assert_eq!(metadata["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    assert_eq!(version_of(&bookmark["object"]), server.storage().resource_version());

    let path =
        format!("{WIDGETS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    let mut watch = Lines::open(&server, &path).await;
    assert!(watch.is_idle());
    make(&server, "two").await;
    assert_eq!(watch.event().await.1, "two");
}

/// Many writers, many watches: each watch sees each change once and in order.
#[tokio::test]
async fn every_watch_sees_every_change_in_order() {
    const WRITERS: usize = 8;
    const EACH: usize = 100;
    let server = server();
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(Lines::open(&server, &format!("{WIDGETS}?watch=true")).await);
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let server = server.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for index in 0..EACH {
                    runtime.block_on(make(&server, &format!("w{writer}-{index}")));
                }
            })
        })
        .collect();
    for watch in &mut watches {
        let mut versions = Vec::new();
        while versions.len() < WRITERS * EACH {
            let (kind, _, version) = watch.event().await;
            assert_eq!(kind, "ADDED");
            versions.push(version);
        }
        assert!(versions.is_sorted_by(|one, next| one < next));
        assert!(watch.is_idle());
    }
    for writer in writers {
        writer.join().unwrap();
    }
}

#[tokio::test]
async fn watches_of_different_forms_show_one_change_each_in_its_own() {
    let server = server();
    make(&server, "one").await;
    let from = server.storage().resource_version();
    let watch = format!("?watch=1&resourceVersion={from}");
    let whole = "application/json";
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let labelled = format!("{WIDGETS}{watch}&labelSelector=a%3Db");
    let unlabelled = format!("{WIDGETS}{watch}&labelSelector=!a");
    let all = [
        (format!("{WIDGETS}{watch}"), whole, "MODIFIED", "example.com/v1", true),
        (format!("{WIDGETS}{watch}"), partial, "MODIFIED", "meta.k8s.io/v1", false),
        (format!("{beta}{watch}"), whole, "MODIFIED", "example.com/v1beta1", true),
        (labelled, whole, "ADDED", "example.com/v1", true),
        (unlabelled, whole, "DELETED", "example.com/v1", true),
        (format!("{WIDGETS}{watch}"), whole, "MODIFIED", "example.com/v1", true),
    ];
    let change = json!({ "metadata": { "labels": { "a": "b" } } });
    let (_, changed) = call(&server, Method::PATCH, &format!("{WIDGETS}/one"), change).await;
    // Each order, because the first one encodes for the others.
    for start in 0..all.len() {
        for (path, accept, kind, version, has_spec) in
            all.iter().cycle().skip(start).take(all.len())
        {
            let mut watch = Lines::open_as(&server, path, accept).await;
            let event = watch.next().await.unwrap();
            assert_eq!(
                (&event["type"], &event["object"]["apiVersion"]),
                (&json!(kind), &json!(version))
            );
            assert_eq!(version_of(&event["object"]), version_of(&changed));
            assert_eq!(event["object"]["spec"].is_object(), *has_spec, "{event}");
            // What leaves a selection is shown as it was in it.
            let label = &event["object"]["metadata"]["labels"]["a"];
            assert_eq!(label.is_string(), *kind != "DELETED", "{event}");
        }
    }
}
