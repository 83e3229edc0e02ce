//! Shutdown on signals.

use std::io::ErrorKind;
use std::time::Duration;

use http::StatusCode;
use testkit::process::Signal;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::cluster::{BULKS, Member, WIDGETS, beside_bare_peer, beside_with};
use crate::support::client::{Client, read};
use crate::support::double::Double;
use crate::support::eventually;
use crate::support::process::{Gateway, free_address};

/// Shorter than the time after which a supervisor sends SIGKILL.
const FEW_SECONDS: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_signal_ends_the_gateway_while_a_watch_is_open() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut b, _peer) = with(&["--shutdown-grace-period=1s"]).await;
        let client = Client::user(b.gateway.address).await;
        let watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
        b.gateway.signal(signal);
        assert_eq!(ends(&mut b.gateway).await, Some(0), "{signal:?}");
        assert!(watch.has_ended().await);
    }
}

#[tokio::test]
async fn readiness_fails_before_requests_are_refused() {
    let (mut b, _peer) = with(&["--shutdown-delay-duration=3s"]).await;
    let client = Client::user(b.gateway.address).await;
    b.gateway.signal(Signal::TERM);
    let told = Instant::now();
    let reason = eventually("it is not ready", async || match b.gateway.ask("/readyz").await {
        Some((503, reason)) => Ok(reason),
        other => Err(other),
    })
    .await;
    assert!(reason.contains("[-]shutdown failed: the process is shutting down"), "{reason}");
    assert!(reason.contains("[+]local-server ok"), "{reason}");
    assert_eq!(b.gateway.page("/livez").await, "ok");
    let newcomer = Client::user(b.gateway.address).await;
    for client in [&client, &newcomer] {
        assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    }
    assert_eq!(ends(&mut b.gateway).await, Some(0));
    assert!(told.elapsed() >= Duration::from_secs(3), "{:?}", told.elapsed());
}

#[tokio::test]
async fn the_api_port_reports_gateway_readiness_and_shutdown() {
    let (mut b, _peer) = with(&["--shutdown-delay-duration=5s"]).await;
    let address = b.gateway.address;
    // Each over a connection of its own: a 401 may end it.
    let probe = async |path: &str| {
        let (code, _, body) = Client::token(address, "bad").await.get(path).await;
        (code.as_u16(), String::from_utf8(body.to_vec()).unwrap())
    };
    for path in ["/mvp/readyz", "/mvp/livez"] {
        assert_eq!(probe(path).await, (200, "ok".to_owned()), "{path}, whoever asks");
    }
    for path in ["/readyz", "/livez", "/healthz", "/mvp/other"] {
        assert_eq!(probe(path).await.0, 401, "{path} is the server's");
    }
    b.gateway.signal(Signal::TERM);
    let reason = eventually("/readyz fails", async || match probe("/readyz").await {
        (503, reason) => Ok(reason),
        other => Err(other),
    })
    .await;
    assert_eq!(reason, "[-]mvp-shutdown failed: reason withheld\nreadyz check failed\n");
    let gateway = "[-]shutdown failed: reason withheld\nreadyz check failed\n";
    assert_eq!(probe("/mvp/readyz").await, (503, gateway.to_owned()));
    assert_eq!(probe("/mvp/livez").await, (200, "ok".to_owned()));
    for path in ["/livez", "/healthz"] {
        assert_eq!(probe(path).await.0, 401, "{path} is the server's to the end");
    }
    assert_eq!(ends(&mut b.gateway).await, Some(0));
}

#[tokio::test]
async fn open_requests_are_finished_at_shutdown() {
    let (mut b, _peer) = with(&["--shutdown-grace-period=20s"]).await;
    let client = Client::user(b.gateway.address).await;
    // Larger than all buffers on the way.
    let bytes = 64_u64 << 20;
    let response = client.open(&format!("{BULKS}/{bytes}")).await;
    b.gateway.signal(Signal::TERM);
    let address = b.gateway.address;
    eventually("nobody new is let in", async || match TcpStream::connect(address).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        other => Err(other),
    })
    .await;
    let (code, _, body) = read(response).await;
    assert_eq!((code, body.len() as u64), (StatusCode::OK, bytes));
    assert_eq!(ends(&mut b.gateway).await, Some(0));
}

#[tokio::test]
async fn sighup_does_not_end_the_gateway() {
    let (b, _peer) = with(&[]).await;
    let client = Client::user(b.gateway.address).await;
    b.gateway.signal(Signal::HUP);
    b.gateway.signal(Signal::HUP);
    for _ in 0..10 {
        assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    }
    assert_eq!(b.gateway.page("/readyz").await, "ok");
}

#[tokio::test]
async fn sighup_is_handled_as_soon_as_the_port_is_open() {
    let nobody = free_address();
    for _ in 0..5 {
        let gateway = Gateway::start(free_address(), "b", nobody, &[]);
        let end = Instant::now() + FEW_SECONDS;
        // Without a pause: the state that is looked for is short.
        while std::net::TcpStream::connect(gateway.address).is_err() {
            assert!(Instant::now() < end, "{}", gateway.log());
        }
        assert!(gateway.hears_hangups());
    }
}

#[tokio::test]
async fn an_idle_connection_does_not_delay_shutdown() {
    let (mut b, _peer) = beside_bare_peer().await;
    let client = Client::user(b.gateway.address).await;
    client.get(WIDGETS).await;
    b.gateway.signal(Signal::TERM);
    assert_eq!(ends(&mut b.gateway).await, Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_the_gateway_at_once() {
    let (mut b, _peer) = beside_bare_peer().await;
    let client = Client::user(b.gateway.address).await;
    let watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
    b.gateway.signal(Signal::TERM);
    eventually("the first signal is heard", async || {
        let log = b.gateway.log();
        if log.contains("shutting down") { Ok(()) } else { Err(log) }
    })
    .await;
    // The signal is repeated until it is handled.
    let status = eventually("the second signal is heard", async || match b.gateway.exit_status() {
        Some(status) => Ok(status),
        None => {
            b.gateway.signal(Signal::TERM);
            Err("it runs")
        }
    })
    .await;
    assert_ne!(status.code(), Some(0), "it waited for the watch");
    assert!(watch.has_ended().await);
}

/// B with more flags, and its peer.
async fn with(flags: &[&str]) -> (Member, Double) {
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    beside_with(&flags).await
}

/// The exit code, which must come within the time limit.
pub(crate) async fn ends(gateway: &mut Gateway) -> Option<i32> {
    let end = Instant::now() + FEW_SECONDS;
    loop {
        if let Some(status) = gateway.exit_status() {
            return status.code();
        }
        assert!(Instant::now() < end, "it still runs after {FEW_SECONDS:?}:\n{}", gateway.log());
        sleep(Duration::from_millis(20)).await;
    }
}
