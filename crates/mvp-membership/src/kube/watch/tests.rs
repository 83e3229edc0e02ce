//! A scripted server, on a paused clock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use mvp_proxy::control::AskError;
use serde_json::json;
use tokio::time::sleep;

use super::*;

#[derive(Deserialize)]
struct Thing {
    metadata: Metadata,
}

impl Object for Thing {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// What the server does with a request.
enum Does {
    /// Answers.
    Says(u16, String),
    /// Answers with these lines, and then ends like this.
    Streams(Vec<String>, End),
    /// Fails without a response.
    Fails,
    /// Never responds.
    Hangs,
}

enum End {
    Well,
    Broken,
    Silent,
}

#[derive(Clone, Default)]
struct Script {
    steps: Arc<Mutex<VecDeque<Does>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Ask for Script {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        self.asked.lock().unwrap().push(request.uri().to_string());
        let step = self.steps.lock().unwrap().pop_front();
        let (status, body) = match step {
            None | Some(Does::Hangs) => std::future::pending().await,
            Some(Does::Fails) => return Err(AskError::new("connection refused")),
            Some(Does::Says(status, text)) => (status, Body::from(bytes::Bytes::from(text))),
            Some(Does::Streams(lines, end)) => {
                let lines = lines.into_iter().map(|line| Ok(Frame::data(bytes::Bytes::from(line))));
                let frames: Vec<Result<_, std::io::Error>> = lines.collect();
                let rest = stream::once(async move {
                    match end {
                        End::Silent => std::future::pending().await,
                        End::Broken => Some(Err(std::io::Error::other("reset"))),
                        End::Well => None,
                    }
                });
                use futures_util::StreamExt;
                let rest = rest.filter_map(std::future::ready);
                (200, Body::new(StreamBody::new(stream::iter(frames).chain(Box::pin(rest)))))
            }
        };
        Ok(Response::builder().status(status).body(body).unwrap())
    }
}

fn list(version: &str, names: &[&str]) -> Does {
    let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    let list = json!({"metadata": {"resourceVersion": version}, "items": items});
    Does::Says(200, list.to_string())
}

fn event(kind: &str, name: &str, version: &str) -> String {
    let object = json!({"metadata": {"name": name, "resourceVersion": version}});
    json!({"type": kind, "object": object}).to_string() + "\n"
}

/// Runs the script to its end. Returns the changes and the paths that were requested.
async fn follow_script(steps: impl IntoIterator<Item = Does>) -> (Vec<String>, Vec<String>) {
    let script = Script::default();
    script.steps.lock().unwrap().extend(steps);
    let changes = Arc::new(Mutex::new(Vec::new()));
    let (ask, tells) = (script.clone(), Arc::clone(&changes));
    let selector = ("labelSelector", "a=b".to_owned());
    let collection = Collection { path: "/things".to_owned(), selector };
    let watching = tokio::spawn(watch(ask, collection, move |change: Change<Thing>| {
        let shown = match change {
            Change::Listed(all, _) => {
                let names: Vec<_> = all.iter().map(|thing| thing.metadata.name.as_str()).collect();
                format!("all {}", names.join(","))
            }
            Change::Applied(thing) => format!("+{}", thing.metadata.name),
            Change::Deleted(thing) => format!("-{}", thing.metadata.name),
            Change::Connected => "connected".to_owned(),
            Change::Disconnected(error) => format!("disconnected: {error}"),
        };
        tells.lock().unwrap().push(shown);
    }));
    while !script.steps.lock().unwrap().is_empty() {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_millis(100)).await;
    watching.abort();
    let asked = script.asked.lock().unwrap().clone();
    let changes = changes.lock().unwrap().clone();
    (changes, asked)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_resumed_where_it_ended() {
    // An event in two pieces, and one that is cut off.
    let (begins, ends) = (
        "{\"type\":\"DELE",
        "TED\",\"object\":{\"metadata\":{\"name\":\"b\",\"resourceVersion\":\"12\"}}}\n",
    );
    let (changes, asked) = follow_script([
        list("10", &["a"]),
        Does::Streams(vec![event("ADDED", "b", "11")], End::Well),
        Does::Streams(vec![begins.to_owned(), ends.to_owned(), begins.to_owned()], End::Broken),
        Does::Streams(vec![event("BOOKMARK", "", "20")], End::Well),
        Does::Streams(vec![event("NEWS", "c", "21")], End::Well),
        Does::Hangs,
    ])
    .await;
    assert_eq!(changes, ["all a", "connected", "+b", "connected", "-b", "connected", "connected"]);
    let from: Vec<_> = asked.iter().map(|path| path.rsplit('=').next().unwrap()).collect();
    assert_eq!(from, ["500", "10", "11", "12", "20", "21"]);
    assert!(asked.iter().all(|path| path.starts_with("/things?labelSelector=a%3Db&")));
}

#[tokio::test(start_paused = true)]
async fn lists_are_read_in_pages_and_an_invalid_object_hides_no_other() {
    let page = |version: &str, rest: Option<&str>, items: serde_json::Value| {
        let metadata = json!({"resourceVersion": version, "continue": rest.unwrap_or_default()});
        Does::Says(200, json!({"metadata": metadata, "items": items}).to_string())
    };
    let named = |name: &str| json!({"metadata": {"name": name}});
    let odd =
        json!({"type": "ADDED", "object": {"metadata": {"name": ["odd"]}}}).to_string() + "\n";
    let (changes, asked) = follow_script([
        page("10", Some("a/b="), json!([named("a"), {"metadata": 3}, named("b")])),
        page("10", None, json!([named("c"), null, {"metadata": {"annotations": {"x": 1}}}])),
        Does::Streams(vec![odd, event("ADDED", "d", "11")], End::Silent),
    ])
    .await;
    assert_eq!(changes, ["all a,b,c", "connected", "+d"]);
    assert_eq!(asked.get(1).unwrap(), "/things?labelSelector=a%3Db&limit=500&continue=a%2Fb%3D");
}

#[tokio::test(start_paused = true)]
async fn a_page_over_the_size_limit_is_read_in_halves() {
    let large = json!({"metadata": {"x": "x".repeat(33 << 20)}, "items": []}).to_string();
    let steps = [
        Does::Says(200, large.clone()),
        Does::Says(200, large),
        list("10", &["a"]),
        Does::Streams(vec![], End::Silent),
    ];
    let (changes, asked) = follow_script(steps).await;
    assert_eq!(changes, ["all a", "connected"]);
    let limits: Vec<_> =
        asked.iter().take(3).map(|path| path.rsplit('=').next().unwrap()).collect();
    assert_eq!(limits, ["500", "250", "125"]);
}

#[tokio::test(start_paused = true)]
async fn after_410_gone_the_collection_is_listed_again() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
    let (changes, _) = follow_script([
        list("10", &["a", "b"]),
        Does::Streams(vec![format!("{gone}\n")], End::Well),
        list("90", &["b"]),
        Does::Says(410, "{}".to_owned()),
        list("95", &["c"]),
        Does::Hangs,
    ])
    .await;
    assert_eq!(changes, ["all a,b", "connected", "all b", "all c"], "410 Gone is no disconnect");
}

#[tokio::test(start_paused = true)]
async fn any_other_error_is_passed_on_and_retried() {
    let status = json!({"kind": "Status", "message": "not you"}).to_string();
    let broken = r#"{"type":"ERROR","object":{"code":500,"message":"etcd"}}"#;
    let (changes, _) = follow_script([
        Does::Fails,
        Does::Says(403, status),
        Does::Says(200, "<html>".to_owned()),
        Does::Hangs,
        list("1", &[]),
        Does::Fails,
        list("2", &["a"]),
        Does::Streams(vec![format!("{broken}\n")], End::Well),
        list("3", &["a"]),
        Does::Streams(vec!["nonsense\n".to_owned()], End::Well),
        list("4", &["b"]),
        Does::Hangs,
        list("5", &["c"]),
        // The server does not end the watch.
        Does::Streams(vec![event("ADDED", "d", "6")], End::Silent),
        Does::Streams(vec![event("ADDED", "e", "7")], End::Silent),
    ])
    .await;
    let expected = [
        "disconnected: connection refused",
        "disconnected: 403: not you",
        "disconnected: expected value at line 1 column 1",
        "disconnected: timed out after 10 s",
        "all ",
        "disconnected: connection refused",
        "all a",
        "connected",
        "disconnected: 500: etcd",
        "all a",
        "connected",
        "disconnected: invalid event: expected ident at line 1 column 2",
        "all b",
        "disconnected: the watch timed out",
        "all c",
        "connected",
        "+d",
        "connected",
        "+e",
    ];
    assert_eq!(changes, expected);
}
