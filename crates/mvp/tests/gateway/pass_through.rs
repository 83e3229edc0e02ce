//! `mvp serve --pass-through`: connections are forwarded untouched, without keys.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use mvp_net::Judgement;
use serde_json::{Value, json};
use testkit::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::cluster::any;
use crate::support::client::Client;
use crate::support::double::{Body, Double};
use crate::support::folder::Folder;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, free_address};
use crate::support::{eventually, soon};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Starts a balancer before these servers.
fn balancer(servers: &[SocketAddr], more: &[String]) -> Gateway {
    let (address, admin) = (free_address(), free_address());
    let servers: Vec<String> = servers.iter().map(|one| format!("https://{one}")).collect();
    let mut flags = vec![
        "--pass-through".to_owned(),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--admin-bind-address={admin}"),
        format!("--servers={}", servers.join(",")),
        "--log-format=json".to_owned(),
    ];
    flags.extend_from_slice(more);
    Gateway::with_flags(address, admin, &flags)
}

fn off() -> [String; 2] {
    ["--members-cache=".to_owned(), "--service-account=/nonexistent".to_owned()]
}

/// A server that answers with its name and with who the client is.
async fn server(name: &'static str) -> Double {
    Double::start(any(), move |request: Request<Incoming>| async move {
        let judgement = request.extensions().get::<Judgement>().unwrap();
        let user = judgement.user.as_ref().and_then(|user| user.as_ref().ok());
        let user = user.map_or("nobody", |user| &user.name);
        answer(StatusCode::OK, format!("{name} {user}"))
    })
    .await
}

