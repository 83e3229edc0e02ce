//! Discovery, version, health and the index.

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::{BodyExt, Full};
use mvp_apiserver::{ApiServer, Body, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_core::discovery::legacy::{ApiGroup, ApiGroupList, ApiResourceList, ApiVersions};
use mvp_core::discovery::{GroupList, Limits, Part, Scope, Source, convert};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::{Lines, WIDGETS, get, make, request, send, server};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn ask(server: &ApiServer, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let mut request = request(Method::GET, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(server, request.body(Full::default()).unwrap()).await
}

async fn bytes(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

async fn aggregated(server: &ApiServer, part: Part) -> GroupList {
    let response = ask(server, part.path(), &[("accept", AGGREGATED)]).await;
    assert_eq!(response.headers()["content-type"], AGGREGATED);
    let source = Source { server: "a", document: part.path() };
    let document = bytes(response).await;
    let parsed = GroupList::parse(source, part, document, &Limits::default()).unwrap();
    assert!(parsed.complaints.is_empty(), "{:?}", parsed.complaints);
    parsed.value
}

async fn legacy<D: DeserializeOwned>(server: &ApiServer, path: &str) -> D {
    let (code, document) = get(server, path).await;
    assert_eq!(code, 200, "{path}");
    serde_json::from_value(document).unwrap()
}

#[tokio::test]
async fn aggregated_documents_list_what_is_served() {
    let server = server();
    let apis = aggregated(&server, Part::Apis).await;
    let names: Vec<_> = apis.groups.iter().map(|group| &*group.name).collect();
    assert_eq!(names, ["example.com", "authentication.k8s.io"]);
    let group = apis.group("example.com").unwrap();
    let versions: Vec<_> = group.versions.iter().map(|version| &*version.name).collect();
    assert_eq!(versions, ["v1", "v1beta1"]);
    let resources = &group.versions[0].resources;
    let seen: Vec<_> = resources
        .iter()
        .map(|resource| (&*resource.name, resource.scope, resource.verbs.iter().count()))
        .collect();
    let expected = [
        ("widgets", Scope::Namespaced, 8),
        ("gears", Scope::Cluster, 8),
        ("readings", Scope::Cluster, 2),
    ];
    assert_eq!(seen, expected);
    assert_eq!(&*resources[0].subresources[0].name, "status");

    let api = aggregated(&server, Part::Api).await;
    assert_eq!(&*api.group("").unwrap().versions[0].name, "v1");
}

/// An entry has all fields of a real server's, in the same form: that of batch/v1 cronjobs in the
/// recorded documents of 1.36.
#[tokio::test]
async fn entries_have_the_form_of_a_real_servers() {
    let jobs = ResourceSpec {
        categories: vec!["all".to_owned()],
        ..ResourceSpec::namespaced("cronjobs", "CronJob").with_short_name("cj").with_status()
    };
    let groups = vec![GroupSpec::new("batch").version("v1", [jobs])];
    let spec = ServerSpec { groups, ..ServerSpec::default() };
    let server = ApiServer::new(spec, Storage::new());
    let response = ask(&server, "/apis", &[("accept", AGGREGATED)]).await;
    let document: Value = serde_json::from_slice(&bytes(response).await).unwrap();
    let entry = &document["items"][0]["versions"][0]["resources"][0];

    let recorded = include_str!("../../../mvp-core/tests/fixtures/recorded/v1.36.4.json");
    let recorded: Value = serde_json::from_str(recorded).unwrap();
    let groups = recorded["aggregated"]["/apis"]["items"].as_array().unwrap();
    let batch = groups.iter().find(|group| group["metadata"]["name"] == "batch").unwrap();
    let resources = batch["versions"][0]["resources"].as_array().unwrap();
    let real = resources.iter().find(|entry| entry["resource"] == "cronjobs").unwrap();
    assert_eq!(entry, real);
}

#[tokio::test]
async fn legacy_documents_agree_with_aggregated_ones() {
    let server = server();
    let apis = aggregated(&server, Part::Apis).await;
    let api = aggregated(&server, Part::Api).await;
    assert_eq!(legacy::<ApiGroupList>(&server, "/apis").await, convert::group_list(&apis));
    assert_eq!(legacy::<ApiVersions>(&server, "/api").await, convert::api_versions(&api));
    for (root, list) in [("/apis/", &apis), ("/api", &api)] {
        for group in &list.groups {
            let path = format!("{root}{}", group.name);
            if !group.name.is_empty() {
                assert_eq!(legacy::<ApiGroup>(&server, &path).await, convert::group(group));
            }
            for version in &group.versions {
                let path = format!("{path}/{}", version.name);
                let resources: ApiResourceList = legacy(&server, &path).await;
                assert_eq!(Some(resources), convert::resource_list(group, &version.name));
            }
        }
    }
}

#[tokio::test]
async fn an_unchanged_document_is_not_sent_again() {
    let server = server();
    for path in ["/api", "/apis"] {
        let response = ask(&server, path, &[("accept", AGGREGATED)]).await;
        let headers = response.headers();
        assert_eq!(headers["vary"], "Accept");
        assert_eq!(headers["cache-control"], "public");
        let etag = headers["etag"].to_str().unwrap().to_owned();
        let digits = etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')).unwrap();
        assert_eq!(digits.len(), 128);
        assert!(digits.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)));

        let condition = ("if-none-match", etag.as_str());
        let response = ask(&server, path, &[("accept", AGGREGATED), condition]).await;
        assert_eq!(response.status(), 304);
        assert_eq!(response.headers()["etag"], etag.as_str());
        assert!(bytes(response).await.is_empty());

        let other = ("if-none-match", "\"00\"");
        let response = ask(&server, path, &[("accept", AGGREGATED), other]).await;
        assert_eq!(response.status(), 200);
        // The legacy document differs.
        let response = ask(&server, path, &[condition]).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()["vary"], "Accept");
    }
}

