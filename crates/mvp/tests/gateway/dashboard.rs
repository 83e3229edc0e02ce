//! The dashboard: who may see it, what each sees, and how soon.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use mvp_apiserver::Storage;
use serde_json::Value;
use testkit::certificates::SERVER_NAME;
use testkit::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::cluster::{CONFIG_MAPS, Cluster, WIDGETS, any, api_server, serve};
use crate::support::client::Client;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, free_address};

const EVENTS: &str = "/dashboard/events";

/// Sends a GET, and reads until the text has all these words.
async fn read_until<S>(mut stream: S, path: &str, words: &[&str]) -> (String, S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let text = more_until(&mut stream, words).await;
    (text, stream)
}

async fn more_until<S: AsyncRead + Unpin>(stream: &mut S, words: &[&str]) -> String {
    let (mut text, mut buffer) = (String::new(), vec![0; 64 << 10]);
    let read = async {
        while !words.iter().all(|word| text.contains(word)) {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "it ended: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    timeout(Duration::from_secs(20), read).await.unwrap_or_else(|_| panic!("{words:?} in {text}"));
    text
}

/// The last content of a section in a stream.
fn section(text: &str, name: &str) -> Value {
    let (_, data) = text.rsplit_once(&format!("event: {name}\ndata: ")).unwrap();
    serde_json::from_str(data.lines().next().unwrap()).unwrap()
}

fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("mvp-{}-dashboard.sock", std::process::id()))
}

async fn tcp(gateway: &Gateway) -> TcpStream {
    TcpStream::connect(gateway.admin).await.unwrap()
}

async fn unix(path: &Path) -> UnixStream {
    UnixStream::connect(path).await.unwrap()
}

/// On this host anybody sees counts, but only the owner of the process sees users and addresses.
#[tokio::test]
async fn names_and_addresses_are_shown_over_the_socket_alone() {
    let local = serve(any(), api_server("a", Storage::new())).await;
    let path = socket();
    let more = [format!("--admin-socket={}", path.display()), "--dashboard-flow".to_owned()];
    let gateway = Gateway::start(free_address(), "a", local.address, &more).ready().await;
    let client = Client::user(gateway.address).await;
    let asked = client.request(Method::GET, WIDGETS).header("user-agent", "known-agent/1.0");
    let answer = client.send(asked.body(Full::default()).unwrap()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    answer.into_body().collect().await.unwrap();

    let sections = ["event: callers\n", "event: members\n", "event: skew\n"];
    let (page, _tcp) = read_until(tcp(&gateway).await, EVENTS, &sections).await;
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("text/event-stream"), "{page}");
    let callers = section(&page, "callers");
    assert_eq!((&callers["named"], &callers["resources"][0]["count"]), (&false.into(), &1.into()));
    for hidden in ["127.0.0.1", "alice", "known-agent"] {
        assert!(!page.contains(hidden), "{hidden} in {page}");
    }

    let (page, _unix) = read_until(unix(&path).await, EVENTS, &sections).await;
    let callers = section(&page, "callers");
    let caller = &callers["resources"][0]["callers"][0];
    assert_eq!(caller["user"], "alice", "{callers}");
    let agent = caller["agent"].as_str().unwrap_or_default();
    assert!(agent.starts_with("known-agent"), "{callers}");
    assert_eq!(section(&page, "gateway")["named"], true);

    // Through a port that somebody forwards to the socket, other names read and change nothing.
    let paths =
        [EVENTS, "/livez", "/debug/callers", "/debug/flags", "/debug/snapshot", "/debug/status"];
    let read = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
    };
    let change = "POST /forget?id=x HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\n\
                  content-length: 0\r\nconnection: close\r\n\r\n";
    for request in paths.into_iter().map(read).chain([change.to_owned()]) {
        let mut stream = unix(&path).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
}

