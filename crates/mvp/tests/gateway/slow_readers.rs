//! A client that does not read blocks nobody else.

use futures_util::future::join_all;
use http::StatusCode;
use http_body_util::BodyExt;

use crate::cluster::{BULKS, Bulk, Cluster, WIDGETS, beside_bulk};
use crate::support::client::Client;
use crate::support::soon;

/// Larger than any buffer on the way.
const LARGE: u64 = 64 << 20;
/// Larger than the connection window, if every stream fills its own window.
const SLOW: usize = 180;

#[tokio::test]
async fn a_slow_reader_does_not_stall_its_own_connection() {
    let cluster = Cluster::start().await;
    let client = Client::user(cluster.b.gateway.address).await;
    let mut slow = client.open(&format!("{BULKS}/{LARGE}")).await;
    assert_eq!(slow.status(), StatusCode::OK);
    let first = soon(slow.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap();
    cluster.bulk.rests().await;

    for _ in 0..10 {
        assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
        let (code, _, body) = client.get(&format!("{BULKS}/{}", 1 << 20)).await;
        assert_eq!((code, body.len()), (StatusCode::OK, 1 << 20));
    }
    assert_eq!(first.len() as u64 + read_to_end(slow.into_body()).await, LARGE);
}

/// Many slow readers on the upstream connections that they share with others.
#[tokio::test]
async fn many_slow_readers_do_not_stall_the_connections_to_a_gateway() {
    let cluster = Cluster::start().await;
    not_stalled(cluster.b.gateway.address, &cluster.bulk).await;
}

#[tokio::test]
async fn many_slow_readers_do_not_stall_the_connections_to_a_bare_peer() {
    let bulk = Bulk::default();
    let (b, _peer) = beside_bulk(bulk.clone()).await;
    not_stalled(b.gateway.address, &bulk).await;
}

async fn not_stalled(address: std::net::SocketAddr, bulk: &Bulk) {
    let client = Client::user(address).await;
    // The connection to the peer is open, and its stream limit is known.
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    let path = format!("{BULKS}/{LARGE}");
    let slow = join_all((0..SLOW).map(|_| client.open(&path))).await;
    bulk.rests().await;
    // On the same client connection, and so on the same worker and upstream connections.
    for _ in 0..10 {
        let (code, _, body) = client.get(&format!("{BULKS}/{}", 1 << 20)).await;
        assert_eq!((code, body.len()), (StatusCode::OK, 1 << 20));
        assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    }
    drop(slow);
}

async fn read_to_end(mut body: hyper::body::Incoming) -> u64 {
    let mut bytes = 0;
    while let Some(frame) = soon(body.frame()).await {
        bytes += frame.unwrap().data_ref().map_or(0, |data| data.len() as u64);
    }
    bytes
}
