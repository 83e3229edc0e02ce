//! The memory of the gateway process. The limits are for a debug build; the figures are printed.

use futures_util::future::join_all;
use http::StatusCode;
use http_body_util::BodyExt;

use crate::cluster::{BULKS, WIDGETS, beside_bare_peer, make};
use crate::support::client::{Client, Watch};
use crate::support::soon;

pub(crate) const MIB: u64 = 1 << 10;

#[tokio::test]
async fn a_response_of_a_gibibyte_passes_in_constant_memory() {
    const BYTES: u64 = 1 << 30;
    let (b, _peer) = beside_bare_peer().await;
    let client = Client::user(b.gateway.address).await;
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    let before = b.gateway.memory();

    let mut body = client.open(&format!("{BULKS}/{BYTES}")).await.into_body();
    let mut bytes = 0;
    while let Some(frame) = soon(body.frame()).await {
        bytes += frame.unwrap().data_ref().map_or(0, |data| data.len() as u64);
    }
    let after = b.gateway.memory();
    println!("1 GiB response, KiB: before {before:?}, after {after:?}");
    assert_eq!(bytes, BYTES);
    assert!(
        after.most.saturating_sub(before.now) <= 48 * MIB,
        "before {before:?}, after {after:?}"
    );
}

#[tokio::test]
async fn a_thousand_idle_watches_on_ten_connections() {
    idle_watches(10, 100, 3 * 16 * MIB).await;
}

#[tokio::test]
async fn a_thousand_idle_watches_on_as_many_connections() {
    idle_watches(1000, 1, 3 * 64 * MIB).await;
}

async fn idle_watches(connections: usize, each: usize, bound: u64) {
    enough_files(connections as u64 + 500);
    let (b, _peer) = beside_bare_peer().await;
    let address = b.gateway.address;
    let writer = Client::user(address).await;
    make(&writer, "first").await;
    let idle = b.gateway.memory();

    let path = format!("{WIDGETS}?watch=true");
    let mut watches: Vec<Watch> = Vec::new();
    let mut clients = Vec::new();
    for start in (0..connections).step_by(50) {
        let batch = start..connections.min(start + 50);
        clients.extend(join_all(batch.map(|_| Client::user(address))).await);
    }
    for client in &clients {
        watches.extend(join_all((0..each).map(|_| client.watch(&path))).await);
    }
    // All watches are open: each has received the existing object.
    for watch in &mut watches {
        assert_eq!(watch.next_name().await, ("ADDED".to_owned(), "first".to_owned()));
    }
    let busy = b.gateway.memory();
    let cost = busy.now.saturating_sub(idle.now);
    println!(
        "1000 idle watches on {connections} connections, KiB: idle {idle:?}, with them {busy:?}, \
         cost {cost}"
    );
    assert!(cost <= bound, "{cost} KiB: idle {idle:?}, with watches {busy:?}");
}

/// A low descriptor limit would make this a test of that limit.
pub(crate) fn enough_files(needed: u64) {
    let most = rlimit::increase_nofile_limit(needed).expect("the limit of open files");
    assert!(
        most >= needed,
        "only {most} files may be open, {needed} are needed: raise `ulimit -n`"
    );
}
