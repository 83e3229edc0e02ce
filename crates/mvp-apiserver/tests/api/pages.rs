//! Lists in pages, and lists and watches at a revision.

use std::time::Duration;

use http::Method;
use mvp_apiserver::{ApiServer, Storage};
use serde_json::{Value, json};

use crate::support::{Lines, WIDGETS, call, get, make, names, server, server_on, version_of};

async fn server_with(count: usize) -> ApiServer {
    let server = server();
    for index in 0..count {
        make(&server, &format!("w{index}")).await;
    }
    server
}

fn token(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap()
}

#[tokio::test]
async fn pages_are_of_one_revision_while_objects_change() {
    let server = server_with(5).await;
    let (code, first) = get(&server, &format!("{WIDGETS}?limit=2")).await;
    assert_eq!((code.as_u16(), names(&first)), (200, vec!["w0", "w1"]));
    assert_eq!(first["metadata"]["remainingItemCount"], 3);

    call(&server, Method::DELETE, &format!("{WIDGETS}/w3"), Value::Null).await;
    make(&server, "w22").await;
    let change = json!({ "spec": { "size": 9 } });
    call(&server, Method::PATCH, &format!("{WIDGETS}/w4"), change).await;

    let path = format!("{WIDGETS}?limit=2&continue={}", token(&first));
    let (_, second) = get(&server, &path).await;
    assert_eq!(names(&second), ["w2", "w3"]);
    assert_eq!(version_of(&second), version_of(&first));
    assert_eq!(second["metadata"]["remainingItemCount"], 1);

    let path = format!("{WIDGETS}?limit=2&continue={}", token(&second));
    let (_, last) = get(&server, &path).await;
    assert_eq!(names(&last), ["w4"]);
    assert_eq!(last["items"][0]["spec"]["size"], 1);
    assert_eq!(last["metadata"], json!({ "resourceVersion": version_of(&first).to_string() }));
}

#[tokio::test]
async fn a_selector_leaves_the_remaining_count_unknown() {
    let server = server_with(3).await;
    let path = format!("{WIDGETS}?limit=1&fieldSelector=metadata.name!=w0");
    let (_, list) = get(&server, &path).await;
    assert_eq!(names(&list), ["w1"]);
    assert_eq!(list["metadata"].get("remainingItemCount"), None);
    let (_, rest) = get(&server, &format!("{path}&continue={}", token(&list))).await;
    assert_eq!(names(&rest), ["w2"]);
}

#[tokio::test]
async fn pages_go_through_all_namespaces_in_the_order_of_etcd() {
    let server = server();
    for namespace in ["a", "a-b", "b"] {
        let path = format!("/apis/example.com/v1/namespaces/{namespace}/widgets");
        let body = json!({ "metadata": { "name": format!("of-{namespace}") } });
        assert_eq!(call(&server, Method::POST, &path, body).await.0, 201);
    }
    let all = "/apis/example.com/v1/widgets";
    let mut seen = Vec::new();
    let mut path = format!("{all}?limit=1");
    loop {
        let (_, list) = get(&server, &path).await;
        seen.extend(names(&list).into_iter().map(str::to_owned));
        match list["metadata"]["continue"].as_str() {
            Some(token) => path = format!("{all}?limit=1&continue={token}"),
            None => break,
        }
    }
    assert_eq!(seen, ["of-a-b", "of-a", "of-b"]);
}

#[tokio::test]
async fn a_page_after_a_compaction_is_gone_with_a_token_for_the_rest() {
    let server = server_with(4).await;
    let (_, first) = get(&server, &format!("{WIDGETS}?limit=2")).await;
    make(&server, "w9").await;
    server.storage().compact(server.storage().resource_version());

    let path = format!("{WIDGETS}?limit=2&continue={}", token(&first));
    let (code, status) = get(&server, &path).await;
    assert_eq!((code.as_u16(), &status["reason"]), (410, &json!("Expired")));
    assert_eq!(
        status["message"],
        "The provided continue parameter is too old to display a consistent list result. You can \
         start a new list without the continue parameter, or use the continue token in this \
         response to retrieve the remainder of the results. Continuing with the provided token \
         results in an inconsistent list - objects that were created, modified, or deleted between \
         the time the first chunk was returned and now may show up in the list."
    );
    let (code, rest) = get(&server, &format!("{WIDGETS}?continue={}", token(&status))).await;
    assert_eq!((code.as_u16(), names(&rest)), (200, vec!["w2", "w3", "w9"]));
    assert_eq!(version_of(&rest), server.storage().resource_version());
}

