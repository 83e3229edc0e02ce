//! Log lines of requests: one for each proxied or refused request, none for local ones.

use std::io::{BufRead, BufReader, PipeReader};

use http::{Method, StatusCode};
use http_body_util::Full;
use mvp_apiserver::Storage;
use serde_json::Value;
use testkit::process::Signal;

use crate::cluster::{CONFIG_MAPS, Cluster, WIDGETS, any, api_server, assert_refusal, serve};
use crate::signals::ends;
use crate::support::client::Client;
use crate::support::process::{Gateway, flags, free_address};
use crate::support::{eventually, soon};

#[tokio::test]
async fn only_proxied_and_refused_requests_are_logged() {
    let cluster = Cluster::start().await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    for path in [CONFIG_MAPS, "/version", "/apis"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
    }
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    drop(cluster.a.gateway);
    let (code, status) = client.call(Method::GET, WIDGETS, Value::Null).await;
    assert_refusal(code, &status);

    let lines = logged(b, |lines| lines.len() >= 2).await;
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert_eq!(summary(&lines[0]), ("widgets.v1.example.com", "peers", "a", 200));
    assert_eq!(summary(&lines[1]), ("widgets.v1.example.com", "refuse", "a", 503));
    assert!(lines.iter().all(|line| line["milliseconds"].is_number()), "{lines:#?}");
}

#[tokio::test]
async fn local_requests_are_logged_on_demand() {
    let cluster = Cluster::with(&["--log-local-requests".to_owned()]).await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
    let is_local = |line: &&Value| line["path"] == CONFIG_MAPS;
    let lines = logged(b, |lines| lines.iter().any(|line| is_local(&line))).await;
    let local = lines.iter().filter(is_local).collect::<Vec<_>>();
    assert_eq!(local.len(), 1, "{lines:#?}");
    assert_eq!(summary(local[0]), ("configmaps.v1", "local", "b", 200));
}

#[tokio::test]
async fn request_lines_have_the_audit_id_the_user_and_no_secret() {
    let cluster = Cluster::start().await;
    let b = &cluster.b.gateway;
    let (user, known, unknown) = (
        Client::user(b.address).await,
        Client::token(b.address, "good").await,
        Client::token(b.address, "top-secret").await,
    );
    for (client, code) in [(&user, 200), (&known, 200), (&unknown, 401)] {
        let request = client
            .request(Method::GET, &format!("{WIDGETS}?labelSelector=classified%3Dvalue"))
            .header("audit-id", format!("audit-{code}"));
        let response = client.send(request.body(Full::default()).unwrap()).await;
        assert_eq!(response.status().as_u16(), code);
    }
    let lines = logged(b, |lines| lines.len() >= 3).await;
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let ids: Vec<String> = lines.iter().map(|line| text(line, "audit_id")).collect();
    assert_eq!(ids, ["audit-200", "audit-200", "audit-401"], "{lines:#?}");
    assert_eq!(text(&lines[0], "user"), "alice", "{lines:#?}");
    let sources: Vec<String> = lines.iter().map(|line| text(line, "user_source")).collect();
    assert_eq!(sources, ["authenticated", "token-hash", "token-hash"], "{lines:#?}");
    assert_ne!(lines[1]["user"], lines[2]["user"], "{lines:#?}");
    for secret in ["top-secret", "good", "classified"] {
        assert!(!b.log().contains(secret), "{secret}:\n{}", b.log());
    }
}

#[tokio::test]
async fn malformed_requests_are_logged_at_debug_with_the_client() {
    let cluster = Cluster::with(&["--log-level=info,mvp_proxy::door=debug".to_owned()]).await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    assert_eq!(client.open("/a%zz").await.status(), StatusCode::BAD_REQUEST);
    let line = eventually("the line is written", async || {
        let log = b.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["message"] == "request refused").ok_or(log)
    })
    .await;
    assert_eq!((&line["level"], &line["code"]), (&"DEBUG".into(), &400.into()), "{line}");
    assert!(line["client"].as_str().unwrap().starts_with("127."), "{line}");
    assert_eq!(line["reason"], "the path has an invalid percent escape", "{line}");
}

