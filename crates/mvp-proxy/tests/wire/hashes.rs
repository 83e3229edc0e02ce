//! The hashes of storage versions, which aggregated documents do not have: those of the local server,
//! and of a peer for what only that peer serves.

use serde_json::{Value, json};

use crate::client::{Answer, BOTH, ask, get, with};
use crate::double::Double;
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::world::World;

const JSON: &str = "application/json";

async fn list(gateway: &Gateway, path: &str, accept: &'static str) -> Answer {
    ask(gateway.address, BOTH[1], Some(&pki().alice), with(get(path), "accept", accept)).await
}

/// Makes a server list `things` and more with this hash.
fn hashes(server: &Double, path: &'static str, hash: &str, more: &str) {
    let resource = |name: &str, hash: &str| {
        json!({"name": name, "singularName": "", "namespaced": true, "kind": "Thing",
            "verbs": ["get"], "storageVersionHash": hash})
    };
    let mut resources = vec![resource("things", hash), resource("things/status", "")];
    resources.extend(more.split_whitespace().map(|name| resource(name, hash)));
    let group_version = path.strip_prefix("/apis/").unwrap();
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": group_version, "resources": resources});
    server.says(path, 200, JSON, &list.to_string());
}

fn hash_of(list: &Value, name: &str) -> Option<String> {
    let mut resources = list["resources"].as_array().unwrap().iter();
    let resource = resources.find(|resource| resource["name"] == name).unwrap();
    resource["storageVersionHash"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn hashes_are_those_of_the_server_that_serves_the_resource() {
    let world = World::start().await;
    hashes(&world.local, "/apis/local.example/v1", "of-local=", "");
    hashes(&world.bare, "/apis/bare.example/v1", "of-bare=", "");
    hashes(&world.behind, "/apis/mvp.example/v1", "of-mvp=", "");
    for (group, hash) in [("local", "of-local="), ("bare", "of-bare="), ("mvp", "of-mvp=")] {
        let path = format!("/apis/{group}.example/v1");
        let plain = list(&world.gateway, &path, JSON).await.json();
        assert_eq!(hash_of(&plain, "things").as_deref(), Some(hash), "{plain}");
        assert_eq!(hash_of(&plain, "things/status"), None, "{plain}");
        let yaml = list(&world.gateway, &path, "application/yaml").await;
        let yaml: Value = serde_saphyr::from_slice(&yaml.body).unwrap();
        assert_eq!(yaml, plain);
    }
    let protobuf = "application/vnd.kubernetes.protobuf";
    world.local.denies("/apis/bare.example");
    let protobuf = list(&world.gateway, "/apis/bare.example/v1", protobuf).await;
    assert!(protobuf.text().contains("of-bare="), "{}", protobuf.text());
    // Asked as the caller, not as the proxy.
    let asked = world.bare.requests.of("/apis/bare.example/v1").pop().unwrap();
    assert_eq!(asked.all("x-remote-user"), ["alice"]);
}

#[tokio::test]
async fn hashes_follow_the_server_while_its_discovery_stays_the_same() {
    let world = World::start().await;
    for hash in ["first=", "second="] {
        hashes(&world.local, "/apis/local.example/v1", hash, "");
        let list = list(&world.gateway, "/apis/local.example/v1", JSON).await.json();
        assert_eq!(hash_of(&list, "things").as_deref(), Some(hash));
    }
}

#[tokio::test]
async fn the_local_server_counts_first_and_the_newest_peer_next() {
    let local = Double::start("a", "v1.34.0", &[("g.example", "things")]).await;
    let old = Double::start("b", "v1.35.0", &[("g.example", "things others")]).await;
    let new = Double::start("c", "v1.36.0", &[("g.example", "things others")]).await;
    let path = "/apis/g.example/v1";
    hashes(&local, path, "of-local=", "");
    hashes(&old, path, "of-old=", "others");
    hashes(&new, path, "of-new=", "others");
    let gateway = Gateway::beside("a", &local).await.bare("b", old.address);
    let gateway = gateway.bare("c", new.address).start().await;
    let merged = list(&gateway, path, JSON).await.json();
    assert_eq!(hash_of(&merged, "things").as_deref(), Some("of-local="));
    assert_eq!(hash_of(&merged, "others").as_deref(), Some("of-new="));
    assert_eq!(old.requests.of(path).len(), 0, "the first candidate is enough");
    let alone = list(&gateway, path, "application/json;profile=nopeer").await.json();
    assert_eq!(hash_of(&alone, "things").as_deref(), Some("of-local="));
    assert_eq!(alone["resources"].as_array().unwrap().len(), 2, "{alone}");
}

#[tokio::test]
async fn without_a_usable_list_there_are_no_hashes() {
    let world = World::start().await;
    let large = format!("{{{}", " ".repeat(2 << 20));
    for (status, body) in [(200, "{"), (200, "404 page not found"), (200, &large), (404, "")] {
        world.local.says("/apis/local.example/v1", status, JSON, body);
        world.bare.says("/apis/bare.example/v1", status, JSON, body);
        for path in ["/apis/local.example/v1", "/apis/bare.example/v1"] {
            let list = list(&world.gateway, path, JSON).await;
            if status == 404 && path.contains("local") {
                // The local server denies what it lists: row 10.
                assert_eq!(list.status.as_u16(), 200, "{}", list.text());
                continue;
            }
            assert_eq!(hash_of(&list.json(), "things"), None, "{path}: {}", list.text());
        }
    }
}
