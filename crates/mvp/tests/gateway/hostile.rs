//! A peer with a valid certificate and hostile responses.

use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use mvp_apiserver::Storage;
use serde_json::json;

use crate::cluster::{AGGREGATED, Bulk, CONFIG_MAPS, any, api_server, serve};
use crate::support::client::Client;
use crate::support::double::{Body, Double};
use crate::support::eventually;
use crate::support::process::{Gateway, free_address};

const MIB: u64 = 1 << 10;
/// The memory of the gateway and of one round with one peer. Documents of the largest real clusters
/// have a tenth of that.
const BOUND: u64 = 256 * MIB;

#[tokio::test]
async fn garbage() {
    let body = Bytes::from_static(b"\x00\xff{\"items\": [}]");
    survives("garbage", 30, move |_| aggregated(Full::from(body.clone()).boxed_unsync())).await;
}

#[tokio::test]
async fn not_found_to_everything() {
    survives("404", 30, move |_| {
        let mut response = aggregated(Full::default().boxed_unsync());
        *response.status_mut() = StatusCode::NOT_FOUND;
        response
    })
    .await;
}

#[tokio::test]
async fn a_list_of_the_wrong_shape() {
    let list = json!({ "kind": "APIGroupDiscoveryList", "items": [null, 1, {"versions": "v1"}] });
    let body = Bytes::from(list.to_string());
    survives("wrong shape", 30, move |_| aggregated(Full::from(body.clone()).boxed_unsync())).await;
}

#[tokio::test]
async fn a_document_of_100_megabytes() {
    let bulk = Bulk::default();
    survives("100 MB", 9, move |_| aggregated(bulk.body(100_000_000))).await;
}

#[tokio::test]
async fn endless_and_hanging_documents_are_abandoned() {
    let bulk = Bulk::default();
    survives("endless", 9, move |_| aggregated(bulk.body(u64::MAX))).await;
    // No further request is sent until this one has timed out.
    survives("silent", 3, move |_| {
        let never = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        aggregated(StreamBody::new(never).boxed_unsync())
    })
    .await;
}

#[tokio::test]
async fn a_deeply_nested_document_is_rejected() {
    let mut text = br#"{"kind":"APIGroupDiscoveryList","items":"#.to_vec();
    text.extend(std::iter::repeat_n(b'[', 8 << 20));
    let body = Bytes::from(text);
    survives("deep", 9, move |_| aggregated(Full::from(body.clone()).boxed_unsync())).await;
}

#[tokio::test]
async fn a_gzip_bomb() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..512 {
        packed.write_all(&[b' '; 1 << 20]).unwrap();
    }
    let body = Bytes::from(packed.finish().unwrap());
    survives("gzip bomb", 9, move |_| {
        let mut response = aggregated(Full::from(body.clone()).boxed_unsync());
        response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        response
    })
    .await;
}

/// A server with legacy discovery gets a request for each version: each document is small, the sum
/// is not.
#[tokio::test]
async fn a_walk_over_large_documents() {
    let versions = (0..500).map(|n| format!("v{}", n + 1));
    let versions = versions.map(|v| json!({ "groupVersion": format!("big.io/{v}"), "version": v }));
    let group = json!({ "name": "big.io", "versions": versions.collect::<Vec<_>>() });
    let root = json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] }).to_string();
    let padding = Bytes::from(vec![b'x'; 6 << 20]);
    survives("walk", 100, move |path| {
        let frames = match path.strip_prefix("/apis/big.io/") {
            None => vec![Bytes::from(root.clone())],
            Some(version) => vec![
                format!(r#"{{"kind":"APIResourceList","groupVersion":"big.io/{version}","#).into(),
                r#""resources":[{"name":"things","verbs":["get"],"kind":"Thing","#.into(),
                r#""namespaced":true,"singularName":""#.into(),
                padding.clone(),
                r#""}]}"#.into(),
            ],
        };
        let frames = frames.into_iter().map(|data| Ok::<_, Infallible>(Frame::data(data)));
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        let mut response = Response::new(body);
        response.headers_mut().insert("content-type", "application/json".parse().unwrap());
        response
    })
    .await;
}

/// The gateway logs the peer, serves its own APIs and keeps its memory bounded while the peer
/// answers this many requests. A round has three.
async fn survives(
    name: &str,
    times: usize,
    lie: impl Fn(&str) -> Response<Body> + Send + Sync + 'static,
) {
    let lies = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&lies);
    let peer = Double::start(any(), move |request| {
        told.fetch_add(1, Ordering::SeqCst);
        std::future::ready(lie(request.uri().path()))
    })
    .await;
    let server = serve(any(), api_server("b", Storage::new())).await;
    let flags = [
        format!("--peer=liar=https://{},kind=bare", peer.address),
        "--refresh-interval=100ms".to_owned(),
    ];
    let gateway = Gateway::start(free_address(), "b", server.address, &flags);
    eventually("the local server is seen", async || match gateway.ask("/readyz").await {
        Some((503, reason)) if reason.contains("[+]local-server ok") => Ok(()),
        other => Err(other),
    })
    .await;
    let client = Client::user(gateway.address).await;
    eventually(name, async || {
        assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
        let (code, reason) = gateway.ask("/readyz").await.expect("it answers");
        assert_eq!(code, 503, "{reason}");
        assert!(reason.contains("of liar"), "{reason}");
        let lies = lies.load(Ordering::SeqCst);
        if lies >= times { Ok(()) } else { Err((lies, gateway.memory())) }
    })
    .await;
    let memory = gateway.memory();
    println!("{name}, KiB: {memory:?}");
    assert!(memory.most <= BOUND, "{name}: {memory:?}");
}

fn aggregated(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", AGGREGATED.parse().unwrap());
    response
}
