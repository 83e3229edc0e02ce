//! Fetches from servers in memory, on a paused clock.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::*;

/// A server without aggregated discovery that takes a second for each response.
#[derive(Default)]
struct Old {
    running: AtomicUsize,
    most: AtomicUsize,
}

const GROUPS: usize = 40;

impl Ask for Old {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let path = request.uri().path().to_owned();
        let is_version = path.starts_with("/apis/");
        let running = self.running.fetch_add(usize::from(is_version), Ordering::Relaxed);
        self.most.fetch_max(running + usize::from(is_version), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.running.fetch_sub(usize::from(is_version), Ordering::Relaxed);
        let version = |group: usize| format!("g{group}.example/v1");
        let document = match &*path {
            "/version" => json!({"gitVersion": "v1.24.17"}),
            "/api" => json!({"kind": "APIVersions", "versions": []}),
            "/apis" => {
                let group = |group: usize| {
                    let version = json!({"groupVersion": version(group), "version": "v1"});
                    json!({"name": format!("g{group}.example"), "versions": [version]})
                };
                let groups: Vec<Value> = (0..GROUPS).map(group).collect();
                json!({"kind": "APIGroupList", "groups": groups})
            }
            _ if is_version => {
                let verbs = ["get", "list"];
                let things = json!({
                    "name": "things", "namespaced": true, "kind": "Thing", "verbs": verbs,
                });
                let group_version = path.trim_start_matches("/apis/");
                json!({
                    "kind": "APIResourceList",
                    "groupVersion": group_version,
                    "resources": [things],
                })
            }
            _ => return Ok(json_response(404, &json!({}))),
        };
        Ok(json_response(200, &document))
    }
}

fn json_response(status: u16, document: &Value) -> Response<Body> {
    let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    response.body(Body::from(Bytes::from(document.to_string()))).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_old_server_is_walked_in_parallel_within_a_bound() {
    let old = Old::default();
    let fetched =
        fetch(&old, "old", &Known::default(), &Scope::Everything, false, &Limits::default(), None)
            .await;
    let [_, Outcome::Changed { list, .. }] = &fetched.parts else { panic!("{:?}", fetched.parts) };
    let names: Vec<&str> = list.groups.iter().map(|group| &*group.name).collect();
    let expected: Vec<String> = (0..GROUPS).map(|group| format!("g{group}.example")).collect();
    assert_eq!(names, expected, "in the order of the server");
    assert_eq!(old.most.into_inner(), 16);
}

/// A server that only tells its version.
struct OfVersion(Value);

impl Ask for OfVersion {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        match request.uri().path() {
            "/version" => Ok(json_response(200, &self.0)),
            path => Err(AskError::new(path)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_release_has_the_emulated_version() {
    let binary = Release::parse("v1.36.4").unwrap();
    let emulating = binary.emulating(Version { major: 1, minor: 34 });
    for (document, expected) in [
        // As kube-apiserver 1.30, and 1.36 with and without `--emulated-version=1.34`, write them.
        (json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4"}), Some(binary)),
        (
            json!({"gitVersion": "v1.36.4", "emulationMajor": "1", "emulationMinor": "36"}),
            Some(binary),
        ),
        (
            json!({"gitVersion": "v1.36.4", "emulationMajor": "1", "emulationMinor": "34"}),
            Some(emulating),
        ),
        (json!({"gitVersion": "v1.36.4", "emulationMajor": "x"}), Some(binary)),
        (json!({"emulationMajor": "1", "emulationMinor": "34"}), None),
    ] {
        let server = OfVersion(document.clone());
        let fetched = fetch(
            &server,
            "a",
            &Known::default(),
            &Scope::Everything,
            false,
            &Limits::default(),
            None,
        )
        .await;
        assert_eq!(fetched.release, expected, "{document}");
    }
}

/// The errors of both discovery documents of a server, which answers with this text.
async fn refused(text: &str, limits: Limits) -> [String; 2] {
    struct Says(Bytes);
    impl Ask for Says {
        async fn ask(&self, _: Request<Body>) -> Result<Response<Body>, AskError> {
            let response = Response::builder().header(
                CONTENT_TYPE,
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            );
            Ok(response.body(Body::from(self.0.clone())).unwrap())
        }
    }
    let server = Says(Bytes::copy_from_slice(text.as_bytes()));
    let whole = Scope::Everything;
    let fetched = fetch(&server, "a", &Known::default(), &whole, false, &limits, None).await;
    fetched.parts.map(|part| match part {
        Outcome::Failed(error) => error,
        other => panic!("{other:?}"),
    })
}

#[tokio::test(start_paused = true)]
async fn documents_over_the_limits_are_refused_with_the_limit() {
    let limits = Limits { max_bytes: 1000, max_depth: 16 };
    let large = format!("{{\"items\": [], \"x\": \"{}\"}}", "x".repeat(1000));
    for error in refused(&large, limits).await {
        assert!(error.contains("larger than 1000 bytes"), "{error}");
    }
    let deep = format!("{{\"items\": {}{}}}", "[".repeat(16), "]".repeat(16));
    for error in refused(&deep, limits).await {
        assert!(error.contains("16"), "{error}");
    }
}
