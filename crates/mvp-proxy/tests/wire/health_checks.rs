//! Health checks without credentials pass whatever other anonymous callers do: kubelet restarts a
//! server whose checks fail.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use testkit::certificates::SERVER_NAME;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::client::{Client, Protocol, ask, full, get, request};
use crate::double::{Double, answer};
use crate::pki::pki;
use crate::world::{LOCAL, World};
use crate::{soon, until};

/// The number of connections for anonymous callers.
const ANONYMOUS: usize = 32;
/// The number of connections for health checks: of this host, and of others.
const HEALTH_CHECKS: usize = 16;

/// Makes responses never start.
fn hangs(server: &Double, prefix: &'static str) {
    let never = Arc::new(Semaphore::new(0));
    server.rule(prefix, move |_| {
        let never = Arc::clone(&never);
        async move {
            let _permit = never.acquire().await;
            answer(StatusCode::OK, full("ok"))
        }
    });
}

/// A client without credentials at another address than the gateway's.
async fn elsewhere(gateway: SocketAddr) -> Client {
    let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let stream = soon(mvp_net::connect_from(source, gateway)).await.unwrap();
    let connector = TlsConnector::from(pki().client_tls(None).config(&[b"h2"]));
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let stream = TokioIo::new(soon(connector.connect(name, stream)).await.unwrap());
    let handshake = http2::handshake(TokioExecutor::new(), stream);
    let (sender, connection) = soon(handshake).await.unwrap();
    tokio::spawn(connection);
    Client::Http2(sender)
}

type Sent = JoinHandle<Result<Response<Incoming>, hyper::Error>>;

/// Sends many requests at once.
fn flood(client: &Client, path: &'static str, count: usize) -> Vec<Sent> {
    let Client::Http2(sender) = client else { unreachable!() };
    let one = |_| {
        let mut client = Client::Http2(sender.clone());
        tokio::spawn(async move { client.try_open(get(path)).await })
    };
    (0..count).map(one).collect()
}

async fn assert_refused(sent: Sent) {
    let response = soon(sent).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_flood_of_anonymous_requests_does_not_fail_health_checks() {
    let world = World::start().await;
    let address = world.gateway.address;
    hangs(&world.local, LOCAL);
    let client = Client::connect(address, Protocol::Http2, None).await;
    let _flood = flood(&client, LOCAL, ANONYMOUS);
    until(|| world.local.requests.of(LOCAL).len() == ANONYMOUS).await;
    // Nothing is free for other anonymous requests.
    world.local.says("/version", 200, "application/json", "{}");
    let refused = ask(address, Protocol::Http1, None, get("/version")).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);

    for path in ["/livez", "/readyz", "/healthz"] {
        world.local.says(path, 200, "text/plain", "ok");
    }
    for path in ["/livez", "/readyz?verbose", "/healthz", "/livez/ping", "/readyz/etcd"] {
        let answer = ask(address, Protocol::Http1, None, get(path)).await;
        assert_eq!((answer.status, &*answer.text()), (StatusCode::OK, "ok"), "{path}");
    }
    let head = request(Method::HEAD, "/livez", full(""));
    assert_eq!(ask(address, Protocol::Http1, None, head).await.status, StatusCode::OK);
    // Other paths and methods are no health checks.
    for other in [request(Method::DELETE, "/livez", full("")), get("/livezz"), get("//livez")] {
        let answer = ask(address, Protocol::Http1, None, other).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn a_flood_of_health_checks_from_elsewhere_does_not_fail_those_of_this_host() {
    let world = World::start().await;
    let address = world.gateway.address;
    hangs(&world.local, "/livez/slow");
    world.local.says("/readyz", 200, "text/plain", "ok");
    let client = elsewhere(address).await;
    let _flood = flood(&client, "/livez/slow", HEALTH_CHECKS);
    until(|| world.local.requests.of("/livez/slow").len() == HEALTH_CHECKS).await;
    // The lane of others is bounded.
    let mut other = elsewhere(address).await;
    assert_refused(tokio::spawn(async move { other.try_open(get("/readyz")).await })).await;

    let answer = ask(address, Protocol::Http1, None, get("/readyz")).await;
    assert_eq!(answer.status, StatusCode::OK);
}
