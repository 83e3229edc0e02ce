//! Members with a valid certificate that lie about what they serve, or answer anything.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use serde_json::{Value, json};

use super::target::Other;
use crate::cluster::{
    Bulk, CONFIG_MAPS, answer, any, api_server, assert_refusal, json_response, serve,
};
use crate::support::client::Client;
use crate::support::double::{Body, Double};
use crate::support::pki::PKI;
use crate::support::process::{Gateway, free_address};
use crate::support::{eventually, soon};

const MIB: u64 = 1 << 10;
/// The memory of a gateway whose peer lies, in KiB.
const BOUND: u64 = 256 * MIB;
/// An API that nobody else serves.
const THINGS: &str = "/apis/anything.example/v1/namespaces/default/things";
/// An API of the local server that the liar claims, too.
const GEARS: &str = "/apis/other.example.com/v1/gears";

/// A server that lists its own API, and those of everybody else.
fn greedy() -> ApiServer {
    let core = [ResourceSpec::namespaced("configmaps", "ConfigMap")];
    let groups = vec![
        GroupSpec::new("").version("v1", core),
        GroupSpec::new("other.example.com").version("v1", [ResourceSpec::cluster("gears", "Gear")]),
        GroupSpec::new("anything.example")
            .version("v1", [ResourceSpec::namespaced("things", "Thing")]),
    ];
    let git_version = "v9.99.0".to_owned();
    let spec = ServerSpec { id: "liar".to_owned(), git_version, groups, ..ServerSpec::default() };
    ApiServer::new(spec, Storage::new())
}

/// A gateway beside a server, with a peer whose answers are lies where there are any.
struct Lied {
    gateway: Gateway,
    _server: Double,
    _liar: Double,
}

async fn lied(lie: impl Fn(&str) -> Option<Response<Body>> + Send + Sync + 'static) -> Lied {
    let (api, lie) = (greedy(), Arc::new(lie));
    let liar = Double::start(any(), move |request: Request<Incoming>| {
        let (api, lie) = (api.clone(), Arc::clone(&lie));
        async move {
            match lie(request.uri().path()) {
                Some(lie) => lie,
                None => answer(api, Bulk::default(), request).await,
            }
        }
    })
    .await;
    let api = api_server("b", Storage::new());
    let server = Double::start(any(), move |request: Request<Incoming>| {
        let api = api.clone();
        async move {
            match request.uri().path() {
                "/openapi/v3" => json_response(StatusCode::OK, &json!({ "paths": {} })),
                "/openapi/v2" => json_response(StatusCode::OK, &swagger()),
                _ => answer(api, Bulk::default(), request).await,
            }
        }
    })
    .await;
    let flag = format!("--peer=liar=https://{},kind=bare", liar.address);
    let gateway = Gateway::start(free_address(), "b", server.address, &[flag]);
    Lied { gateway: gateway.ready().await, _server: server, _liar: liar }
}

fn swagger() -> Value {
    json!({ "swagger": "2.0", "info": { "title": "k", "version": "v1" }, "paths": {} })
}

fn gzip(mebibytes: usize) -> Bytes {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..mebibytes {
        packed.write_all(&[b' '; 1 << 20]).unwrap();
    }
    packed.finish().unwrap().into()
}

fn deep() -> Bytes {
    let mut text = br#"{"kind":"Status","details":"#.to_vec();
    text.extend(std::iter::repeat_n(b'[', 400 << 10));
    text.into()
}

fn reply(code: StatusCode, kind: &str, encoding: Option<&str>, body: Body) -> Response<Body> {
    let response = Response::builder().status(code).header("content-type", kind);
    let response = match encoding {
        Some(encoding) => response.header("content-encoding", encoding),
        None => response,
    };
    response.body(body).unwrap()
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::from(bytes.into()).boxed_unsync()
}

#[tokio::test]
async fn a_member_that_claims_every_api_gets_only_what_nobody_else_serves() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let Lied { gateway, _server, _liar } = lied(move |path| {
        [CONFIG_MAPS, GEARS].contains(&path).then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            json_response(StatusCode::OK, &Value::Null)
        })
    })
    .await;
    let client = Client::user(gateway.address).await;
    for path in [CONFIG_MAPS, GEARS] {
        for _ in 0..10 {
            let (code, list) = client.call(Method::GET, path, Value::Null).await;
            assert_eq!((code, &list["apiVersion"].is_string()), (StatusCode::OK, &true), "{list}");
        }
    }
    assert_eq!(client.get(THINGS).await.0, StatusCode::OK);
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the local server serves them");
}