#[tokio::test]
async fn lists_honour_the_resource_version() {
    let server = server_with(2).await;
    let then = server.storage().resource_version();
    make(&server, "w2").await;
    let now = server.storage().resource_version();
    let cases = [
        (format!("resourceVersion={then}&resourceVersionMatch=Exact"), 2, then),
        (format!("resourceVersion={then}&limit=5"), 2, then),
        (format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan"), 3, now),
        (format!("resourceVersion={then}"), 3, now),
        ("resourceVersion=0".to_owned(), 3, now),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), 3, now),
    ];
    for (query, count, version) in cases {
        let (code, list) = get(&server, &format!("{WIDGETS}?{query}")).await;
        assert_eq!((code.as_u16(), names(&list).len()), (200, count), "{query}");
        assert_eq!(version_of(&list), version, "{query}");
    }

    let future = format!("resourceVersion={}", now + 7);
    let exact = format!("{future}&resourceVersionMatch=Exact");
    for path in [format!("{WIDGETS}?{future}"), format!("{WIDGETS}?{exact}")] {
        let (code, status) = get(&server, &path).await;
        let text = format!("Timeout: Too large resource version: {}, current: {now}", now + 7);
        assert_eq!((code.as_u16(), &status["message"]), (504, &json!(text)));
        let cause =
            json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        assert_eq!(status["details"], json!({ "causes": [cause], "retryAfterSeconds": 1 }));
    }

    server.storage().compact(now);
    let path = format!("{WIDGETS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let (code, status) = get(&server, &path).await;
    assert_eq!((code.as_u16(), &status["reason"]), (410, &json!("Expired")));
    assert_eq!(status["message"], "The resourceVersion for the provided list is too old.");
}

#[tokio::test]
async fn options_that_exclude_each_other_are_invalid() {
    let server = server_with(2).await;
    let (_, first) = get(&server, &format!("{WIDGETS}?limit=1")).await;
    let token = token(&first);
    let cases = [
        (
            "resourceVersionMatch=Exact".to_owned(),
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
             resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Sometimes&resourceVersion=1".to_owned(),
            "resourceVersionMatch: Unsupported value: \"Sometimes\": supported values: \"Exact\", \
             \"NotOlderThan\", \"\"",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0".to_owned(),
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for \
             resourceVersion \"0\"",
        ),
        (
            "sendInitialEvents=true".to_owned(),
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            "watch=true&sendInitialEvents=true".to_owned(),
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
             resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=true&resourceVersionMatch=Exact".to_owned(),
            "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
             sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": \
             supported values: \"NotOlderThan\"]",
        ),
    ];
    for (query, text) in cases {
        let (code, status) = get(&server, &format!("{WIDGETS}?{query}")).await;
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {text}");
        assert_eq!((code.as_u16(), &status["message"]), (422, &json!(message)), "{query}");
        assert_eq!(status["details"]["kind"], "ListOptions");
    }
    let empty_start = data_encoding(r#"{"v":"meta.k8s.io/v1","rv":7,"start":""}"#);
    for query in [
        "continue=%20".to_owned(),
        "continue=abc".to_owned(),
        format!("continue={empty_start}"),
        format!("continue={token}&resourceVersion=5"),
    ] {
        let (code, status) = get(&server, &format!("{WIDGETS}?{query}")).await;
        assert_eq!((code.as_u16(), &status["reason"]), (400, &json!("BadRequest")), "{query}");
    }
}

/// Base64 without padding, for URLs.
fn data_encoding(text: &str) -> String {
    data_encoding::BASE64URL_NOPAD.encode(text.as_bytes())
}

#[tokio::test]
async fn a_compaction_ends_watches_from_before_and_no_others() {
    let server = server_with(1).await;
    let from = server.storage().resource_version();
    let mut idle =
        Lines::open(&server, &format!("{WIDGETS}?watch=true&resourceVersion={from}")).await;
    assert!(idle.is_idle());
    for index in 0..3 {
        let body = json!({ "metadata": { "name": format!("g{index}") } });
        call(&server, Method::POST, "/apis/example.com/v1/gears", body).await;
    }
    let latest = server.storage().resource_version();
    server.storage().compact(latest);

    // As in etcd, a new watch from before is refused even if its objects did not change.
    let mut late =
        Lines::open(&server, &format!("{WIDGETS}?watch=true&resourceVersion={from}")).await;
    let error = late.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(late.next().await, None);

    // An open watch that has seen everything goes on.
    make(&server, "two").await;
    assert_eq!(idle.event().await.1, "two");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_with_the_latest_revision() {
    let server = server_with(1).await;
    let path = format!("{WIDGETS}?watch=true&allowWatchBookmarks=true");
    let mut watch = Lines::open(&server, &path).await;
    assert_eq!(watch.event().await.0, "ADDED");
    let body = json!({ "metadata": { "name": "g" } });
    call(&server, Method::POST, "/apis/example.com/v1/gears", body).await;
    for _ in 0..2 {
        // The reader waits at most 30 seconds.
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(watch.is_idle());
        let before = tokio::time::Instant::now();
        let bookmark = watch.next().await.unwrap();
        assert_eq!(bookmark["type"], "BOOKMARK");
        assert_eq!(version_of(&bookmark["object"]), server.storage().resource_version());
        assert_eq!(before.elapsed(), Duration::from_secs(1));
    }

    let path = format!("{WIDGETS}?watch=true&timeoutSeconds=600");
    let mut without = Lines::open(&server, &path).await;
    assert_eq!(without.event().await.0, "ADDED");
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(without.next().await, None);
}

#[tokio::test]
async fn a_streamed_list_must_not_be_older_than_requested() {
    let server = server_on(Storage::new());
    let options = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let (code, _) = get(&server, &format!("{WIDGETS}?{options}&resourceVersion=99")).await;
    assert_eq!(code, 504);
}
