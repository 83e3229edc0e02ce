//! Merged discovery: the same from everywhere, conditional, packed, and only for those whom the
//! local server lets have it. Rows 1 and 2.

use std::io::Read;

use http::{HeaderValue, Method, StatusCode};
use serde_json::Value;

use crate::client::{Answer, BOTH, ask, full, get, request, with};
use crate::double::Double;
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::V2;
use crate::world::World;

const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const NOPEER: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";

async fn discover(gateway: &Gateway, path: &str, accept: &'static str) -> Answer {
    ask(gateway.address, BOTH[1], Some(&pki().alice), with(get(path), "accept", accept)).await
}

fn names(answer: &Answer, list: &str, name: &str) -> Vec<String> {
    let document = answer.json();
    let items = document[list].as_array().unwrap_or_else(|| panic!("{list}: {document}"));
    let mut names: Vec<String> =
        items.iter().map(|item| item.pointer(name).unwrap().as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn every_gateway_returns_the_same_bytes() {
    let a =
        Double::start("a", "v1.36.0", &[("a.example", "things"), ("both.example", "things")]).await;
    let b = Double::start("b", "v1.34.0", &[("b.example", "things")]).await;
    let c =
        Double::start("c", "v1.35.0", &[("both.example", "others"), ("c.example", "things")]).await;
    let (plan_a, plan_c) = (Gateway::beside("a", &a).await, Gateway::beside("c", &c).await);
    let (at_a, at_c) = (plan_a.address(), plan_c.address());
    let gateway_a = plan_a.bare("b", b.address).mvp("c", at_c).start_blind();
    let gateway_c = plan_c.mvp("a", at_a).bare("b", b.address).start_blind();
    for gateway in [&gateway_a, &gateway_c] {
        gateway.has_seen(&["a", "b", "c"]).await;
    }
    for path in ["/apis", "/api"] {
        for accept in [V2, V2BETA1, "application/json"] {
            let from_a = discover(&gateway_a, path, accept).await;
            let from_c = discover(&gateway_c, path, accept).await;
            assert_eq!(from_a.status, StatusCode::OK, "{}", from_a.text());
            assert_eq!(from_a.body, from_c.body, "{path} {accept}");
            assert_eq!(from_a.headers.get("etag"), from_c.headers.get("etag"));
        }
    }
    let all = discover(&gateway_a, "/apis", V2).await;
    let expected = ["a.example", "b.example", "both.example", "c.example"];
    assert_eq!(names(&all, "items", "/metadata/name"), expected);
    let both = all.json()["items"].as_array().unwrap().iter().find_map(|group| {
        (group["metadata"]["name"] == "both.example").then(|| group["versions"][0].clone())
    });
    let both: Vec<Value> = both.unwrap()["resources"].as_array().unwrap().clone();
    let mut both: Vec<&str> =
        both.iter().map(|entry| entry["resource"].as_str().unwrap()).collect();
    both.sort_unstable();
    assert_eq!(both, ["others", "things"]);
}

#[tokio::test]
async fn discovery_headers_match_kubernetes() {
    let world = World::start().await;
    for path in ["/apis", "/api"] {
        for protocol in BOTH {
            let plain = with(get(path), "accept", V2);
            let answer = ask(world.gateway.address, protocol, None, plain).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(answer.headers["content-type"], V2);
            assert_eq!(answer.headers["cache-control"], "public");
            assert!(answer.headers["vary"].to_str().unwrap().contains("Accept"));
            let etag = answer.headers["etag"].clone();
            assert!(etag.as_bytes().starts_with(b"\"") && etag.as_bytes().ends_with(b"\""));

            let mut same = with(get(path), "accept", V2);
            same.headers_mut().insert("if-none-match", etag.clone());
            let same = ask(world.gateway.address, protocol, None, same).await;
            assert_eq!(same.status, StatusCode::NOT_MODIFIED);
            assert_eq!(same.headers["etag"], etag);
            assert!(same.body.is_empty());

            let mut other = with(get(path), "accept", V2);
            other.headers_mut().insert("if-none-match", HeaderValue::from_static("\"old\""));
            let other = ask(world.gateway.address, protocol, None, other).await;
            assert_eq!((other.status, &other.body), (StatusCode::OK, &answer.body));

            let head = with(request(Method::HEAD, path, full("")), "accept", V2);
            let head = ask(world.gateway.address, protocol, None, head).await;
            assert_eq!(head.status, StatusCode::OK);
            assert!(head.body.is_empty());
            assert_eq!(head.headers["etag"], etag);
            assert_eq!(head.headers["content-length"], answer.body.len().to_string());
        }
    }
}

#[tokio::test]
async fn large_documents_are_compressed_when_the_client_accepts_gzip() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let many: Vec<String> = (0..800).map(|index| format!("things{index}")).collect();
    let peer = Double::start("b", "v1.36.0", &[("many.example", &many.join(" "))]).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    let plain = discover(&gateway, "/apis", V2).await;
    assert!(plain.body.len() >= 128 << 10, "{}", plain.body.len());
    assert_eq!(plain.headers.get("content-encoding"), None);
    for protocol in BOTH {
        let packed = with(with(get("/apis"), "accept", V2), "accept-encoding", "br, gzip");
        let packed = ask(gateway.address, protocol, None, packed).await;
        assert_eq!(packed.headers["content-encoding"], "gzip");
        assert_eq!(packed.headers["content-length"], packed.body.len().to_string());
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == plain.body, "the same document");
    }
    let refused = with(with(get("/apis"), "accept", V2), "accept-encoding", "gzip;q=0");
    let refused = ask(gateway.address, BOTH[1], None, refused).await;
    assert_eq!(refused.headers.get("content-encoding"), None);
    let small = with(with(get("/api"), "accept", V2), "accept-encoding", "gzip");
    let small = ask(gateway.address, BOTH[1], None, small).await;
    assert_eq!(small.headers.get("content-encoding"), None);
}