#[tokio::test]
async fn equal_servers_have_equal_etags() {
    let etag = async |server: &ApiServer| {
        let response = ask(server, "/apis", &[("accept", AGGREGATED)]).await;
        response.headers()["etag"].clone()
    };
    let other = ApiServer::new(ServerSpec::default(), Storage::new());
    assert_eq!(etag(&server()).await, etag(&server()).await);
    assert_ne!(etag(&server()).await, etag(&other).await);
}

#[tokio::test]
async fn the_client_chooses_the_document() {
    let server = server();
    let kubectl = format!("{AGGREGATED},{},application/json", AGGREGATED.replace("v2", "v2beta1"));
    let nopeer = format!("{AGGREGATED};profile=nopeer,application/json");
    let cases = [
        (kubectl.as_str(), AGGREGATED),
        (nopeer.as_str(), AGGREGATED),
        ("application/json", "application/json"),
        ("*/*", "application/json"),
        ("", "application/json"),
    ];
    for (accept, expected) in cases {
        let response = ask(&server, "/apis", &[("accept", accept)]).await;
        assert_eq!(response.headers()["content-type"], expected, "{accept}");
    }
    for path in ["/apis", "/apis/example.com", "/apis/example.com/v1/gears"] {
        let response = ask(&server, path, &[("accept", "application/cbor")]).await;
        assert_eq!(response.status(), 406);
        let status: Value = serde_json::from_slice(&bytes(response).await).unwrap();
        assert_eq!(status["reason"], "NotAcceptable");
        let message = "only the following media types are accepted: application/json";
        assert_eq!(status["message"], message);
    }
}

#[tokio::test]
async fn version_health_and_index() {
    let server = server();
    let (code, version) = get(&server, "/version").await;
    assert_eq!(code, 200);
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
    assert_eq!(version["gitVersion"], "v1.36.4");
    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose"] {
        let response = ask(&server, path, &[]).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!(bytes(response).await, "ok");
    }
    let (_, index) = get(&server, "/").await;
    for path in ["/api", "/api/v1", "/apis", "/apis/example.com", "/apis/example.com/v1beta1"] {
        assert!(index["paths"].as_array().unwrap().contains(&json!(path)), "{path}");
    }
}

#[tokio::test]
async fn an_empty_server_has_discovery() {
    let server = ApiServer::new(ServerSpec::default(), Storage::new());
    assert!(aggregated(&server, Part::Apis).await.groups.is_empty());
    assert!(aggregated(&server, Part::Api).await.groups.is_empty());
    assert_eq!(get(&server, "/version").await.1["major"], "");
    // Real servers always serve /api: a Status, not a page.
    assert_eq!(get(&server, "/api/v1").await.0, 404);
    assert_eq!(get(&server, "/api/v1/pods").await.1["reason"], "NotFound");
}

#[tokio::test]
async fn the_groups_can_be_replaced_while_requests_are_served() {
    let server = server();
    make(&server, "one").await;
    let mut watch = Lines::open(&server, &format!("{WIDGETS}?watch=true")).await;
    assert_eq!(watch.event().await.1, "one");

    let gadgets = ResourceSpec::namespaced("gadgets", "Gadget");
    let mut groups = server.spec().groups.clone();
    groups.retain(|group| group.name != "example.com");
    groups.push(GroupSpec::new("new.example.com").version("v1", [gadgets]));
    server.replace_groups(groups);

    assert_eq!(get(&server, "/apis/new.example.com/v1/gadgets").await.0, 200);
    assert_eq!(get(&server, "/apis/new.example.com/v1").await.0, 200);
    let old = request(Method::GET, WIDGETS).body(Full::default()).unwrap();
    assert_eq!(send(&server, old).await.status(), 404);

    // A watch goes on with what it started with.
    server.replace_groups(server.spec().groups.clone());
    make(&server, "two").await;
    assert_eq!(watch.event().await.1, "two");
}
