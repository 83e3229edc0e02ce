//! 404s in every encoding, too large ones and too slow ones.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http_body_util::channel::Channel;

use super::*;

const OBJECT: &str = r#"{"kind":"Status","details":{"name":"x"}}"#;

fn gzip(body: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &str) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A 404 in JSON with this encoding and body.
fn not_found(encoding: Option<&str>, body: Body) -> Response<Body> {
    let response = Response::builder().status(404).header(CONTENT_TYPE, "application/json");
    let response = match encoding {
        Some(encoding) => response.header(CONTENT_ENCODING, encoding),
        None => response,
    };
    response.body(body).unwrap()
}

/// The judgement. The body must pass through unchanged.
async fn judged(encoding: Option<&str>, body: Vec<u8>) -> NotFound {
    let (response, found) =
        inspect_not_found(not_found(encoding, Body::from(Bytes::from(body.clone())))).await;
    let passed = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(passed, body);
    found
}

#[tokio::test]
async fn a_body_is_judged_in_every_encoding_that_can_be_read() {
    for encoding in [None, Some("identity"), Some("IDENTITY")] {
        assert_eq!(judged(encoding, OBJECT.into()).await, NotFound::Object, "{encoding:?}");
    }
    for encoding in ["gzip", "GZIP", "x-gzip"] {
        assert_eq!(judged(Some(encoding), gzip(OBJECT)).await, NotFound::Object, "{encoding}");
    }
    assert_eq!(judged(Some("deflate"), deflate(OBJECT)).await, NotFound::Object);
    for encoding in ["br", "zstd", "gzip, gzip", "gzip"] {
        assert_eq!(judged(Some(encoding), OBJECT.into()).await, NotFound::Unclear, "{encoding}");
    }
    let bomb = gzip(&format!("{OBJECT}{}", " ".repeat(MAX_INSPECTED)));
    assert_eq!(judged(Some("gzip"), bomb).await, NotFound::Unclear);
}

#[tokio::test(start_paused = true)]
async fn a_large_slow_or_broken_body_is_unclear() {
    // Large: it has not ended when the limit is reached.
    let (mut sender, body) = Channel::<Bytes>::new(2);
    let large = format!("{}{OBJECT}", " ".repeat(MAX_INSPECTED));
    sender.send_data(large.clone().into()).await.unwrap();
    let (response, found) = inspect_not_found(not_found(None, Body::new(body))).await;
    assert_eq!(found, NotFound::Unclear);
    drop(sender);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), large);

    // Slow: it ends after the time limit.
    let (mut sender, body) = Channel::<Bytes>::new(2);
    let (response, found) = inspect_not_found(not_found(None, Body::new(body))).await;
    assert_eq!(found, NotFound::Unclear);
    sender.send_data(OBJECT.into()).await.unwrap();
    drop(sender);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), OBJECT);

    // Broken off.
    let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(2);
    sender.send_data(OBJECT.into()).await.unwrap();
    sender.abort(std::io::Error::other("reset"));
    let (response, found) = inspect_not_found(not_found(None, Body::new(body))).await;
    assert_eq!(found, NotFound::Unclear);
    assert!(response.into_body().collect().await.is_err());
}