#[tokio::test]
async fn only_the_local_server_authorizes_discovery() {
    let world = World::start().await;
    for status in [401, 403, 429, 500, 503] {
        world.local.says("/api", status, "application/json", "{\"of\":\"local\"}");
        for path in ["/apis", "/api", "/apis/bare.example", "/apis/bare.example/v1"] {
            for accept in [V2, "application/json"] {
                let answer = discover(&world.gateway, path, accept).await;
                assert_eq!(answer.status.as_u16(), status, "{path}");
                assert_eq!(answer.text(), "{\"of\":\"local\"}");
            }
        }
    }
    let before = world.local.requests.of("/apis").len();
    let request = with(with(get("/apis"), "accept", V2), "authorization", "Bearer of-carol");
    ask(world.gateway.address, BOTH[1], None, request).await;
    let probes = world.local.requests.of("/apis");
    assert_eq!(probes.len(), before + 1);
    let probe = probes.last().unwrap();
    assert_eq!(probe.header("authorization"), Some("Bearer of-carol"));
    assert!(!probe.connection.presented);
    assert!(probe.header("accept").unwrap().contains("profile=nopeer"));
    assert!(probe.header("if-none-match").is_some(), "it costs the server next to nothing");
}

#[tokio::test]
async fn legacy_documents_include_the_groups_of_peers() {
    let world = World::start().await;
    let groups = ["bare.example", "local.example", "mvp.example"];
    let list = discover(&world.gateway, "/apis", "application/json").await;
    assert_eq!(list.json()["kind"], "APIGroupList");
    assert_eq!(names(&list, "groups", "/name"), groups);
    assert_eq!(list.headers["content-type"], "application/json");

    let beta = discover(&world.gateway, "/apis", V2BETA1).await;
    assert_eq!(beta.headers["content-type"], V2BETA1);
    assert_eq!(beta.json()["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    assert_eq!(names(&beta, "items", "/metadata/name"), groups);

    for group in groups {
        let one = discover(&world.gateway, &format!("/apis/{group}"), "application/json").await;
        assert_eq!(one.json()["kind"], "APIGroup", "{}", one.text());
        assert_eq!(one.json()["name"], group);
        let version =
            discover(&world.gateway, &format!("/apis/{group}/v1"), "application/json").await;
        assert_eq!(version.json()["kind"], "APIResourceList");
        assert_eq!(version.json()["groupVersion"], format!("{group}/v1"));
        assert_eq!(names(&version, "resources", "/name"), ["things", "things/status"]);
    }
    let core = discover(&world.gateway, "/api", "application/json").await;
    assert_eq!(core.json()["kind"], "APIVersions");
    assert_eq!(core.json()["versions"][0], "v1");
    let missing = discover(&world.gateway, "/apis/nowhere.example", "application/json").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn row_2_nopeer_returns_the_local_document() {
    let world = World::start().await;
    for protocol in BOTH {
        let request = with(get("/apis"), "accept", NOPEER);
        let answer = ask(world.gateway.address, protocol, None, request).await;
        assert_eq!(names(&answer, "items", "/metadata/name"), ["local.example"]);
    }
}

#[tokio::test]
async fn row_2_peers_get_the_local_document_with_nopeer() {
    let world = World::start().await;
    for protocol in BOTH {
        let accept = concat!(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,",
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,",
            "application/json"
        );
        let request =
            with(with(get("/apis"), "accept", accept), "x-remote-user", "system:apiserver");
        let request = with(request, "x-kubernetes-peer-proxied", "true");
        let answer = ask(world.gateway.address, protocol, Some(&pki().proxy), request).await;
        assert_eq!(names(&answer, "items", "/metadata/name"), ["local.example"]);
        let seen = world.local.requests.of("/apis").pop().unwrap();
        let told = seen.header("accept").unwrap();
        let aggregated = told.split(',').filter(|clause| clause.contains("APIGroupDiscoveryList"));
        assert!(aggregated.clone().count() == 2, "{told}");
        assert!(aggregated.into_iter().all(|clause| clause.contains("profile=nopeer")), "{told}");
    }
    // As the control loop of the other gateway asks: as ourselves, on our certificate.
    let asked = world.mvp.requests.of("/apis").pop().unwrap();
    assert!(asked.connection.front_proxy);
    assert_eq!(asked.all("x-remote-user"), ["system:apiserver"]);
    assert_eq!(asked.all("x-remote-group"), ["system:authenticated"]);
    assert_eq!(asked.all("x-kubernetes-peer-proxied"), ["true"]);
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn legacy_documents_are_served_as_yaml_and_protobuf() {
    let world = World::start().await;
    // As a real server says of a group that it does not have, whatever is accepted.
    world.local.denies("/apis/bare.example");
    let plain = discover(&world.gateway, "/apis/bare.example/v1", "application/json").await;
    let yaml = discover(&world.gateway, "/apis/bare.example/v1", "application/yaml").await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    let read: Value = serde_saphyr::from_slice(&yaml.body).unwrap();
    assert_eq!(read, plain.json());

    let protobuf = discover(&world.gateway, "/apis/bare.example/v1", PROTOBUF).await;
    assert_eq!((protobuf.status, &protobuf.body[..4]), (StatusCode::OK, &b"k8s\0"[..]));
    assert_eq!(protobuf.headers["content-type"], PROTOBUF);
    // What the local server does not have for itself, it has for nobody.
    let own = discover(&world.gateway, "/apis", PROTOBUF).await;
    assert_eq!(own.status, StatusCode::NOT_ACCEPTABLE, "{}", own.text());
    let cbor = discover(&world.gateway, "/apis/bare.example/v1", "application/cbor").await;
    assert_eq!(cbor.status, StatusCode::NOT_ACCEPTABLE);
    let offered = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let message = format!("only the following media types are accepted: {offered}");
    assert_eq!(cbor.json()["message"], message);
}

#[tokio::test]
async fn the_apidiscovery_path_returns_the_merged_list() {
    let world = World::start().await;
    let merged = discover(&world.gateway, "/apis", V2).await;
    let accept = "application/json, */*";
    let recipe = discover(&world.gateway, "/apis/apidiscovery.k8s.io/v2", accept).await;
    assert_eq!((recipe.status, &recipe.body), (StatusCode::OK, &merged.body));
    let beta = discover(&world.gateway, "/apis/apidiscovery.k8s.io/v2beta1", accept).await;
    assert_eq!(beta.json()["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    let nopeer = "application/json;profile=nopeer";
    let alone = discover(&world.gateway, "/apis/apidiscovery.k8s.io/v2", nopeer).await;
    assert_eq!(names(&alone, "items", "/metadata/name"), ["local.example"]);
    for path in ["/apis/apidiscovery.k8s.io", "/apis/apidiscovery.k8s.io/v3"] {
        assert_eq!(discover(&world.gateway, path, accept).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn row_2_legacy_lists_with_nopeer_contain_only_local_apis() {
    let world = World::start().await;
    // As a real server's during skew: it lists what others serve.
    let false_list = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"elsewhere"}]}"#;
    world.local.says("/apis", 200, "application/json", false_list);
    let nopeer = "application/json;profile=nopeer";
    let alone = discover(&world.gateway, "/apis", nopeer).await;
    assert_eq!(names(&alone, "groups", "/name"), ["local.example"]);
    let one = discover(&world.gateway, "/apis/local.example/v1", nopeer).await;
    assert_eq!(names(&one, "resources", "/name"), ["things", "things/status"]);
    world.local.denies("/apis/bare.example");
    let other = discover(&world.gateway, "/apis/bare.example/v1", nopeer).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND, "{}", other.text());
}
