//! The end of a listener, and the end of a client.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Incoming;
use mvp_net::{Drained, Limits};
use tokio::net::TcpStream;
use tower::service_fn;
use tower::util::BoxCloneService;

use crate::support::{Gateway, get, soon, text};

type Feeder = Sender<Bytes, Infallible>;

/// Answers with bodies that the test feeds, first one first.
fn streaming(limits: Limits) -> (Gateway, Arc<Mutex<Vec<Feeder>>>) {
    let feeders = Arc::new(Mutex::new(Vec::new()));
    let made = Arc::clone(&feeders);
    let service = service_fn(move |_: Request<Incoming>| {
        let (feeder, body) = Channel::<Bytes, Infallible>::new(8);
        made.lock().unwrap().push(feeder);
        std::future::ready(Ok::<_, Infallible>(Response::new(body.boxed())))
    });
    (Gateway::with_service(limits, BoxCloneService::new(service)), feeders)
}

async fn refused(gateway: &Gateway) {
    soon(async {
        loop {
            match TcpStream::connect(gateway.address).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
}

async fn next(response: &mut Response<Incoming>) -> Bytes {
    soon(response.frame()).await.unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn a_running_response_ends_and_new_connections_are_refused() {
    let (gateway, feeders) = streaming(Limits::default());
    let mut http1 = gateway.http1(None).await;
    let mut http2 = gateway.http2(None).await;
    let idle = (gateway.http1(None).await, gateway.http2(None).await);
    let mut responses = [
        soon(http1.send_request(get("/1"))).await.unwrap(),
        soon(http2.send_request(get("/2"))).await.unwrap(),
    ];
    let mut feeders = std::mem::take(&mut *feeders.lock().unwrap());
    for (feeder, response) in feeders.iter_mut().zip(&mut responses) {
        feeder.send_data("before".into()).await.unwrap();
        assert_eq!(next(response).await, "before");
    }

    gateway.shutdown.cancel();
    refused(&gateway).await;
    for (mut feeder, response) in feeders.into_iter().zip(&mut responses) {
        feeder.send_data("after".into()).await.unwrap();
        assert_eq!(next(response).await, "after");
        drop(feeder);
        let rest = soon(response.body_mut().collect()).await.unwrap().to_bytes();
        assert!(rest.is_empty(), "ended, and not cut");
    }
    assert_eq!(soon(gateway.task).await.unwrap(), Drained { cut: 0 });
    drop(idle);
}

#[tokio::test]
async fn what_outlasts_the_grace_is_cut() {
    let limits = Limits { grace: Duration::from_millis(200), ..Limits::default() };
    let (gateway, feeders) = streaming(limits);
    let mut http1 = gateway.http1(None).await;
    let mut http2 = gateway.http2(None).await;
    let mut responses = [
        soon(http1.send_request(get("/1"))).await.unwrap(),
        soon(http2.send_request(get("/2"))).await.unwrap(),
    ];
    gateway.shutdown.cancel();
    assert_eq!(soon(gateway.task).await.unwrap(), Drained { cut: 2 });
    for response in &mut responses {
        assert!(soon(response.frame()).await.unwrap().is_err(), "cut, and not ended");
    }
    drop(feeders);
}

#[tokio::test]
async fn an_unfinished_handshake_does_not_hold_up_the_drain() {
    let (gateway, _) = streaming(Limits { handshake_timeout: Duration::MAX, ..Limits::default() });
    let silent = TcpStream::connect(gateway.address).await.unwrap();
    // The listener accepts in order: when this one is served, the silent one was accepted.
    drop(gateway.http2(None).await);
    gateway.shutdown.cancel();
    assert_eq!(soon(gateway.task).await.unwrap(), Drained { cut: 0 });
    drop(silent);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_response() {
    let (gateway, feeders) = streaming(Limits::default());
    for http2 in [false, true] {
        let response = if http2 {
            soon(gateway.http2(None).await.send_request(get("/"))).await.unwrap()
        } else {
            soon(gateway.http1(None).await.send_request(get("/"))).await.unwrap()
        };
        let feeder = feeders.lock().unwrap().pop().unwrap();
        drop(response);
        // The other end of the feeder is the body, which the server lets go: it says nothing, so
        // only its absence can be seen.
        let mut feeder = feeder;
        soon(async {
            while feeder.send_data(Bytes::new()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_over_http1_learns_of_the_end_from_a_response() {
    let gateway = Gateway::start(Limits::default());
    let mut kept = gateway.http1(None).await;
    let response = soon(kept.send_request(get("/before"))).await.unwrap();
    assert!(!response.headers().contains_key("connection"));
    text(response).await;
    gateway.shutdown.cancel();
    refused(&gateway).await;
    let response = soon(kept.send_request(get("/after"))).await.unwrap();
    assert_eq!(response.headers()["connection"], "close");
    text(response).await;
    assert_eq!(soon(gateway.task).await.unwrap(), Drained { cut: 0 });
}
