//! A service ends one connection with `ConnectionInfo::end`; the others stay.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use mvp_net::{ConnectionInfo, Limits};
use tower::service_fn;
use tower::util::BoxCloneService;

use crate::support::{Gateway, get, soon, text};

type Feeder = Sender<Bytes, Infallible>;

/// `/end` ends its connection, `/watch` streams what the test feeds it.
fn gateway() -> (Gateway, Arc<Mutex<Option<Feeder>>>) {
    let feeder = Arc::new(Mutex::new(None));
    let made = Arc::clone(&feeder);
    let service = service_fn(move |request: Request<Incoming>| {
        let info = request.extensions().get::<ConnectionInfo>().unwrap();
        let body = match request.uri().path() {
            "/watch" => {
                let (feeder, body) = Channel::<Bytes, Infallible>::new(8);
                *made.lock().unwrap() = Some(feeder);
                body.boxed()
            }
            "/end" => {
                info.end();
                assert!(info.is_ending());
                Empty::new().boxed()
            }
            _ => Empty::new().boxed(),
        };
        ready(Ok::<_, Infallible>(Response::new(body)))
    });
    (Gateway::with_service(Limits::default(), BoxCloneService::new(service)), feeder)
}

#[tokio::test]
async fn an_http2_connection_takes_no_new_request_and_finishes_those_it_has() {
    let (gateway, feeder) = gateway();
    let mut ended = gateway.http2(None).await;
    let mut other = gateway.http2(None).await;
    let mut watch = soon(ended.send_request(get("/watch"))).await.unwrap();
    let mut feeder = feeder.lock().unwrap().take().unwrap();
    text(soon(ended.send_request(get("/end"))).await.unwrap()).await;
    soon(async {
        while ended.ready().await.is_ok() && ended.send_request(get("/")).await.is_ok() {}
    })
    .await;

    feeder.send_data("event".into()).await.unwrap();
    let event = soon(watch.frame()).await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(event, "event");
    drop(feeder);
    let rest = soon(watch.body_mut().collect()).await.unwrap().to_bytes();
    assert!(rest.is_empty(), "ended, and not cut");
    soon(other.send_request(get("/"))).await.unwrap();
}

#[tokio::test]
async fn an_http1_connection_closes_after_the_response() {
    let (gateway, _) = gateway();
    let mut ended = gateway.http1(None).await;
    let mut other = gateway.http1(None).await;
    let response = soon(ended.send_request(get("/before"))).await.unwrap();
    assert!(!response.headers().contains_key("connection"));
    text(response).await;
    soon(ended.ready()).await.unwrap();
    let response = soon(ended.send_request(get("/end"))).await.unwrap();
    assert_eq!(response.headers()["connection"], "close");
    text(response).await;
    assert!(soon(ended.ready()).await.is_err());

    let response = soon(other.send_request(get("/"))).await.unwrap();
    assert!(!response.headers().contains_key("connection"));
}
