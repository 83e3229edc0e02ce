//! A listener without descriptors: connections that never ask for anything make room for those that
//! do. It runs in a process of its own, with a low limit.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use mvp_net::{ClientTls, Limits};
use rlimit::Resource;
use rustls_pki_types::ServerName;
use testkit::certificates::SERVER_NAME;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Gateway, H2, get, http2, soon, text};

const CHILD: &str = "MVP_NET_TEST_DESCRIPTORS";
const DESCRIPTORS: u64 = 128;
const IDLE: usize = 300;

/// The listener: says where it is and whom to trust, and ends with its standard input.
#[tokio::test]
#[ignore = "started by the test below"]
async fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (_, hard) = Resource::NOFILE.get().unwrap();
    Resource::NOFILE.set(DESCRIPTORS, hard).unwrap();
    // Only making room can help.
    let gateway = Gateway::start(Limits { handshake_timeout: Duration::MAX, ..Limits::default() });
    println!("\nlistens {}\n{}", gateway.address, gateway.authorities.servers.pem().trim());
    let ended = tokio::task::spawn_blocking(|| {
        std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())
    });
    let _ = tokio::time::timeout(Duration::from_secs(60), ended).await;
    std::process::exit(0);
}

#[tokio::test]
async fn idle_connections_that_take_all_descriptors_make_room() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "descriptors::child", "--ignored", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("listens ").map(str::to_owned));
    let address: SocketAddr = address.unwrap().parse().unwrap();
    let mut pem = String::new();
    for line in lines.by_ref() {
        pem += &format!("{line}\n");
        if line.starts_with("-----END") {
            break;
        }
    }

    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(soon(TcpStream::connect(address)).await.unwrap());
    }
    let config = ClientTls::new(pem.as_bytes(), None).unwrap().config(&[H2]);
    let stream = soon(TcpStream::connect(address)).await.unwrap();
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let stream = soon(TlsConnector::from(config).connect(name, stream)).await.unwrap();
    let response = soon(http2(stream).await.send_request(get("/"))).await.unwrap();
    assert_eq!(text(response).await, "well");
    drop(idle);
    drop(child.stdin.take());
    child.wait().unwrap();
}
