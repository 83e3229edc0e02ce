//! Many watches through one gateway, each with every event.

use futures_util::future::join_all;

use crate::cluster::{Cluster, WIDGETS, beside_bare_peer, make};
use crate::support::client::{Client, Watch};

const CONNECTIONS: usize = 10;
const WATCHES: usize = 100;
const EVENTS: usize = 20;

#[tokio::test]
async fn a_thousand_watches_through_two_gateways_get_every_event_in_order() {
    let cluster = Cluster::start().await;
    everyone_gets_everything(cluster.b.gateway.address).await;
}

#[tokio::test]
async fn a_thousand_watches_of_a_bare_peer_get_every_event_in_order() {
    let (b, peer) = beside_bare_peer().await;
    everyone_gets_everything(b.gateway.address).await;
    // 16 watches a connection, for each of two workers, and the fetches of discovery.
    let connections = (CONNECTIONS * WATCHES).div_ceil(16) + 1;
    assert!(peer.accepted() <= connections + 4, "{} connections", peer.accepted());
}

async fn everyone_gets_everything(address: std::net::SocketAddr) {
    let mut watches = open(address).await;
    let client = Client::user(address).await;
    let expected: Vec<(String, String)> =
        (0..EVENTS).map(|n| ("ADDED".to_owned(), format!("widget-{n}"))).collect();
    let write = async {
        for (_, name) in &expected {
            make(&client, name).await;
        }
    };
    let readers = watches.iter_mut().map(async |watch| {
        let mut seen = Vec::new();
        for _ in 0..EVENTS {
            seen.push(watch.next_name().await);
        }
        seen
    });
    let ((), all) = tokio::join!(write, join_all(readers));
    assert_eq!(all.len(), CONNECTIONS * WATCHES);
    for seen in all {
        assert_eq!(seen, expected);
    }
}

async fn open(address: std::net::SocketAddr) -> Vec<Watch> {
    let path = format!("{WIDGETS}?watch=true");
    let connections = join_all((0..CONNECTIONS).map(async |_| {
        let client = Client::user(address).await;
        join_all((0..WATCHES).map(|_| client.watch(&path))).await
    }));
    connections.await.into_iter().flatten().collect()
}
