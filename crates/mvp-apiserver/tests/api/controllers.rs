//! The namespace controller and the garbage collector: what they delete, and the harm that they do at
//! a server that lacks an API.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use mvp_apiserver::controllers::{Client, GarbageCollector, NamespaceController};
use mvp_apiserver::{
    ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage, SubresourceSpec, Verb,
};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::patches::patch;
use crate::support::{call, get, names};

const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// An address that leads to one server, until it is moved to another.
#[derive(Clone)]
struct Address {
    servers: Arc<[ApiServer]>,
    place: Arc<AtomicUsize>,
}

impl Address {
    fn new(servers: &[ApiServer]) -> Address {
        Address { servers: servers.into(), place: Arc::default() }
    }

    fn move_to(&self, place: usize) {
        self.place.store(place, Ordering::SeqCst);
    }
}

impl Client for Address {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let server = self.servers[self.place.load(Ordering::SeqCst)].clone();
        let response = server.oneshot(request.map(Full::new)).await.unwrap();
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, body.collect().await.unwrap().to_bytes()))
    }
}

/// An address whose answers to GET requests for one path are replaced.
#[derive(Clone)]
struct Spoiled {
    address: Address,
    path: String,
    code: u16,
    body: &'static str,
}

impl Client for Spoiled {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        if request.method() == Method::GET && request.uri().path() == self.path {
            let response = Response::builder().status(self.code).body(Bytes::from(self.body));
            return Ok(response.unwrap());
        }
        self.address.send(request).await
    }
}

/// Two servers of one cluster. Only the first has Jobs.
fn servers() -> [ApiServer; 2] {
    let storage = Storage::new();
    let server = |with_jobs: bool| {
        let mut namespaces = ResourceSpec::cluster("namespaces", "Namespace").with_status();
        let verbs = vec![Verb::Update];
        let name = "finalize".to_owned();
        let finalize = SubresourceSpec { name, verbs, ..SubresourceSpec::default() };
        namespaces.subresources.push(finalize);
        let config_maps = ResourceSpec::namespaced("configmaps", "ConfigMap");
        let mut groups = vec![GroupSpec::new("").version("v1", [namespaces, config_maps])];
        if with_jobs {
            let jobs = ResourceSpec::namespaced("jobs", "Job").with_status();
            groups.push(GroupSpec::new("batch").version("v1", [jobs]));
        }
        let git_version = "v1.36.4".to_owned();
        let spec = ServerSpec { id: "a".to_owned(), git_version, groups, ..ServerSpec::default() };
        ApiServer::new(spec, storage.clone())
    };
    [server(true), server(false)]
}

async fn create(server: &ApiServer, path: &str, object: Value) -> Value {
    let (code, object) = call(server, Method::POST, path, object).await;
    assert_eq!(code, 201, "{object}");
    object
}