fn answer(code: StatusCode, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

async fn ask(gateway: &Gateway) -> String {
    let (code, _, body) = Client::user(gateway.address).await.get("/who").await;
    assert_eq!(code, StatusCode::OK);
    String::from_utf8(body.to_vec()).unwrap()
}

/// The members by address.
async fn members(gateway: &Gateway) -> Vec<Value> {
    let page: Value = serde_json::from_str(&gateway.page("/debug/members").await).unwrap();
    page["members"].as_array().unwrap().clone()
}

async fn health(gateway: &Gateway, address: SocketAddr) -> Value {
    let of = |member: &Value| member["address"] == address.to_string();
    let member = members(gateway).await.into_iter().find(of);
    member.map_or(Value::Null, |member| member["health"].clone())
}

async fn until_health(gateway: &Gateway, address: SocketAddr, expected: &str) {
    eventually(expected, async || match health(gateway, address).await {
        found if found == expected => Ok(()),
        other => Err(other),
    })
    .await;
}

#[tokio::test]
async fn client_certificates_reach_the_server_and_a_dead_server_is_skipped() {
    let (mut a, b) = (server("a").await, server("b").await);
    let gateway = balancer(&[a.address, b.address], &off()).ready().await;
    gateway.logs("no service account").await;
    let seen = ask(&gateway).await;
    assert!(["a alice", "b alice"].contains(&&*seen), "TLS ends at a server: {seen}");

    a.cut().await;
    for _ in 0..4 {
        assert_eq!(ask(&gateway).await, "b alice");
    }
    until_health(&gateway, a.address, "unhealthy").await;
    gateway.logs("member unhealthy").await;
    let verbose = gateway.page("/readyz?verbose").await;
    assert!(verbose.contains("[+]members ok, but some are not healthy: "), "{verbose}");
    a.restart().await;
    until_health(&gateway, a.address, "healthy").await;
    let metrics = gateway.page("/metrics").await;
    for line in [
        "mvp_balancer_members 2".to_owned(),
        "mvp_balancer_healthy_members 2".to_owned(),
        format!("mvp_balancer_connections_total{{member=\"{}\",outcome=\"closed\"}}", b.address),
    ] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
}

/// The metrics of a balancer with one healthy member.
pub(crate) async fn metrics() -> String {
    let server = server("a").await;
    balancer(&[server.address], &off()).ready().await.page("/metrics").await
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_last_but_not_left_out() {
    let ready = Arc::new(AtomicBool::new(true));
    let told = Arc::clone(&ready);
    let a = Double::start(any(), move |_| {
        let code = match told.load(Ordering::SeqCst) {
            true => StatusCode::FORBIDDEN,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        async move { answer(code, "a".to_owned()) }
    })
    .await;
    let mut b = server("b").await;
    let gateway = balancer(&[a.address, b.address], &off()).ready().await;
    until_health(&gateway, a.address, "healthy").await;
    ready.store(false, Ordering::SeqCst);
    // A connection that stays silent makes it probe before its interval is over.
    let _silent = [
        TcpStream::connect(gateway.address).await.unwrap(),
        TcpStream::connect(gateway.address).await.unwrap(),
    ];
    until_health(&gateway, a.address, "unhealthy").await;
    for _ in 0..3 {
        assert_eq!(ask(&gateway).await, "b alice");
    }
    b.cut().await;
    let (code, _, body) = Client::user(gateway.address).await.get("/who").await;
    assert_eq!((code, &body[..]), (StatusCode::INTERNAL_SERVER_ERROR, &b"a"[..]));
    until_health(&gateway, b.address, "unhealthy").await;
    let (code, page) = gateway.ask("/readyz").await.unwrap();
    assert!(code == 503 && page.contains("[-]members failed: no member is healthy"), "{page}");
}

/// A server that names these members to who has the token.
async fn names(members: Arc<std::sync::Mutex<Vec<SocketAddr>>>, token: &'static str) -> Double {
    Double::start(any(), move |request: Request<Incoming>| {
        let members = members.lock().unwrap().clone();
        let bearer = request.headers().get("authorization").cloned();
        async move {
            if request.uri().path() != SLICES {
                return answer(StatusCode::OK, "first alice".to_owned());
            }
            if bearer.is_none_or(|bearer| bearer != format!("Bearer {token}")) {
                return answer(StatusCode::UNAUTHORIZED, String::new());
            }
            let slices: Vec<Value> = members
                .iter()
                .map(|one| {
                    json!({
                        "metadata": {"name": one.to_string()},
                        "endpoints": [{"addresses": [one.ip().to_string()]}],
                        "ports": [{"name": "https", "port": one.port()}],
                    })
                })
                .collect();
            answer(StatusCode::OK, json!({ "items": slices }).to_string())
        }
    })
    .await
}

fn account(token: &str) -> Folder {
    let ca = PKI.flag("ca", "ca.crt");
    let ca = fs::read_to_string(ca.strip_prefix("--ca=").unwrap()).unwrap();
    Folder::new(&[("token", token), ("ca.crt", &ca)])
}

fn folder_flag(folder: &Folder) -> String {
    let token = folder.flag("service-account", "token");
    token.strip_suffix("/token").unwrap().to_owned()
}

#[tokio::test]
async fn members_are_found_and_known_after_a_restart_without_any_seed() {
    let mut found = server("found").await;
    let listed = Arc::new(std::sync::Mutex::new(vec![found.address]));
    let mut seed = names(Arc::clone(&listed), "secret").await;
    let (folder, cache) = (account("secret\n"), tempfile::tempdir().unwrap());
    let file = cache.path().join("members.json");
    let flags = [folder_flag(&folder), format!("--members-cache={}", file.display())];
    let gateway = balancer(&[seed.address], &flags).ready().await;
    gateway.logs("members changed").await;
    until_health(&gateway, found.address, "healthy").await;
    assert_eq!(ask(&gateway).await, "found alice", "members before seeds that are none");
    let kept = until_kept(&file).await;
    assert_eq!(kept["members"], json!([found.address.to_string()]));
    assert!(!gateway.log().contains("secret"));
    drop(gateway);

    // The node reboots, and the seed is gone: the members are known from disk.
    seed.cut().await;
    let gateway = balancer(&[seed.address], &flags).ready().await;
    assert_eq!(ask(&gateway).await, "found alice");
    drop(gateway);

    // A damaged file is ignored. The member that it named is found again.
    found.cut().await;
    found.restart().await;
    seed.restart().await;
    fs::write(&file, "{").unwrap();
    let gateway = balancer(&[seed.address], &flags).ready().await;
    gateway.logs("members cache ignored").await;
    until_health(&gateway, found.address, "healthy").await;
    assert_eq!(until_kept(&file).await["members"], json!([found.address.to_string()]));
}

async fn until_kept(file: &Path) -> Value {
    eventually("the cache is written", async || {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    })
    .await
}

#[tokio::test]
async fn a_rejected_token_is_reported_and_a_new_one_is_used() {
    let found = server("found").await;
    let seed = names(Arc::new(std::sync::Mutex::new(vec![found.address])), "new").await;
    let mut folder = account("old");
    let flags = [folder_flag(&folder), "--members-cache=".to_owned()];
    let gateway = balancer(&[seed.address], &flags).ready().await;
    gateway.logs("the token of the service account is not valid").await;
    assert_eq!(ask(&gateway).await, "first alice", "it goes on with --servers");
    folder.swap(&[("token", "new")]);
    until_health(&gateway, found.address, "healthy").await;
    gateway.logs("members can be found again").await;
}

#[tokio::test]
async fn at_sigterm_connections_have_the_grace_period() {
    let a = server("a").await;
    let more = [&off()[..], &["--shutdown-grace-period=100ms".to_owned()]].concat();
    let mut gateway = balancer(&[a.address], &more).ready().await;
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get("/who").await.0, StatusCode::OK);
    let mut idle = TcpStream::connect(gateway.address).await.unwrap();
    gateway.signal(Signal::TERM);
    // Cut at the end of the grace period.
    let _ = soon(idle.read_to_end(&mut Vec::new())).await;
    let status = eventually("it exits", async || gateway.exit_status().ok_or(())).await;
    assert!(status.success(), "{status}");
    assert!(gateway.log().contains("grace period over, busy connections cut"));
    assert!(TcpStream::connect(gateway.address).await.is_err());
}

#[test]
fn keys_are_refused() {
    let flags = ["--pass-through", "--servers=https://127.0.0.1:1", "--tls-cert-file=x"];
    let output = Gateway::run(&["serve"], &flags.map(str::to_owned));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let why = "error: --tls-cert-file: cannot be used with --pass-through, which forwards connections \
               untouched and holds no certificates or keys; remove it\n";
    assert_eq!(text, why);
}
