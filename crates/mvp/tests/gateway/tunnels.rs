//! Upgraded connections through the real binary: many idle ones, and shutdown.

use std::net::SocketAddr;

use futures_util::future::join_all;
use testkit::certificates::SERVER_NAME;
use testkit::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::cluster::{CONFIG_MAPS, Cluster, WIDGETS, beside_bare_peer};
use crate::memory::{MIB, enough_files};
use crate::signals::ends;
use crate::support::client::connect;
use crate::support::pki::PKI;
use crate::support::soon;

/// A client connection that has become a tunnel.
async fn tunnel(address: SocketAddr, path: &str) -> TlsStream<TcpStream> {
    soon(async {
        let mut stream = connect(address, PKI.client(true, b"http/1.1")).await.unwrap();
        let head = format!(
            "GET {path}?watch=1 HTTP/1.1\r\nHost: {SERVER_NAME}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        stream
    })
    .await
}

async fn echoes(stream: &mut TlsStream<TcpStream>) {
    let mut word = [0; 4];
    soon(stream.write_all(b"word")).await.unwrap();
    soon(stream.flush()).await.unwrap();
    soon(stream.read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"word");
}

#[tokio::test]
async fn a_thousand_idle_tunnels() {
    const TUNNELS: usize = 1000;
    // Both ends of each are in this process.
    enough_files(2 * TUNNELS as u64 + 500);
    let (b, _peer) = beside_bare_peer().await;
    let address = b.gateway.address;
    echoes(&mut tunnel(address, WIDGETS).await).await;
    let idle = b.gateway.memory();
    let mut tunnels = Vec::new();
    for _ in 0..TUNNELS / 50 {
        tunnels.extend(join_all((0..50).map(|_| tunnel(address, WIDGETS))).await);
    }
    for tunnel in &mut tunnels {
        echoes(tunnel).await;
    }
    let busy = b.gateway.memory();
    let cost = busy.now.saturating_sub(idle.now);
    println!("1000 idle tunnels, KiB: idle {idle:?}, with them {busy:?}, cost {cost}");
    assert!(cost <= 64 * MIB, "{cost} KiB: idle {idle:?}, with tunnels {busy:?}");
    let metrics = b.gateway.page("/metrics").await;
    assert!(metrics.contains("\nmvp_tunnels 1000\n"), "{metrics}");
    assert!(metrics.contains("code=\"101\""), "{metrics}");
}

#[tokio::test]
async fn a_signal_leaves_tunnels_open_for_the_grace_period() {
    let mut cluster = Cluster::start().await;
    let address = cluster.b.gateway.address;
    let mut to_local = tunnel(address, CONFIG_MAPS).await;
    let mut to_peer = tunnel(address, WIDGETS).await;
    cluster.b.gateway.signal(Signal::TERM);
    // The listener is closed first, and both tunnels continue.
    soon(async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    echoes(&mut to_local).await;
    echoes(&mut to_peer).await;
    assert_eq!(cluster.b.gateway.exit_status(), None);
    assert_eq!(ends(&mut cluster.b.gateway).await, Some(0));
    for mut stream in [to_local, to_peer] {
        assert!(soon(stream.read(&mut [0])).await.is_err(), "cut, and not ended");
    }
}

#[tokio::test]
async fn the_drain_ends_with_the_last_tunnel() {
    let (mut b, _peer) = beside_bare_peer().await;
    let mut stream = tunnel(b.gateway.address, WIDGETS).await;
    b.gateway.signal(Signal::TERM);
    echoes(&mut stream).await;
    soon(stream.shutdown()).await.unwrap();
    assert_eq!(soon(stream.read(&mut [0])).await.unwrap(), 0, "ended, and not cut");
    assert_eq!(ends(&mut b.gateway).await, Some(0));
    let log = b.gateway.log();
    assert!(!log.contains("grace period over"), "{log}");
}
