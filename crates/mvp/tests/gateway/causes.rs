//! The log names the cause of a misconfiguration, once, and the flag to look at.

use http::{Method, StatusCode};
use mvp_apiserver::Storage;
use serde_json::Value;

use crate::cluster::{any, api_server, assert_refusal, serve};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, flags, free_address};

/// An API that no server has.
const NOWHERE: &str = "/apis/example.org/v1/nothings";
const REJECTED: &str = "proxy client certificate rejected";

#[tokio::test]
async fn a_peer_without_our_request_header_ca_is_named_on_both_sides() {
    let storage = Storage::new();
    let a_server = serve(any(), api_server("a", storage.clone())).await;
    let b_server = serve(any(), api_server("b", storage)).await;
    let (a, b, admin) = (free_address(), free_address(), free_address());
    let a = Gateway::start(a, "a", a_server.address, &[format!("--peer=b=https://{b}")]);
    // At first the peer is down, which is another cause.
    a.logs("discovery failed").await;
    let mut flags = flags(b, admin, "b", b_server.address, &[]);
    flags.retain(|flag| !flag.starts_with("--requestheader-client-ca-file="));
    let b = Gateway::with_flags(b, admin, &flags).ready().await;

    a.logs(REJECTED).await;
    b.logs("untrusted client certificate").await;
    let refused = Client::user(a.address).await;
    let (code, status) = refused.call(Method::GET, NOWHERE, Value::Null).await;
    assert_refusal(code, &status);
    let request =
        eventually("the line is written", async || a.requests_logged().pop().ok_or(a.log())).await;
    assert_eq!((&request["reason"], &request["member"]), (&"unconfirmed".into(), &"b".into()));
    rounds(&a).await;

    let [ours] = &lines(&a, REJECTED)[..] else { panic!("{}", a.log()) };
    assert_eq!((&ours["member"], &ours["status"]), (&"b".into(), &401.into()), "{ours}");
    assert_eq!(ours["flag"], "--proxy-client-cert-file", "{ours}");
    let hint = ours["hint"].as_str().unwrap();
    assert!(hint.contains("--requestheader-client-ca-file"), "{ours}");
    let [theirs] = &lines(&b, "untrusted client certificate")[..] else { panic!("{}", b.log()) };
    assert_eq!(theirs["subject"], "CN=front-proxy-client", "{theirs}");
    assert_eq!(theirs["issuer"], "CN=proxies", "{theirs}");
    assert_eq!(theirs["flag"], "--requestheader-client-ca-file", "{theirs}");
}

#[tokio::test]
async fn a_local_server_without_our_request_header_ca_is_reported_once() {
    let server = serve(any(), api_server("a", Storage::new())).await;
    server.tls.replace(PKI.server_without_front_proxies());
    let gateway = Gateway::start(free_address(), "a", server.address, &[]);
    gateway.logs(REJECTED).await;
    rounds(&gateway).await;
    let [line] = &lines(&gateway, REJECTED)[..] else { panic!("{}", gateway.log()) };
    assert_eq!((&line["member"], &line["status"]), (&"a".into(), &401.into()), "{line}");
    for message in ["local server sends no response", "local server responds again", "recovered"] {
        assert_eq!(lines(&gateway, message), [Value::Null; 0], "{}", gateway.log());
    }
    let (_, ready) = gateway.ask("/readyz").await.unwrap();
    assert!(ready.contains("--requestheader-client-ca-file"), "{ready}");

    // Once the server trusts us, that is said, too.
    server.tls.replace(PKI.server());
    let gateway = gateway.ready().await;
    gateway.logs("discovery recovered").await;
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get("/version").await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_wrong_ca_of_the_local_server_names_the_flag_and_both_cas() {
    let server = serve(any(), api_server("a", Storage::new())).await;
    let wrong = PKI.flag("local-ca-file", "proxy-ca.crt");
    let gateway = Gateway::start(free_address(), "a", server.address, std::slice::from_ref(&wrong));
    let cause = format!(
        "the certificate of the server was issued by \"CN=servers\", but {} has only [\"CN=proxies\"]",
        wrong.replace('=', " ")
    );
    let line = eventually("the line is written", async || {
        lines(&gateway, "local server sends no response").pop().ok_or(gateway.log())
    })
    .await;
    assert!(line["error"].as_str().unwrap().contains(&cause), "{line} lacks {cause}");
    let ready = eventually("readiness says it, too", async || {
        match gateway.ask("/readyz").await.unwrap_or_default() {
            (503, page) if page.contains("cannot be reached") => Ok(page),
            page => Err(page),
        }
    })
    .await;
    assert!(ready.contains(&cause), "{ready}");
}

#[tokio::test]
async fn a_wrong_id_and_a_missing_kind_of_a_peer_are_reported() {
    let storage = Storage::new();
    let a_server = serve(any(), api_server("a", storage.clone())).await;
    let b_server = serve(any(), api_server("b", storage.clone())).await;
    let bare = serve(any(), api_server("c", storage)).await;
    let b = Gateway::start(free_address(), "b", b_server.address, &[]).ready().await;
    let peers = [
        format!("--peer=other=https://{}", b.address),
        format!("--peer=c=https://{}", bare.address),
    ];
    let a = Gateway::start(free_address(), "a", a_server.address, &peers).ready().await;
    a.logs("member has another ID").await;
    a.logs("member has no gateway").await;
    let [other] = &lines(&a, "member has another ID")[..] else { panic!("{}", a.log()) };
    assert_eq!((&other["member"], &other["answers_as"]), (&"other".into(), &"b".into()), "{other}");
    let [bare] = &lines(&a, "member has no gateway")[..] else { panic!("{}", a.log()) };
    assert_eq!(bare["member"], "c", "{bare}");
    assert!(bare["hint"].as_str().unwrap().contains("kind=bare"), "{bare}");
}

/// Waits until discovery was fetched several more times.
async fn rounds(gateway: &Gateway) {
    let failed = async || {
        let metrics = gateway.page("/metrics").await;
        let name = "apiserver_peer_discovery_sync_errors_total{type=\"fetch_discovery\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or_default()
    };
    let before = failed().await;
    eventually("several fetches", async || match failed().await {
        now if now >= before + 12 => Ok(()),
        now => Err(now),
    })
    .await;
}

/// The log lines whose message contains this.
fn lines(gateway: &Gateway, message: &str) -> Vec<Value> {
    let log = gateway.log();
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["message"].as_str().unwrap().contains(message)).collect()
}
