//! `mvp status`: what operators see, who may ask for it, and members that answer with anything.

use std::future::pending;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use mvp_apiserver::Storage;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::cluster::{Bulk, CONFIG_MAPS, Cluster, WIDGETS, any, api_server, json_response, serve};
use crate::support::client::Client;
use crate::support::double::{Body, Double};
use crate::support::eventually;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, free_address};

/// The lines of the table that follow a title.
fn lines<'a>(screen: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let (_, section) =
        screen.split_once(&format!("\n{title}\n")).unwrap_or_else(|| panic!("{screen}"));
    let lines = section.lines().take_while(|line| !line.is_empty());
    lines
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect()
}

#[tokio::test]
async fn one_screen_shows_members_requests_and_certificates() {
    let cluster = Cluster::start().await;
    let client = Client::user(cluster.b.gateway.address).await;
    for path in [WIDGETS, WIDGETS, CONFIG_MAPS, "/apis"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
    }
    let (code, screen) = cluster.b.gateway.status(&[]).await;
    assert_eq!(code, Some(0), "{screen}");
    let version = format!("b   ready   mvp {}", env!("CARGO_PKG_VERSION"));
    assert!(screen.starts_with(&version) && screen.contains("beside Kubernetes 1.36"), "{screen}");
    let members = lines(&screen, "Members");
    let first: Vec<&[&str]> = members.iter().skip(1).map(|cells| &cells[..5]).collect();
    assert_eq!(
        first,
        [["b", "mvp", "1.36", "local", "fresh"], ["a", "mvp", "1.36", "present", "fresh"]],
        "{screen}"
    );
    let requests = lines(&screen, "Requests since the start");
    assert!(requests.contains(&vec!["2", "peers", "proxied to a peer"]), "{screen}");
    let certificates = lines(&screen, "Certificates");
    assert!(certificates.iter().any(|cells| cells[0] == "--tls-cert-file"), "{screen}");
    assert!(screen.contains(" open of at most "), "{screen}");
    // A pipe is no terminal.
    assert!(!screen.contains('\x1b'), "{screen}");
    let widest = screen.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{screen}");

    let (code, all) = cluster.b.gateway.status(&["--all"]).await;
    assert_eq!(code, Some(0), "{all}");
    let states: Vec<Vec<&str>> =
        all.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(states[1..3], [["b", "ready", "1.36"], ["a", "ready", "1.36"]], "{all}");

    let (_, text) = cluster.b.gateway.status(&["--all", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&text).unwrap();
    let ids: Vec<&Value> =
        document["gateways"].as_array().unwrap().iter().map(|one| &one["status"]["id"]).collect();
    assert_eq!(ids, ["b", "a"]);
    let page: Value = serde_json::from_str(&cluster.b.gateway.page("/debug/status").await).unwrap();
    assert_eq!(page["gateways"].as_array().unwrap().len(), 1);

    for (flag, said) in
        [("--probe=readyz", "readyz check passed"), ("--probe=livez", "livez check passed")]
    {
        let (code, text) = cluster.b.gateway.status(&[flag]).await;
        assert_eq!((code, text.lines().last()), (Some(0), Some(said)), "{flag}: {text}");
    }
}

/// kubelet must not end a gateway because of the server beside it.
#[tokio::test]
async fn probes_tell_readiness_from_liveness() {
    let gateway = Gateway::start(free_address(), "alone", free_address(), &[]);
    let text = eventually("an answer", async || match gateway.status(&["--probe=readyz"]).await {
        (Some(3), text) => Ok(text),
        other => Err(other),
    })
    .await;
    assert!(text.contains("[-]") && text.ends_with("readyz check failed\n"), "{text}");
    let (code, text) = gateway.status(&["--probe=livez"]).await;
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test]
async fn refusals_have_advice_and_a_dead_member_is_named() {
    let Cluster { a, b, .. } = Cluster::start().await;
    drop(a);
    let client = Client::user(b.gateway.address).await;
    eventually("a refusal", async || match client.get(WIDGETS).await.0 {
        StatusCode::SERVICE_UNAVAILABLE => Ok(()),
        other => Err(other),
    })
    .await;
    let screen = eventually("the view is stale", async || match b.gateway.status(&[]).await {
        (Some(3), screen) if screen.contains("a has not confirmed its APIs for") => Ok(screen),
        other => Err(other),
    })
    .await;
    assert!(screen.contains("\nNeeds action\n"), "{screen}");
    let refused = "refused with 503, nobody-reachable: no member that serves it responds\n      \
                   look at the members that serve it: they left, or are unreachable.";
    assert!(screen.contains(refused), "{screen}");
    let errors = lines(&screen, "Requests that no peer could be reached for");
    assert_eq!(errors[1][1..], ["example.com/v1 widgets", "proxy_transport"], "{screen}");

    let (code, all) = b.gateway.status(&["--all"]).await;
    assert_eq!(code, Some(3), "{all}");
    assert!(all.contains("a    no answer   1.36\n"), "{all}");
    assert!(all.contains("\n  a: no answer: "), "{all}");
}

#[tokio::test]
async fn an_unready_gateway_and_a_missing_one_have_their_exit_codes() {
    let mut server = serve(any(), api_server("b", Storage::new())).await;
    let gateway = Gateway::start(free_address(), "b", server.address, &[]).ready().await;
    server.cut().await;
    let screen = eventually("not ready", async || match gateway.status(&[]).await {
        (Some(3), screen) => Ok(screen),
        other => Err(other),
    })
    .await;
    assert!(screen.starts_with("b   not ready   "), "{screen}");
    assert!(screen.contains("readyz local-server: the local server cannot be reached"), "{screen}");
    let address = gateway.admin;
    drop(gateway);
    let flag = format!("--admin-address={address}");
    let (code, said) = Gateway::print(&["status", &flag]).await;
    assert_eq!(code, Some(1));
    assert!(said.starts_with(&format!("error: no gateway answers at {address}: ")), "{said}");
    let (code, said) = Gateway::print(&["status", "--watch", &flag]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.starts_with("error: --watch: standard output is not a terminal"), "{said}");
}

/// Asks for a page with these headers. Each time over a connection of its own: the gateway ends one
/// after a 401.
async fn ask(client: Client, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String) {
    let request = client.request(Method::GET, path);
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = client.send(request.body(Full::default()).unwrap()).await;
    let code = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn only_peers_that_ask_in_their_own_name_get_the_status() {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let gateway = Gateway::start(free_address(), "b", server.address, &[]).ready().await;
    let connect = async |who: &str| match who {
        "peer" => Client::with(gateway.address, PKI.front_proxy(b"h2")).await.unwrap().0,
        "user" => Client::user(gateway.address).await,
        token => {
            assert_eq!(token, "token");
            Client::token(gateway.address, "good").await
        }
    };
    let marked = ("x-kubernetes-peer-proxied", "true");
    let own = ("x-remote-user", "system:apiserver");
    let alice = ("x-remote-user", "alice");
    let group = ("x-remote-group", "system:authenticated");
    let id = ("x-remote-extra-authentication.kubernetes.io%2fcredential-id", "X509SHA256=0");
    let (code, page) = ask(connect("peer").await, "/mvp/status", &[marked, own, group]).await;
    assert_eq!(code, StatusCode::OK);
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!((&page["id"], &page["ready"]), (&json!("b"), &json!(true)));
    // Everybody else gets the server's answer, as for any other path that it does not have.
    for (who, headers, code) in [
        ("peer", &[own, group][..], StatusCode::NOT_FOUND),
        ("peer", &[marked, own], StatusCode::NOT_FOUND),
        // The user of a certificate, as a load balancer forwards it.
        ("peer", &[marked, own, group, id], StatusCode::NOT_FOUND),
        ("peer", &[marked, alice], StatusCode::NOT_FOUND),
        ("peer", &[marked], StatusCode::UNAUTHORIZED),
        ("user", &[marked, own, group], StatusCode::NOT_FOUND),
        ("user", &[], StatusCode::NOT_FOUND),
        ("token", &[marked, own, group], StatusCode::NOT_FOUND),
    ] {
        let status = ask(connect(who).await, "/mvp/status", headers).await;
        let (other, body) = ask(connect(who).await, "/mvp/nothing", headers).await;
        let body = body.replace("/mvp/nothing", "/mvp/status");
        assert_eq!((other, &status), (code, &(code, body)), "{who} {headers:?}");
    }
}

/// A gateway whose status is whatever `answer` returns. Everything else is answered properly.
async fn hostile<A>(answer: impl Fn() -> A + Send + Sync + 'static) -> Double
where
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let api = api_server("a", Storage::new());
    Double::start(any(), move |request: Request<Incoming>| {
        let status = (request.uri().path() == "/mvp/status").then(&answer);
        let api = api.clone();
        async move {
            match status {
                Some(status) => status.await,
                None => match api.oneshot(request).await {
                    Ok(response) => {
                        response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
                    }
                    Err(never) => match never {},
                },
            }
        }
    })
    .await
}

fn body(text: impl Into<Bytes>) -> Response<Body> {
    Response::new(Full::new(text.into()).boxed_unsync())
}

/// A report that is much larger in memory than on the wire.
fn many() -> String {
    format!("{{\"members\":[{{}}{}]}}", ",{}".repeat(80_000))
}

#[tokio::test]
async fn a_member_that_answers_anything_is_one_line() {
    let lies = json!({
        "id": "\u{1b}[2J\nb", "version": format!("9\u{1b}]0;{}\u{7}", "x".repeat(5000)), "ready": true, "live": true,
        "uptimeSeconds": -5, "members": "later", "requests": [{"name": "peers", "count": u64::MAX}],
    });
    let mut escapes = lies.clone();
    escapes["members"] = json!([{"id": "\u{1b}[31m", "present": true, "view": "from-the-future"}]);
    let (lies, escapes) = (lies.to_string(), escapes.to_string());
    let doubles = [
        ("garbage", hostile(|| async { body("<html>") }).await),
        ("deep", hostile(|| async { body("[".repeat(200_000)) }).await),
        (
            "typed",
            hostile(move || {
                let lies = lies.clone();
                async { body(lies) }
            })
            .await,
        ),
        (
            "escapes",
            hostile(move || {
                let page = escapes.clone();
                async { body(page) }
            })
            .await,
        ),
        ("huge", hostile(|| async { Response::new(Bulk::default().body(1 << 40)) }).await),
        ("many", hostile(|| async { body(many()) }).await),
        ("slow", hostile(pending::<Response<Body>>).await),
        ("broken", hostile(|| async { json_response(StatusCode::BAD_GATEWAY, &json!({})) }).await),
        ("older", hostile(|| async { json_response(StatusCode::NOT_FOUND, &json!({})) }).await),
    ];
    let server = serve(any(), api_server("b", Storage::new())).await;
    let bare = serve(any(), api_server("a", Storage::new())).await;
    let mut more: Vec<String> =
        doubles.iter().map(|(id, one)| format!("--peer={id}=https://{}", one.address)).collect();
    more.push(format!("--peer=bare=https://{},kind=bare", bare.address));
    let gateway = Gateway::start(free_address(), "b", server.address, &more).ready().await;
    let (code, all) = gateway.status(&["--all"]).await;
    assert_eq!(code, Some(3), "{all}");
    for (id, why) in [
        ("garbage", "its answer is no report: expected value at line 1 column 1"),
        ("deep", "its answer is no report: "),
        ("typed", "its answer is no report: invalid type: string \"later\", expected a sequence"),
        ("huge", "its answer: length limit exceeded"),
        ("slow", "no complete answer within 3 s"),
        ("broken", "status 502 Bad Gateway"),
        ("older", "an older mvp, or mvp inside an API server, which reports nothing"),
        ("escapes", "its gateway says that it is \\u{1b}[2J\\nb"),
    ] {
        let line = if id == "escapes" {
            format!("  {id}: {why}")
        } else {
            format!("  {id}: no answer: {why}")
        };
        assert!(all.contains(&line), "{line}\nin\n{all}");
    }
    let state = |id: &str| {
        let line = all.lines().find(|line| line.split(' ').next() == Some(id));
        line.unwrap_or_else(|| panic!("{id}: {all}")).to_owned()
    };
    assert!(state("b").contains("ready"), "{all}");
    assert!(state("many").contains(" 0/128 "), "{all}");
    assert!(state("bare").contains("no gateway"), "{all}");
    assert!(state("escapes").contains("18446744073709551615"), "{all}");
    assert!(!all.chars().any(|c| c.is_control() && c != '\n'), "{all:?}");
    // It serves as before.
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
}