#[tokio::test]
async fn a_dead_peer_and_the_traffic_are_shown_within_two_seconds() {
    let Cluster { a, b, .. } = Cluster::with(&["--dashboard-flow".to_owned()]).await;
    let client = Client::user(b.gateway.address).await;
    for path in [WIDGETS, WIDGETS, CONFIG_MAPS] {
        assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
    }
    let (page, mut stream) = read_until(tcp(&b.gateway).await, EVENTS, &["event: members\n"]).await;
    let members = section(&page, "members");
    let health = |members: &Value| -> Vec<(String, bool)> {
        let one = |one: &Value| (one["id"].as_str().unwrap().to_owned(), one["error"].is_null());
        members.as_array().unwrap().iter().map(one).collect()
    };
    assert_eq!(health(&members), [("b".to_owned(), true), ("a".to_owned(), true)]);
    // It counts from the first look on.
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    let flow = more_until(&mut stream, &["event: flow\n", r#""to":"a""#]).await;
    let edge = &section(&flow, "flow")["edges"][0];
    assert_eq!((&edge["from"], &edge["to"]), (&"b".into(), &"a".into()), "{edge}");

    let killed = Instant::now();
    drop(a);
    more_until(&mut stream, &["event: members\n", r#""error":""#]).await;
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
}

/// Pages that are open do not delay the end of the process.
#[tokio::test]
async fn open_pages_end_with_the_process() {
    let local = serve(any(), api_server("a", Storage::new())).await;
    let mut gateway = Gateway::start(free_address(), "a", local.address, &[]).ready().await;
    let (_, mut stream) = read_until(tcp(&gateway).await, EVENTS, &["event: members\n"]).await;
    gateway.signal(Signal::TERM);
    let mut rest = Vec::new();
    // It ends or is reset.
    let _ = timeout(Duration::from_secs(15), stream.read_to_end(&mut rest)).await.unwrap();
    crate::support::eventually("its end", async || gateway.exit_status().ok_or("it runs")).await;
}

#[tokio::test]
async fn other_hosts_need_a_certificate_of_an_allowed_group() {
    let local = serve(any(), api_server("a", Storage::new())).await;
    let (page, wrong) = (free_address(), free_address());
    for (address, groups, code) in
        [(page, "operators,auditors", StatusCode::OK), (wrong, "operators", StatusCode::FORBIDDEN)]
    {
        let more = [
            format!("--dashboard-bind-address={address}"),
            format!("--dashboard-allowed-groups={groups}"),
            format!("--admin-allowed-hosts={SERVER_NAME}"),
        ];
        let gateway = Gateway::start(free_address(), "a", local.address, &more).ready().await;
        assert!(
            gateway.log().contains(&format!("https://{address}/dashboard")),
            "{}",
            gateway.log()
        );
        let (client, _) = Client::with(address, PKI.auditor(b"h2")).await.unwrap();
        for path in ["/dashboard", "/dashboard/page.js", "/dashboard/apis"] {
            assert_eq!(client.get(path).await.0, code, "{path} for {groups}");
        }
        // A front proxy speaks for users, but shows a certificate of another CA.
        let (proxy, _) = Client::with(address, PKI.front_proxy(b"h2")).await.unwrap();
        let asked = proxy.request(Method::GET, "/dashboard").header("x-remote-user", "admin");
        let asked: Request<Full<_>> =
            asked.header("x-remote-group", "operators").body(Full::default()).unwrap();
        assert_eq!(proxy.send(asked).await.status(), StatusCode::UNAUTHORIZED);
        let nobody = Client::token(address, "a-token").await;
        assert_eq!(nobody.get("/dashboard").await.0, StatusCode::UNAUTHORIZED);
        if code == StatusCode::OK {
            let mut events = client.open(EVENTS).await.into_body();
            let frame = timeout(Duration::from_secs(20), events.frame()).await.unwrap();
            let data = frame.unwrap().unwrap().into_data().unwrap();
            assert!(data.starts_with(b"retry: 1000\n\nevent: "), "{data:?}");
        }
    }
}

#[tokio::test]
async fn plain_http_for_other_hosts_shows_no_page() {
    let local = serve(any(), api_server("a", Storage::new())).await;
    let admin = format!("--admin-bind-address=0.0.0.0:{}", free_address().port());
    let gateway = Gateway::start(free_address(), "a", local.address, &[admin]);
    crate::support::eventually("the start", async || match gateway.log() {
        log if log.contains("\"serving\"") => Ok(()),
        log => Err(log),
    })
    .await;
    let log = gateway.log();
    let (_, url) = log.split_once("\"dashboard\":\"http://").unwrap();
    let (address, _) = url.split_once("/dashboard").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let (answer, _) = read_until(stream, "/dashboard", &["--dashboard-bind-address"]).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}