/// None of these 404s proves that nobody serves the API, so none reaches the client. `mvp` reads a part
/// of each.
#[tokio::test]
async fn a_404_that_proves_nothing_is_a_503_whatever_its_body_is() {
    const JSON: &str = "application/json";
    const CBOR: &str = "application/cbor";
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let bomb = gzip(256);
    let lies: Vec<(&str, &str, Option<&str>, Bytes)> = vec![
        ("empty", JSON, None, Bytes::new()),
        ("text", "text/plain", None, "404 page not found\n".into()),
        ("not JSON", JSON, None, "\0\u{ff}{".into()),
        ("deep JSON", JSON, None, deep()),
        ("deep CBOR", CBOR, None, vec![0x81; 400 << 10].into()),
        ("a long CBOR text", CBOR, None, vec![0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff].into()),
        (
            "protobuf",
            PROTOBUF,
            None,
            b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f".to_vec().into(),
        ),
        ("a bomb", JSON, Some("gzip"), bomb.clone()),
        ("a bomb without an end", JSON, Some("gzip"), bomb.slice(..bomb.len() / 2)),
        ("no gzip", JSON, Some("gzip"), "{}".into()),
        ("an unknown coding", JSON, Some("br"), "{}".into()),
        ("many codings", JSON, Some("gzip, gzip, gzip, gzip"), bomb),
    ];
    let names: Vec<&str> = lies.iter().map(|lie| lie.0).collect();
    let Lied { gateway, _server, _liar } = lied(move |path| {
        let number = path.strip_prefix(THINGS)?.trim_matches('/').parse::<usize>().ok()?;
        if number == 99 {
            let endless = Bulk::default().body(u64::MAX);
            return Some(reply(StatusCode::NOT_FOUND, JSON, None, endless));
        }
        let (_, kind, encoding, body) = lies[number].clone();
        Some(reply(StatusCode::NOT_FOUND, kind, encoding, full(body)))
    })
    .await;
    let mut other = Other::start(&gateway).await;
    let client = Client::user(gateway.address).await;
    let numbered = names.iter().enumerate().map(|(number, name)| (number, *name));
    for (number, name) in numbered.chain([(99, "endless")]) {
        let (code, status) =
            client.call(Method::GET, &format!("{THINGS}/{number}"), Value::Null).await;
        println!("{name}: {code}");
        assert_refusal(code, &status);
        other.is_served(name).await;
    }
    let memory = gateway.memory();
    assert!(memory.most <= BOUND, "{memory:?}");
    let refused = gateway.requests_logged();
    let refused = refused.iter().filter(|line| line["action"] == "refuse").count();
    assert!(refused >= names.len(), "{refused} lines of refused requests");
}

#[tokio::test]
async fn lies_about_the_version_and_the_schemas_change_nothing_for_others() {
    let bomb = gzip(256);
    for (at, form) in [
        ("/version", "garbage"),
        ("/version", "bomb"),
        ("/version", "endless"),
        ("/openapi/v3", "deep"),
        ("/openapi/v3", "bomb"),
        ("/openapi/v2", "deep"),
        ("/openapi/v2", "bomb"),
    ] {
        let bomb = bomb.clone();
        let told = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&told);
        let Lied { gateway, _server, _liar } = lied(move |path| {
            if path != at {
                return None;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            let (encoding, body) = match form {
                "garbage" => (None, full("\0\u{ff}{")),
                "deep" => (None, full(deep())),
                "bomb" => (Some("gzip"), full(bomb.clone())),
                _ => (None, Bulk::default().body(u64::MAX)),
            };
            Some(reply(StatusCode::OK, "application/json", encoding, body))
        })
        .await;
        let client = Client::user(gateway.address).await;
        eventually("the lie is told", async || {
            // Schemas are fetched when a client asks.
            assert_eq!(client.get("/openapi/v3").await.0, StatusCode::OK, "{at} {form}");
            assert_eq!(client.get("/openapi/v2").await.0, StatusCode::OK, "{at} {form}");
            let told = told.load(Ordering::SeqCst);
            if told > 0 { Ok(()) } else { Err(told) }
        })
        .await;
        assert_eq!(client.get(THINGS).await.0, StatusCode::OK, "{at} {form}");
        Other::start(&gateway).await.is_served(at).await;
        let memory = gateway.memory();
        assert!(memory.most <= BOUND, "{at} {form}: {memory:?}");
    }
}

/// A member that has no API server, but a proxy that leads back to us.
#[tokio::test]
async fn a_member_that_proxies_back_gets_one_request_and_no_second_hop() {
    let hops = Arc::new(AtomicUsize::new(0));
    let back = Arc::new(OnceLock::new());
    let (counted, to) = (Arc::clone(&hops), Arc::clone(&back));
    let api = greedy();
    let loops = Double::start(any(), move |request: Request<Incoming>| {
        let (counted, to, api) = (Arc::clone(&counted), Arc::clone(&to), api.clone());
        async move {
            let path = request.uri().path().to_owned();
            if !path.starts_with(THINGS) {
                return answer(api, Bulk::default(), request).await;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            let config = PKI.front_proxy(b"h2");
            let (client, _) = Client::with(*to.get().unwrap(), config).await.unwrap();
            let mut onwards = client.request(Method::GET, &path).body(Full::default()).unwrap();
            *onwards.headers_mut() = request.headers().clone();
            let (parts, body) = client.send(onwards).await.into_parts();
            let body = soon(body.collect()).await.unwrap().to_bytes();
            Response::from_parts(parts, full(body))
        }
    })
    .await;
    let server = serve(any(), api_server("b", Storage::new())).await;
    let flag = format!("--peer=loops=https://{},kind=bare", loops.address);
    let gateway = Gateway::start(free_address(), "b", server.address, &[flag]).ready().await;
    back.set(gateway.address).unwrap();
    let client = Client::user(gateway.address).await;
    let (code, status) = client.call(Method::GET, THINGS, Value::Null).await;
    assert_refusal(code, &status);
    // A read may be sent again.
    let hops = hops.load(Ordering::SeqCst);
    assert!((1..=2).contains(&hops), "{hops}");
    Other::start(&gateway).await.is_served("a loop").await;
}
