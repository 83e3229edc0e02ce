//! The limit on client connections, over real sockets.

use mvp_net::{ConnectionLimit, Limits};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::support::{Gateway, H2, get, http2, soon, text};

fn limited(total: usize, per_address: Option<usize>) -> (Gateway, ConnectionLimit) {
    let connections = ConnectionLimit::new(total, per_address);
    let limits = Limits { connections: connections.clone(), ..Limits::default() };
    (Gateway::start(limits), connections)
}

async fn until(mut condition: impl FnMut() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(soon(stream.read(&mut [0])).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn connections_that_never_had_a_request_make_room() {
    let (gateway, limit) = limited(3, None);
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    let idle = gateway.http2(None).await;
    let mut used = gateway.http2(None).await;
    text(soon(used.send_request(get("/"))).await.unwrap()).await;
    until(|| limit.open() == 3).await;

    // Refused while the others are younger than a second.
    let config = gateway.authorities.client_tls(None).config(&[H2]);
    let served = soon(async {
        loop {
            if let Ok(stream) = gateway.try_connect(config.clone()).await {
                return http2(stream).await;
            }
        }
    });
    let mut served = served.await;
    text(soon(served.send_request(get("/"))).await.unwrap()).await;
    assert!(is_closed(&mut silent).await, "the oldest");
    assert!(limit.evicted() >= 1);
    text(soon(used.send_request(get("/"))).await.unwrap()).await;
    drop((idle, used, served));
    until(|| limit.open() == 0).await;
}

#[tokio::test]
async fn a_connection_that_had_a_request_is_never_cut() {
    let (gateway, limit) = limited(2, None);
    let (mut one, mut other) = (gateway.http2(None).await, gateway.http1(None).await);
    text(soon(one.send_request(get("/"))).await.unwrap()).await;
    text(soon(other.send_request(get("/"))).await.unwrap()).await;
    let mut refused = TcpStream::connect(gateway.address).await.unwrap();
    assert!(is_closed(&mut refused).await);
    assert_eq!((limit.open(), limit.refused(), limit.evicted()), (2, 1, 0));
    text(soon(one.send_request(get("/"))).await.unwrap()).await;
    soon(other.ready()).await.unwrap();
    text(soon(other.send_request(get("/"))).await.unwrap()).await;
    drop(other);
    until(|| limit.open() == 1).await;
    gateway.info_of(None).await;
}

#[tokio::test]
async fn one_address_has_a_bound_of_its_own() {
    let (gateway, limit) = limited(100, Some(2));
    let (one, _other) = (gateway.http2(None).await, gateway.http2(None).await);
    let mut refused = TcpStream::connect(gateway.address).await.unwrap();
    assert!(is_closed(&mut refused).await);
    assert_eq!((limit.open(), limit.refused()), (2, 1));
    drop(one);
    until(|| limit.open() == 1).await;
    gateway.info_of(None).await;
}
