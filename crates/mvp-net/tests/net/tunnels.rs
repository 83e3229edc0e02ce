//! Connections that were upgraded: they belong to the service, but the drain knows of them.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use mvp_net::{Drained, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tower::service_fn;
use tower::util::BoxCloneService;

use crate::support::{Gateway, get, soon};

type Stream = TokioIo<Upgraded>;

/// A listener whose service upgrades every request, and hands out what it got.
fn upgrading(limits: Limits) -> (Gateway, UnboundedReceiver<Stream>) {
    let (sender, receiver) = unbounded_channel();
    let service = service_fn(move |request: Request<Incoming>| {
        let sender = sender.clone();
        tokio::spawn(async move {
            let _ = sender.send(TokioIo::new(hyper::upgrade::on(request).await.unwrap()));
        });
        let response = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "upgrade")
            .header("upgrade", "anything")
            .body(Empty::<Bytes>::new().boxed())
            .unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    (Gateway::with_service(limits, BoxCloneService::new(service)), receiver)
}

/// The client's end of a new tunnel.
async fn tunnel(gateway: &Gateway) -> Stream {
    let mut sender = gateway.http1(None).await;
    let mut request = get("/");
    request.headers_mut().insert("connection", "upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "anything".parse().unwrap());
    let response = soon(sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    TokioIo::new(soon(hyper::upgrade::on(response)).await.unwrap())
}

async fn passes(from: &mut Stream, to: &mut Stream) {
    soon(from.write_all(b"word")).await.unwrap();
    soon(from.flush()).await.unwrap();
    let mut word = [0; 4];
    soon(to.read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"word");
}

#[tokio::test]
async fn a_drain_waits_for_tunnels() {
    let (mut gateway, mut served) = upgrading(Limits::default());
    let mut client = tunnel(&gateway).await;
    let mut server = soon(served.recv()).await.unwrap();
    gateway.shutdown.cancel();
    for _ in 0..2 {
        passes(&mut client, &mut server).await;
        passes(&mut server, &mut client).await;
        assert!(!gateway.task.is_finished());
    }
    soon(client.shutdown()).await.unwrap();
    assert_eq!(soon(server.read(&mut [0])).await.unwrap(), 0);
    passes(&mut server, &mut client).await;
    assert!(!gateway.task.is_finished());
    drop(server);
    assert_eq!(soon(&mut gateway.task).await.unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn a_tunnel_that_outlasts_the_grace_is_cut() {
    let limits = Limits { grace: Duration::from_millis(200), ..Limits::default() };
    let (gateway, mut served) = upgrading(limits);
    let mut client = tunnel(&gateway).await;
    let mut server = soon(served.recv()).await.unwrap();
    passes(&mut client, &mut server).await;
    // One that waits for a word is told, as is one that has something to say.
    let waiting = tokio::spawn(async move {
        let failed = server.read(&mut [0]).await.unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::ConnectionAborted);
        server.write_all(b"word").await.unwrap_err()
    });
    let also = tunnel(&gateway).await;
    gateway.shutdown.cancel();
    assert_eq!(soon(gateway.task).await.unwrap(), Drained { cut: 2 });
    assert_eq!(soon(waiting).await.unwrap().kind(), std::io::ErrorKind::ConnectionAborted);
    // Cut, and not ended.
    assert!(soon(client.read(&mut [0])).await.is_err());
    drop(also);
}

#[tokio::test]
async fn a_tunnel_that_is_half_closed_is_cut_too() {
    let limits = Limits { grace: Duration::from_millis(200), ..Limits::default() };
    let (gateway, mut served) = upgrading(limits);
    let mut client = tunnel(&gateway).await;
    let mut server = soon(served.recv()).await.unwrap();
    soon(client.shutdown()).await.unwrap();
    assert_eq!(soon(server.read(&mut [0])).await.unwrap(), 0);
    gateway.shutdown.cancel();
    assert_eq!(soon(gateway.task).await.unwrap(), Drained { cut: 1 });
    assert!(soon(server.flush()).await.is_err());
}

#[tokio::test]
async fn no_limit_of_http_ends_a_tunnel() {
    let short = Duration::from_millis(20);
    let limits = Limits { header_read_timeout: short, idle_timeout: short, ..Limits::default() };
    let (gateway, mut served) = upgrading(limits);
    let mut client = tunnel(&gateway).await;
    let mut server = soon(served.recv()).await.unwrap();
    for _ in 0..3 {
        // Each of the limits has passed several times when this one ends by them.
        let mut resting = gateway.http1(None).await;
        let closed = async {
            while resting.ready().await.is_ok() {
                tokio::time::sleep(short).await;
            }
        };
        soon(closed).await;
        passes(&mut client, &mut server).await;
        passes(&mut server, &mut client).await;
    }
}
