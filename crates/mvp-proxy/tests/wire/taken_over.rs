//! A gateway takes over new connections of a server that runs: other gateways reach it after a while,
//! although they are connected to the server already.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::{BOTH, Client, get};
use crate::double::Double;
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::{soon, until};

const THINGS: &str = "/apis/shared.example/v1/namespaces/default/things";
const WATCH: &str = "/apis/shared.example/v1/namespaces/default/things?watch=true";

/// An address whose new connections lead to one place, and later to another.
struct Steered {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
}

impl Steered {
    async fn to(target: SocketAddr) -> Steered {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(target));
        let current = Arc::clone(&target);
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let target = *current.lock().unwrap();
                connections.spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Steered { address, target }
    }
}

#[tokio::test]
async fn connections_from_before_a_gateway_are_replaced_and_their_watches_stay() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let server = Double::start("b", "v1.36.0", &[("shared.example", "things")]).await;
    let steered = Steered::to(server.address).await;
    let plan = Gateway::beside("a", &local).await.mvp("b", steered.address);
    let gateway = plan.start().await;
    let mut client = Client::connect(gateway.address, BOTH[1], Some(&pki().alice)).await;
    let mut watch = client.open(get(WATCH)).await.into_body();
    assert_eq!(client.send(get(THINGS)).await.status, StatusCode::OK);

    let peer = Gateway::beside("b", &server).await.start().await;
    *steered.target.lock().unwrap() = peer.address;
    // Requests that never rest, as those for discovery.
    let reads = async {
        while peer.requests.of(THINGS).is_empty() {
            assert_eq!(client.send(get(THINGS)).await.status, StatusCode::OK);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    soon(reads).await;
    // All later requests use the new connection, which is not replaced.
    let (met, ports) = (server.requests.of(THINGS).len(), || {
        let all = peer.requests.of(THINGS);
        all.iter().map(|request| request.port).collect::<std::collections::BTreeSet<_>>()
    });
    assert_eq!(client.send(get(THINGS)).await.status, StatusCode::OK);
    assert_eq!(ports().len(), 1);
    until(|| server.requests.of(THINGS).len() == met + 1).await;

    let created = crate::client::post(THINGS, crate::rows::thing("shared.example", "one"));
    assert_eq!(client.send(created).await.status, StatusCode::CREATED);
    let event = soon(watch.frame()).await.unwrap().unwrap().into_data().unwrap();
    let event = String::from_utf8_lossy(&event).into_owned();
    assert!(event.contains("ADDED") && event.contains("one"), "{event}");
    assert!(peer.requests.of(WATCH).is_empty(), "the watch stays where it is");
}
