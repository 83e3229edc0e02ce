//! Members come and go with a file.

use http::StatusCode;
use mvp_apiserver::Storage;

use crate::cluster::{CONFIG_MAPS, WIDGETS, any, api_server, serve};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::folder::Folder;
use crate::support::process::{Gateway, free_address};

#[tokio::test]
async fn members_come_and_go() {
    let storage = Storage::new();
    let local = serve(any(), api_server("b", storage.clone())).await;
    let peer = serve(any(), api_server("a", storage)).await;
    let mut folder = Folder::new(&[("peers.yaml", "peers: []")]);
    let flag = folder.flag("peers-file", "peers.yaml");
    let gateway = Gateway::start(free_address(), "b", local.address, &[flag]).ready().await;
    let client = Client::user(gateway.address).await;
    let becomes = async |path: &str, expected: StatusCode| {
        eventually(path, async || match client.get(path).await.0 {
            code if code == expected => Ok(()),
            code => Err(code),
        })
        .await;
    };
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::NOT_FOUND, "nobody has it");

    let text = format!("peers:\n- id: a\n  address: https://{}\n  kind: bare\n", peer.address);
    folder.swap(&[("peers.yaml", &text)]);
    becomes(WIDGETS, StatusCode::OK).await;

    folder.swap(&[("peers.yaml", "peers:\n- id: a\n  adress: x\n")]);
    eventually("the mistake is told", async || {
        let log = gateway.log();
        let told = log.contains("not reloaded") && log.contains("peers.yaml line ");
        if told { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK, "the last good one stays");

    // Who left is remembered for a while: what only it serves is unavailable, not gone.
    folder.swap(&[("peers.yaml", "peers: []")]);
    becomes(WIDGETS, StatusCode::SERVICE_UNAVAILABLE).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
    folder.swap(&[("peers.yaml", &text)]);
    becomes(WIDGETS, StatusCode::OK).await;
}

#[tokio::test]
async fn connections_to_a_forgotten_member_are_closed() {
    let storage = Storage::new();
    let local = serve(any(), api_server("b", storage.clone())).await;
    let peer = serve(any(), api_server("a", storage)).await;
    let text = format!("peers: [{{id: a, address: 'https://{}', kind: bare}}]", peer.address);
    let mut folder = Folder::new(&[("peers.yaml", &text)]);
    let flags = [folder.flag("peers-file", "peers.yaml"), "--forget-after=1s".to_owned()];
    let gateway = Gateway::start(free_address(), "b", local.address, &flags).ready().await;
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    assert!(!peer.shown().is_empty());
    folder.swap(&[("peers.yaml", "peers: []")]);
    eventually("nobody is connected any more", async || match peer.shown().len() {
        0 => Ok(()),
        other => Err(other),
    })
    .await;
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::NOT_FOUND);
    let metrics = gateway.page("/metrics").await;
    assert!(!metrics.contains("member=\"a\""), "{metrics}");
}