#[tokio::test]
async fn text_lines_are_one_line_each() {
    let flags = ["--log-format=text", "--log-local-requests"].map(str::to_owned);
    let cluster = Cluster::with(&flags).await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    // A client chooses the path, and must not forge log lines with it.
    let forged = format!("{WIDGETS}%0Aforged");
    let response = client.open(&forged).await;
    assert_ne!(response.status(), StatusCode::OK);
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    let log = eventually("the lines are written", async || match b.log() {
        log if log.contains("what=widgets.v1.example.com")
            && log.contains("what=widgets\\nforged")
            && log.ends_with('\n') =>
        {
            Ok(log)
        }
        log => Err(log),
    })
    .await;
    assert!(log.lines().all(|line| line.starts_with("20")), "a line has no time:\n{log}");
    let proxied = log.lines().filter(|line| line.contains("what=widgets.v1.example.com"));
    assert_eq!(proxied.count(), 1, "{log}");
}

/// A gateway with debug logs to a pipe that nobody reads. Every request is answered while the log
/// overflows.
async fn overflowing() -> (Gateway, PipeReader) {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let (address, admin) = (free_address(), free_address());
    let more = ["--log-level=trace".to_owned(), "--log-local-requests".to_owned()];
    let flags = flags(address, admin, "b", server.address, &more);
    let (reader, writer) = std::io::pipe().unwrap();
    let gateway = soon(Gateway::with_stderr(address, admin, &flags, writer).ready()).await;
    let client = Client::user(gateway.address).await;
    eventually("lines are dropped", async || {
        for _ in 0..100 {
            assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
        }
        assert_eq!(soon(gateway.page("/livez")).await, "ok");
        match dropped(&gateway).await {
            0 => Err("none yet"),
            _ => Ok(()),
        }
    })
    .await;
    (gateway, reader)
}

async fn dropped(gateway: &Gateway) -> u64 {
    let metrics = soon(gateway.page("/metrics")).await;
    let name = "mvp_log_lines_dropped_total ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}in\n{metrics}")).parse().unwrap()
}

#[tokio::test]
async fn an_unread_log_pipe_blocks_neither_requests_nor_shutdown() {
    let (mut gateway, _unread) = overflowing().await;
    gateway.signal(Signal::TERM);
    assert_eq!(ends(&mut gateway).await, Some(0));
}

#[tokio::test]
async fn dropped_log_lines_are_reported_when_the_pipe_is_read_again() {
    let (mut gateway, log) = overflowing().await;
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    let reading = std::thread::spawn(move || {
        for line in BufReader::new(log).lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            // The test may have ended.
            let _ = sender.send(line);
        }
    });
    let mut until = async |what: &str| loop {
        let line = soon(lines.recv()).await.expect("the line is written before the end");
        if line["message"].as_str().is_some_and(|message| message.starts_with(what)) {
            return line;
        }
    };
    let report = until("log lines dropped").await;
    assert_eq!(report["level"], "WARN");
    assert!(report["count"].as_u64().unwrap() > 0, "{report}");
    gateway.signal(Signal::TERM);
    assert_eq!(ends(&mut gateway).await, Some(0));
    // The end of the log is flushed.
    until("shutting down").await;
    drop(lines);
    reading.join().unwrap();
}

/// The log lines of requests, once they are as expected: they are written after the response.
async fn logged(gateway: &Gateway, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually("the lines are written", async || match gateway.requests_logged() {
        lines if enough(&lines) => Ok(lines),
        lines => Err(lines),
    })
    .await
}

/// The request, the decision, the member and the status.
fn summary(line: &Value) -> (&str, &str, &str, u64) {
    let text = |key: &str| line[key].as_str().unwrap();
    (text("what"), text("action"), text("member"), line["code"].as_u64().unwrap())
}
