//! The gateway and the layer through real sockets on loopback: the identity of callers, routing,
//! and the bytes that are forwarded.
//!
//! The harness: `pki` has certificates, `double` is an API server that records its requests
//! (`record`), `broken` is a proxy with faults below HTTP, `gateway` is assembled as `mvp serve`
//! does, `client` speaks HTTP/1.1 and HTTP/2, `switched` has both ends of a tunnel, and `traced`
//! collects spans.
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
mod traced;
mod world;

mod blame;
mod bodies;
mod callers;
mod cbor;
mod choice;
mod discovery;
mod door;
mod doubt;
mod extensions;
mod failover;
mod fairness;
mod faults;
mod hashes;
mod headers;
mod health_checks;
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
mod renewal;
mod request_headers;
mod rows;
mod sampling;
mod spoofs;
mod streaming;
mod taken_over;
mod traces;
mod trailers;
mod tunnels;
mod unclear;
mod upgrades;

use std::time::Duration;

/// Awaits a future with the time limit of tests.
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
