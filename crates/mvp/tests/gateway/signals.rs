//! How it ends when it is told to.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cluster::{WIDGETS, beside_bare_peer};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::process::Gateway;

/// A supervisor waits for longer than this before it kills.
const FEW_SECONDS: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_signal_ends_it_though_a_watch_is_open() {
    for signal in ["TERM", "INT"] {
        let (mut b, _peer) = beside_bare_peer().await;
        let client = Client::user(b.gateway.address).await;
        let watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
        b.gateway.signal(signal);
        assert_eq!(ends(&mut b.gateway).await, Some(0), "{signal}");
        assert!(watch.has_ended().await);
    }
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_it_up() {
    let (mut b, _peer) = beside_bare_peer().await;
    let client = Client::user(b.gateway.address).await;
    client.get(WIDGETS).await;
    b.gateway.signal("TERM");
    assert_eq!(ends(&mut b.gateway).await, Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let (mut b, _peer) = beside_bare_peer().await;
    let client = Client::user(b.gateway.address).await;
    let watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
    b.gateway.signal("TERM");
    eventually("the first signal is heard", async || {
        let log = b.gateway.log();
        if log.contains("SIGTERM received") { Ok(()) } else { Err(log) }
    })
    .await;
    // Whoever is impatient repeats himself.
    let status = eventually("the second signal is heard", async || match b.gateway.ended() {
        Some(status) => Ok(status),
        None => {
            b.gateway.signal("TERM");
            Err("it runs")
        }
    })
    .await;
    assert_ne!(status.code(), Some(0), "it waited for the watch");
    assert!(watch.has_ended().await);
}

/// The exit code, in time.
pub(crate) async fn ends(gateway: &mut Gateway) -> Option<i32> {
    let end = Instant::now() + FEW_SECONDS;
    loop {
        if let Some(status) = gateway.ended() {
            return status.code();
        }
        assert!(Instant::now() < end, "it still runs after {FEW_SECONDS:?}:\n{}", gateway.log());
        sleep(Duration::from_millis(20)).await;
    }
}
