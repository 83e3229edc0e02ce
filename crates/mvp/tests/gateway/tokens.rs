//! A client with an invalid token makes its server close connections. Others must not notice.

use futures_util::future::join_all;
use http::StatusCode;

use crate::cluster::{Cluster, WIDGETS, beside_bare_peer, make};
use crate::support::client::Client;
use crate::support::double::Double;

const WATCHES: usize = 100;
const ROUNDS: usize = 20;

#[tokio::test]
async fn a_bad_token_does_not_disturb_the_watches_of_others() {
    let cluster = Cluster::start().await;
    undisturbed(cluster.b.gateway.address, &cluster.a.server).await;
}

#[tokio::test]
async fn a_bad_token_does_not_disturb_the_watches_of_others_at_a_bare_peer() {
    let (b, peer) = beside_bare_peer().await;
    undisturbed(b.gateway.address, &peer).await;
}

async fn undisturbed(address: std::net::SocketAddr, server: &Double) {
    let good = Client::token(address, "good").await;
    let path =
        format!("{WIDGETS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    let mut watches = Vec::new();

    for round in 0..ROUNDS {
        // A 401 closes its connection: the invalid token gets a new one each time.
        let bad = Client::token(address, "bad").await;
        watches.extend(join_all((0..WATCHES / ROUNDS).map(|_| good.watch(&path))).await);
        let name = format!("widget-{round}");
        let others = join_all((0..5).map(|_| good.get(WIDGETS)));
        let ((code, ..), (), at_once) = tokio::join!(bad.get(WIDGETS), make(&good, &name), others);
        assert_eq!(code, StatusCode::UNAUTHORIZED);
        let afterwards = join_all((0..5).map(|_| good.get(WIDGETS))).await;
        for (code, _, body) in at_once.into_iter().chain(afterwards) {
            assert_eq!(code, StatusCode::OK, "round {round}: {body:?}");
        }
        for seen in join_all(watches.iter_mut().map(|watch| watch.next_name())).await {
            assert_eq!(seen, ("ADDED".to_owned(), name.clone()));
        }
    }
    assert_eq!(watches.len(), WATCHES);
    // The server received the invalid token each time.
    assert_eq!(server.refused(), ROUNDS);
}
