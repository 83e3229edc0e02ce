//! OpenAPI of all members together: the index, the documents it names, and the large one of
//! version 2; only for those whom the local server lets have it; and what bad peers do to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use crate::client::{Answer, BOTH, TestBody, ask, full, get, with};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::soon;
use crate::world::World;

const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The documents of version 3 of a server, by key: hash and body.
type Documents = BTreeMap<&'static str, (&'static str, &'static str)>;

/// Has a double answer for OpenAPI as kube-apiserver does.
fn describes(double: &Double, documents: &[(&'static str, &'static str, &'static str)], v2: Value) {
    let documents: Arc<Documents> =
        Arc::new(documents.iter().map(|(key, hash, body)| (*key, (*hash, *body))).collect());
    let v2 = v2.to_string();
    double.rule("/openapi", move |request| {
        let response = match request.uri().path() {
            "/openapi/v2" => tagged(&request, &v2.len().to_string(), &v2),
            "/openapi/v3" => index(&documents),
            path => {
                let key = path.strip_prefix("/openapi/v3/").unwrap_or_default();
                match documents.get(key) {
                    Some((hash, body)) => tagged(&request, hash, body),
                    None => answer(StatusCode::NOT_FOUND, full("404 page not found\n")),
                }
            }
        };
        std::future::ready(response)
    });
}

fn index(documents: &Documents) -> Response<TestBody> {
    let url = |key: &str, hash: &str| json!({"serverRelativeURL": format!("/openapi/v3/{key}?hash={hash}")});
    let paths: serde_json::Map<String, Value> =
        documents.iter().map(|(key, (hash, _))| ((*key).to_owned(), url(key, hash))).collect();
    let mut response = answer(StatusCode::OK, full(json!({"paths": paths}).to_string()));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn tagged(request: &Request<TestBody>, hash: &str, body: &str) -> Response<TestBody> {
    let etag = format!("\"{hash}\"");
    let known = request.headers().get("if-none-match").is_some_and(|tag| tag == etag.as_str());
    let mut response = match known {
        true => answer(StatusCode::NOT_MODIFIED, full("")),
        false => answer(StatusCode::OK, full(body.to_owned())),
    };
    response.headers_mut().insert("etag", etag.parse().unwrap());
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn swagger(version: &str, paths: &[&str]) -> Value {
    let paths: serde_json::Map<String, Value> =
        paths.iter().map(|path| ((*path).to_owned(), json!({"of": version}))).collect();
    json!({"swagger": "2.0", "info": {"version": version}, "paths": paths, "definitions": {
        "Shared": {"of": version}, version: {},
    }})
}

struct Described {
    local: Double,
    peer: Double,
    gateway: Gateway,
}

/// An older server and a newer one, which serves more of what both have.
async fn described() -> Described {
    let local = Double::start("a", "v1.34.0", &[("both.example", "things")]).await;
    let peer = Double::start(
        "b",
        "v1.36.0",
        &[("both.example", "things others"), ("b.example", "things")],
    )
    .await;
    describes(
        &local,
        &[("apis/both.example/v1", "0A", "both of a"), ("version", "0V", "version")],
        swagger("v1.34", &["/version", "/apis/both.example/v1/things"]),
    );
    describes(
        &peer,
        &[
            ("apis/both.example/v1", "0B", "both of b"),
            ("apis/b.example/v1", "0C", "of b"),
            ("version", "0V", "version"),
        ],
        swagger("v1.36", &["/version", "/apis/b.example/v1/things"]),
    );
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    Described { local, peer, gateway }
}

async fn fetch(gateway: &Gateway, path: &str) -> Answer {
    ask(gateway.address, BOTH[1], None, get(path)).await
}

#[tokio::test]
async fn the_openapi_index_lists_the_documents_of_all_members() {
    let Described { gateway, local: _local, peer: _peer } = described().await;
    let index = fetch(&gateway, "/openapi/v3").await;
    assert_eq!(index.status, StatusCode::OK);
    let url = |key: &str, hash: &str| json!({"serverRelativeURL": format!("/openapi/v3/{key}?hash={hash}")});
    let expected = json!({"paths": {
        "apis/b.example/v1": url("apis/b.example/v1", "0C"),
        "apis/both.example/v1": url("apis/both.example/v1", "0B"),
        "version": url("version", "0V"),
    }});
    assert_eq!(index.json(), expected);

    let mut again = get("/openapi/v3");
    again.headers_mut().insert("if-none-match", index.headers["etag"].clone());
    let again = ask(gateway.address, BOTH[0], None, again).await;
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));

    let alone = with(get("/openapi/v3"), "accept", "application/json;profile=nopeer");
    let alone = ask(gateway.address, BOTH[1], None, alone).await;
    let alone = alone.json()["paths"].as_object().unwrap().clone();
    assert!(alone.keys().eq(["apis/both.example/v1", "version"]), "{alone:?}");
}

#[tokio::test]
async fn a_document_matches_its_index_hash_and_is_cached() {
    let Described { gateway, local, peer } = described().await;
    for (key, hash, body) in
        [("apis/b.example/v1", "0C", "of b"), ("apis/both.example/v1", "0B", "both of b")]
    {
        for protocol in BOTH {
            let request = get(&format!("/openapi/v3/{key}?hash={hash}"));
            let document = ask(gateway.address, protocol, None, request).await;
            assert_eq!((document.status, document.text().as_str()), (StatusCode::OK, body));
            assert_eq!(document.headers["etag"], format!("\"{hash}\""));
            assert_eq!(document.headers["cache-control"], "public, immutable");
        }
        let path = format!("/openapi/v3/{key}");
        let asked = peer.requests.of(&path).len();
        assert_eq!(asked, 1, "{key}: what is kept is not asked for again");

        let plain = fetch(&gateway, &path).await;
        assert_eq!(plain.text(), body);
        assert_ne!(plain.headers["cache-control"], "public, immutable", "it may be another soon");
        let old = fetch(&gateway, &format!("{path}?hash=0F")).await;
        assert_eq!(old.status, StatusCode::MOVED_PERMANENTLY);
        assert_eq!(old.headers["location"], format!("{path}?hash={hash}"));
    }
    let own = fetch(&gateway, "/openapi/v3/version?hash=0V").await;
    assert_eq!(own.text(), "version");
    assert_eq!(peer.requests.of("/openapi/v3/version").len(), 0, "the local server has the same");
    assert!(!local.requests.of("/openapi/v3/version").is_empty());

    let nowhere = fetch(&gateway, "/openapi/v3/apis/nowhere.example/v1").await;
    assert_eq!(nowhere.status, StatusCode::NOT_FOUND);

    // Its only holder goes away; who asked before, and who did not.
    drop(peer);
    let kept = fetch(&gateway, "/openapi/v3/apis/b.example/v1?hash=0C").await;
    assert_eq!(kept.text(), "of b");
}

#[tokio::test]
async fn another_members_document_is_served_while_its_owner_is_unavailable() {
    let Described { gateway, peer, local: _local } = described().await;
    drop(peer);
    let other = fetch(&gateway, "/openapi/v3/apis/both.example/v1?hash=0B").await;
    assert_eq!((other.status, other.text().as_str()), (StatusCode::OK, "both of a"));
    assert_eq!(other.headers["etag"], "\"0A\"");
    assert_ne!(other.headers["cache-control"], "public, immutable");
    let only = fetch(&gateway, "/openapi/v3/apis/b.example/v1?hash=0C").await;
    assert_eq!(only.status, StatusCode::SERVICE_UNAVAILABLE, "{}", only.text());
}

#[tokio::test]
async fn openapi_v2_is_merged_from_all_members() {
    let Described { gateway, local, peer } = described().await;
    let merged = fetch(&gateway, "/openapi/v2").await;
    assert_eq!(merged.headers["content-type"], "application/json");
    let expected = json!({"swagger": "2.0", "info": {"version": "v1.36"}, "paths": {
        "/version": {"of": "v1.36"},
        "/apis/both.example/v1/things": {"of": "v1.34"},
        "/apis/b.example/v1/things": {"of": "v1.36"},
    }, "definitions": {"Shared": {"of": "v1.36"}, "v1.34": {}, "v1.36": {}}});
    assert_eq!(merged.json(), expected);

    let mut again = get("/openapi/v2");
    again.headers_mut().insert("if-none-match", merged.headers["etag"].clone());
    let again = ask(gateway.address, BOTH[0], None, again).await;
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));

    let alone = with(get("/openapi/v2"), "accept", "application/json;profile=nopeer");
    let alone = ask(gateway.address, BOTH[1], None, alone).await;
    assert_eq!(alone.json()["info"]["version"], "v1.34");

    // What was the truth once stays it while its server cannot say otherwise.
    drop(peer);
    describes(&local, &[], swagger("v1.34", &["/new"]));
    let with_both = async {
        loop {
            let paths = fetch(&gateway, "/openapi/v2").await.json()["paths"].clone();
            assert!(paths.get("/apis/b.example/v1/things").is_some(), "{paths}");
            if paths.get("/new").is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(with_both).await;
}

#[tokio::test]
async fn openapi_is_served_as_protobuf_on_request() {
    fn document(path: &str) -> Vec<u8> {
        let field = |number: u8, content: &[u8]| {
            [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
        };
        let item = [field(1, path.as_bytes()), field(2, b"")].concat();
        [field(1, b"2.0"), field(8, &field(2, &item))].concat()
    }
    let world = World::start().await;
    for (double, path) in [(&world.local, "/l"), (&world.bare, "/b"), (&world.behind, "/m")] {
        double.rule("/openapi/v2", move |request| {
            assert_eq!(request.headers()["accept"], PROTOBUF_V2);
            let mut response = answer(StatusCode::OK, full(document(path)));
            response.headers_mut().insert("content-type", PROTOBUF_V2.parse().unwrap());
            std::future::ready(response)
        });
    }
    let request = with(get("/openapi/v2"), "accept", PROTOBUF_V2);
    let merged = ask(world.gateway.address, BOTH[1], None, request).await;
    assert_eq!(merged.headers["content-type"], PROTOBUF_V2);
    for path in ["/l", "/b", "/m"] {
        let found = merged.body.windows(path.len()).filter(|part| *part == path.as_bytes());
        assert_eq!(found.count(), 1, "{path} in {:?}", merged.body);
    }
}

#[tokio::test]
async fn only_the_local_server_authorizes_openapi() {
    let Described { gateway, local, peer: _peer } = described().await;
    let paths = [
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/apis/b.example/v1?hash=0C",
        "/openapi/v3/version",
    ];
    for path in paths {
        assert_eq!(fetch(&gateway, path).await.status, StatusCode::OK, "{path}");
    }
    for status in [401, 403, 429, 500] {
        local.says("/openapi", status, "application/json", "{\"of\":\"local\"}");
        for path in paths {
            let denied = fetch(&gateway, path).await;
            let seen = (denied.status.as_u16(), denied.text());
            assert_eq!(seen, (status, "{\"of\":\"local\"}".to_owned()), "{path}");
        }
    }
}

/// A body without end.
fn endless() -> TestBody {
    let frame = || Ok(http_body::Frame::data(Bytes::from_static(&[b' '; 64 << 10])));
    let frames = futures_util::stream::repeat_with(frame);
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

#[tokio::test]
async fn a_bad_index_of_a_peer_keeps_its_last_good_documents() {
    let Described { gateway, peer, local: _local } = described().await;
    let before = fetch(&gateway, "/openapi/v3").await.body;
    type Bad = fn() -> Response<TestBody>;
    let bad: [Bad; 5] = [
        || answer(StatusCode::OK, full("this is no index")),
        || answer(StatusCode::OK, full("{\"paths\":[]}")),
        || answer(StatusCode::OK, endless()),
        || answer(StatusCode::INTERNAL_SERVER_ERROR, full("")),
        || answer(StatusCode::FORBIDDEN, full("")),
    ];
    for (place, bad) in bad.into_iter().enumerate() {
        peer.rule("/openapi/v3", move |_| std::future::ready(bad()));
        let asked = peer.requests.of("/openapi/v3").len();
        let view = |id: &str| gateway.reader.load().member_by_id(id).unwrap().view.clone();
        // A 404 that nobody can explain has all members asked anew.
        let unknown = fetch(&gateway, "/apis/nowhere.example/v1/things").await;
        assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{place}: discovery goes on");
        assert!(peer.requests.of("/openapi/v3").len() > asked, "{place}: it was asked");
        assert!(view("b").openapi.is_some());
        assert!(fetch(&gateway, "/openapi/v3").await.body == before, "{place}");
    }
}

#[tokio::test]
async fn a_document_with_a_wrong_hash_is_not_cached() {
    let Described { gateway, peer, local: _local } = described().await;
    peer.rule("/openapi/v3/apis/b.example/v1", |request| {
        std::future::ready(tagged(&request, "0D", "another"))
    });
    for _ in 0..2 {
        let document = fetch(&gateway, "/openapi/v3/apis/b.example/v1?hash=0C").await;
        assert_eq!((document.status, document.text().as_str()), (StatusCode::OK, "another"));
        assert_eq!(document.headers["etag"], "\"0D\"");
        assert_ne!(document.headers["cache-control"], "public, immutable");
    }
    assert_eq!(peer.requests.of("/openapi/v3/apis/b.example/v1").len(), 2);
}

#[tokio::test]
async fn bad_documents_of_a_peer_are_omitted() {
    type Bad = fn() -> Response<TestBody>;
    let bad: [Bad; 4] = [
        || answer(StatusCode::OK, full("[]")),
        || answer(StatusCode::OK, full("{\"paths\":7}")),
        || answer(StatusCode::OK, endless()),
        || answer(StatusCode::BAD_GATEWAY, full("")),
    ];
    for (place, bad) in bad.into_iter().enumerate() {
        let Described { gateway, peer, local: _local } = described().await;
        peer.rule("/openapi/v2", move |_| std::future::ready(bad()));
        let merged = fetch(&gateway, "/openapi/v2").await;
        assert_eq!(merged.json()["info"]["version"], "v1.34", "{place}: {}", merged.text());
    }
    let Described { gateway, peer, local: _local } = described().await;
    peer.rule("/openapi/v3/apis/b.example/v1", |_| {
        std::future::ready(answer(StatusCode::OK, endless()))
    });
    let document = fetch(&gateway, "/openapi/v3/apis/b.example/v1").await;
    assert_eq!(document.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_peer_with_a_hanging_index_delays_no_404() {
    let Described { gateway, peer, local: _local } = described().await;
    peer.rule("/openapi/v3", |_| std::future::pending());
    for _ in 0..3 {
        let unknown = fetch(&gateway, "/apis/nowhere.example/v1/things").await;
        assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{}", unknown.text());
    }
    assert_eq!(fetch(&gateway, "/openapi/v3").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_document_missing_at_the_local_server_is_fetched_from_others() {
    let Described { gateway, local, peer } = described().await;
    local.denies("/openapi/v3/version");
    let document = fetch(&gateway, "/openapi/v3/version?hash=0V").await;
    assert_eq!((document.status, document.text().as_str()), (StatusCode::OK, "version"));
    assert_eq!(peer.requests.of("/openapi/v3/version").len(), 1);
}

#[tokio::test]
async fn conditional_headers_of_the_client_are_not_forwarded() {
    let Described { gateway, peer, local: _local } = described().await;
    let request = with(
        get("/openapi/v3/apis/b.example/v1?hash=0C"),
        "if-modified-since",
        "Mon, 16 Nov 2026 00:00:00 GMT",
    );
    let document = ask(gateway.address, BOTH[1], None, request).await;
    assert_eq!((document.status, document.text().as_str()), (StatusCode::OK, "of b"));
    let asked = peer.requests.of("/openapi/v3/apis/b.example/v1").pop().unwrap();
    assert_eq!(asked.header("if-modified-since"), None);
}
