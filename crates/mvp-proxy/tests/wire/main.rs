//! The gateway and the layer through real sockets on loopback: who a caller is taken for, where a
//! request goes, and that every byte of it arrives as it was sent.
//!
//! The harness: `pki` makes certificates, `double` is an API server that remembers (`record`)
//! what it was asked, `broken` is one that misbehaves below HTTP, `gateway` is put together as `mvp serve` does
//! it, `client` speaks HTTP/1.1 and HTTP/2, `switched` is what becomes of a connection after a 101.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod broken;
mod client;
mod double;
mod gateway;
mod pki;
mod record;
mod switched;
mod world;

mod blame;
mod bodies;
mod choice;
mod discovery;
mod door;
mod doubt;
mod extensions;
mod failover;
mod faults;
mod headers;
mod identity;
mod inside;
mod interrupted;
mod isolation;
mod legacy;
mod local_down;
mod misbehaving;
mod objects;
mod openapi;
mod outcomes;
mod peer_down;
mod rows;
mod spoofs;
mod streaming;
mod tunnels;
mod upgrades;

use std::time::Duration;

/// No wait of a test is longer.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("in time")
}

/// Waits for a condition.
pub async fn until(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(waiting).await;
}