/// A namespace with a Job and a ConfigMap. Returns the UID of the Job.
async fn fill(server: &ApiServer) -> String {
    create(server, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    let job = create(server, JOBS, json!({"metadata": {"name": "run"}})).await;
    create(server, CONFIG_MAPS, json!({"metadata": {"name": "one"}})).await;
    job["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A ConfigMap that a Job owns.
async fn own(server: &ApiServer, name: &str, uid: &str) {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": uid});
    let object = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
    create(server, CONFIG_MAPS, object).await;
}

async fn left(server: &ApiServer, path: &str) -> usize {
    names(&get(server, path).await.1).len()
}

#[tokio::test]
async fn a_deleted_namespace_ends_when_its_contents_are_gone() {
    let servers = servers();
    fill(&servers[0]).await;
    let (code, _) = call(&servers[0], Method::DELETE, "/api/v1/namespaces/shop", Value::Null).await;
    assert_eq!(code, 200);
    let (code, namespace) = get(&servers[1], "/api/v1/namespaces/shop").await;
    assert_eq!(code, 200);
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let (code, refusal) =
        call(&servers[0], Method::POST, JOBS, json!({"metadata": {"name": "late"}})).await;
    assert_eq!((code.as_u16(), &refusal["reason"]), (403, &json!("Forbidden")));
    assert_eq!(refusal["details"]["causes"][0]["reason"], "NamespaceTerminating");

    let controller = NamespaceController::new(Address::new(&servers));
    assert_eq!(controller.sync().await.unwrap(), ["shop"]);
    assert_eq!(get(&servers[0], "/api/v1/namespaces/shop").await.0, 404);
    assert_eq!((left(&servers[0], JOBS).await, left(&servers[0], CONFIG_MAPS).await), (0, 0));
}

#[tokio::test]
async fn a_namespace_without_deletion_keeps_its_contents() {
    let servers = servers();
    fill(&servers[0]).await;
    let controller = NamespaceController::new(Address::new(&servers));
    assert!(controller.sync().await.unwrap().is_empty());
    assert_eq!((left(&servers[0], JOBS).await, left(&servers[0], CONFIG_MAPS).await), (1, 1));
}

#[tokio::test]
async fn a_server_without_jobs_lets_the_controller_leave_one_behind() {
    let servers = servers();
    fill(&servers[0]).await;
    call(&servers[0], Method::DELETE, "/api/v1/namespaces/shop", Value::Null).await;
    let controller = NamespaceController::new(Address::new(&servers[1..]));
    assert_eq!(controller.sync().await.unwrap(), ["shop"]);
    assert_eq!(get(&servers[0], "/api/v1/namespaces/shop").await.0, 404);
    assert_eq!((left(&servers[0], JOBS).await, left(&servers[0], CONFIG_MAPS).await), (1, 0));
}

#[tokio::test]
async fn nothing_is_created_in_a_namespace_that_does_not_exist() {
    let servers = servers();
    let (code, refusal) =
        call(&servers[0], Method::POST, JOBS, json!({"metadata": {"name": "early"}})).await;
    assert_eq!(code, 404);
    assert_eq!(refusal["message"], "namespaces \"shop\" not found");
    assert_eq!(refusal["details"], json!({"name": "shop", "kind": "namespaces"}));
}

#[tokio::test]
async fn dependents_go_with_their_owner_and_not_before() {
    let servers = servers();
    let uid = fill(&servers[0]).await;
    own(&servers[0], "owned", &uid).await;
    own(&servers[0], "of-another-job", "00000000-0000-4000-8000-000000000000").await;
    let mut collector = GarbageCollector::new(Address::new(&servers));
    collector.refresh().await.unwrap();
    let collected = collector.sweep().await;
    assert!(collected.problems.is_empty(), "{:?}", collected.problems);
    assert_eq!(collected.deleted, [format!("{CONFIG_MAPS}/of-another-job")]);
    assert!(collector.sweep().await.deleted.is_empty());

    let background = json!({"propagationPolicy": "Background"});
    let (code, _) = call(&servers[0], Method::DELETE, &format!("{JOBS}/run"), background).await;
    assert_eq!(code, 200);
    assert_eq!(collector.sweep().await.deleted, [format!("{CONFIG_MAPS}/owned")]);
    assert_eq!(left(&servers[0], CONFIG_MAPS).await, 1, "the one without an owner");
}

#[tokio::test]
async fn a_false_404_deletes_the_dependent_of_a_live_owner() {
    let servers = servers();
    let uid = fill(&servers[0]).await;
    own(&servers[0], "owned", &uid).await;
    let address = Address::new(&servers);
    let mut collector = GarbageCollector::new(address.clone());
    collector.refresh().await.unwrap();
    address.move_to(1);
    assert_eq!(collector.sweep().await.deleted, [format!("{CONFIG_MAPS}/owned")]);
    assert_eq!(get(&servers[0], &format!("{JOBS}/run")).await.0, 200);
}

#[tokio::test]
async fn an_owner_of_an_unknown_kind_keeps_its_dependents() {
    let servers = servers();
    let uid = fill(&servers[0]).await;
    own(&servers[0], "owned", &uid).await;
    let mut collector = GarbageCollector::new(Address::new(&servers[1..]));
    collector.refresh().await.unwrap();
    let collected = collector.sweep().await;
    assert!(collected.deleted.is_empty());
    assert_eq!(collected.problems.len(), 1);
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_deletes_nothing() {
    for body in ["", "<html>", "null", "{}", r#"{"items": {}}"#] {
        let servers = servers();
        let uid = fill(&servers[0]).await;
        own(&servers[0], "owned", &uid).await;
        let spoiled = |path: &str| {
            let (address, path) = (Address::new(&servers), path.to_owned());
            Spoiled { address, path, code: 200, body }
        };
        let mut collector = GarbageCollector::new(spoiled(&format!("{JOBS}/run")));
        collector.refresh().await.unwrap();
        let collected = collector.sweep().await;
        assert!(collected.deleted.is_empty(), "{body}: {:?}", collected.deleted);
        assert_eq!(collected.problems.len(), 1, "{body}");

        call(&servers[0], Method::DELETE, "/api/v1/namespaces/shop", Value::Null).await;
        let controller = NamespaceController::new(spoiled(JOBS));
        controller.sync().await.unwrap_err();
        assert_eq!(get(&servers[0], "/api/v1/namespaces/shop").await.0, 200, "{body}");
    }
}

#[tokio::test]
async fn an_owner_waits_while_a_kind_cannot_be_listed() {
    for policy in ["Orphan", "Foreground"] {
        let servers = servers();
        let uid = fill(&servers[0]).await;
        own(&servers[0], "owned", &uid).await;
        let path = format!("{JOBS}/run");
        call(&servers[0], Method::DELETE, &path, json!({"propagationPolicy": policy})).await;
        assert_eq!(get(&servers[0], &path).await.0, 200, "it has a finalizer");
        let mut collector = GarbageCollector::new(Spoiled {
            address: Address::new(&servers),
            path: "/api/v1/configmaps".to_owned(),
            code: 503,
            body: "{}",
        });
        collector.refresh().await.unwrap();
        assert_eq!(collector.sweep().await.problems.len(), 1, "{policy}");
        assert_eq!(get(&servers[0], &path).await.0, 200, "{policy}");

        collector = GarbageCollector::new(Spoiled {
            address: Address::new(&servers),
            path: String::new(),
            code: 200,
            body: "",
        });
        collector.refresh().await.unwrap();
        collector.sweep().await;
        collector.sweep().await;
        assert_eq!(get(&servers[0], &path).await.0, 404, "{policy}");
        let kept = usize::from(policy == "Orphan");
        assert_eq!(left(&servers[0], CONFIG_MAPS).await, 1 + kept, "{policy}");
    }
}

#[tokio::test]
async fn an_apply_creates_only_where_a_create_may() {
    let servers = servers();
    let path = format!("{CONFIG_MAPS}/applied?fieldManager=test");
    let apply = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: applied\n";
    let (code, refusal) = patch(&servers[0], &path, "application/apply-patch+yaml", apply).await;
    assert_eq!(code, 404);
    assert_eq!(refusal["message"], "namespaces \"shop\" not found");
    fill(&servers[0]).await;
    call(&servers[0], Method::DELETE, "/api/v1/namespaces/shop", Value::Null).await;
    let (code, refusal) = patch(&servers[0], &path, "application/apply-patch+yaml", apply).await;
    assert_eq!(code, 403);
    assert_eq!(refusal["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let existing = format!("{CONFIG_MAPS}/one?fieldManager=test");
    let apply = apply.replace("applied", "one");
    let (code, _) = patch(&servers[0], &existing, "application/apply-patch+yaml", &apply).await;
    assert_eq!(code, 200, "an object that exists can still be changed");
}

#[tokio::test]
async fn a_namespace_says_what_keeps_it() {
    let servers = servers();
    fill(&servers[0]).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&servers[0], CONFIG_MAPS, held).await;
    call(&servers[0], Method::DELETE, "/api/v1/namespaces/shop", Value::Null).await;
    let controller = NamespaceController::new(Address::new(&servers));
    assert!(controller.sync().await.unwrap().is_empty());
    let (_, namespace) = get(&servers[0], "/api/v1/namespaces/shop").await;
    let conditions = namespace["status"]["conditions"].as_array().unwrap();
    let text = |condition: &Value, key: &str| condition[key].as_str().unwrap().to_owned();
    let said: Vec<_> = conditions
        .iter()
        .map(|condition| ["type", "status", "reason", "message"].map(|key| text(condition, key)))
        .collect();
    // As kube-controller-manager of 1.36 says it (pkg/controller/namespace/deletion).
    let expected = [
        [
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ],
        [
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ],
        [
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ],
        [
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances",
        ],
        [
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource \
             instances",
        ],
    ];
    assert_eq!(said, expected);
    assert_eq!(namespace["status"]["phase"], "Terminating");

    // It does not write the same again, and ends when the finalizer is gone.
    let revision = servers[0].storage().resource_version();
    assert!(controller.sync().await.unwrap().is_empty());
    assert_eq!(servers[0].storage().resource_version(), revision);
    let free = json!({"metadata": {"finalizers": []}});
    call(&servers[0], Method::PATCH, &format!("{CONFIG_MAPS}/held"), free).await;
    assert_eq!(controller.sync().await.unwrap(), ["shop"]);
}
