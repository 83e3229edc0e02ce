//! Leases of several gateways on an API server in memory, on a paused clock.

mod owner;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_proxy::Body;
use mvp_proxy::control::AskError;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::*;
use crate::claim::Source;
use crate::kube::call;

/// The API server and the connection of one gateway to it.
#[derive(Clone)]
struct Server {
    api: ApiServer,
    cut: Arc<AtomicBool>,
    forbids: Arc<AtomicBool>,
}

impl Server {
    fn start() -> Server {
        let leases = ResourceSpec::namespaced("leases", "Lease");
        let groups = vec![GroupSpec::new("coordination.k8s.io").version("v1", [leases])];
        let (id, git_version) = ("a".to_owned(), "v1.36.4".to_owned());
        let spec = ServerSpec { id, git_version, groups, ..ServerSpec::default() };
        let api = ApiServer::new(spec, Storage::new());
        Server { api, cut: Arc::default(), forbids: Arc::default() }
    }

    /// The same server over another connection.
    fn another_connection(&self) -> Server {
        Server { api: self.api.clone(), cut: Arc::default(), forbids: Arc::default() }
    }

    async fn write(&self, lease: Value) {
        let name = lease["metadata"]["name"].as_str().unwrap();
        let path = format!("{PATH}/{name}?fieldManager=test&force=true");
        let body = ("application/apply-patch+yaml", Bytes::from(lease.to_string()));
        let _: Value = call(self, Method::PATCH, &path, Some(body)).await.unwrap();
    }

    async fn names(&self) -> Vec<String> {
        let list: Value = call(self, Method::GET, PATH, None).await.unwrap();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Ask for Server {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        if self.cut.load(Ordering::Relaxed) {
            return Err(AskError::new("connection refused"));
        }
        if self.forbids.load(Ordering::Relaxed) {
            let status = json!({"kind": "Status", "message": "leases is forbidden"}).to_string();
            let body = Body::new(Full::from(status));
            return Ok(Response::builder().status(403).body(body).unwrap());
        }
        match self.api.clone().oneshot(request).await {
            Ok(response) => Ok(response.map(Body::new)),
            Err(never) => match never {},
        }
    }
}

/// A gateway: its own Lease, and what it reads.
struct Gateway {
    own: Arc<OwnLease>,
    source: Source,
    problem: watch::Receiver<Option<String>>,
    clock: Clock,
    leaving: CancellationToken,
    keeping: JoinHandle<()>,
    reading: JoinHandle<()>,
}

impl Gateway {
    fn start(server: &Server, id: &str, address: &str, instance: &str) -> Gateway {
        let announcement = Announcement {
            id: id.to_owned(),
            address: address.parse().unwrap(),
            instance: instance.to_owned(),
        };
        let (own, board, clock) =
            (Arc::new(OwnLease::new(announcement)), Board::default(), Clock::start());
        let (claims, source) = Source::new("leases");
        let (problems, problem) = watch::channel(None);
        let leaving = CancellationToken::new();
        let reading =
            tokio::spawn(read(server.clone(), clock, Arc::clone(&own), board.clone(), claims));
        let version = || Some("1.36".to_owned());
        let keeping = keep(
            server.clone(),
            clock,
            Arc::clone(&own),
            board,
            version,
            problems,
            leaving.clone(),
        );
        let keeping = tokio::spawn(keeping);
        Gateway { own, source, problem, clock, leaving, keeping, reading }
    }

    /// The IDs and addresses that it read, and the seconds since the last heartbeat of each.
    fn knows(&self) -> Vec<(String, u64)> {
        let now = self.clock.now();
        let claims = self.source.claims.borrow().clone();
        let shown = |claim: &Claim| {
            let (id, address) = (claim.id.as_deref()?, claim.address.as_deref()?);
            Some((format!("{id} {address}"), now.since(claim.heard?).as_secs()))
        };
        claims.claims.iter().filter_map(shown).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.knows().into_iter().map(|(name, _)| name).collect();
        names.sort();
        names
    }

    /// Ends it without a shutdown, as `kill -9` does.
    fn kill(self) {
        self.keeping.abort();
        self.reading.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn gateways_find_each_other_and_see_a_shutdown_at_once() {
    let server = Server::start();
    let a = Gateway::start(&server, "a", "10.0.0.1:6443", "1");
    let b = Gateway::start(&server, "b", "[fd00::2]:6443", "1");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(a.names(), ["b [fd00::2]:6443"]);
    assert_eq!(b.names(), ["a 10.0.0.1:6443"]);
    // Both have heartbeats for an hour.
    for _ in 0..360 {
        sleep(Duration::from_secs(10)).await;
        let (_, silent) = a.knows().pop().unwrap();
        assert!(silent <= 5, "{silent}");
    }

    b.leaving.cancel();
    b.keeping.await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(a.names(), [""; 0], "without a wait");
    assert_eq!(server.names().await, std::slice::from_ref(&a.own.name));
}

#[tokio::test(start_paused = true)]
async fn a_killed_gateway_goes_silent_and_returns_at_another_address() {
    let server = Server::start();
    let a = Gateway::start(&server, "a", "10.0.0.1:6443", "1");
    let b = Gateway::start(&server, "b", "10.0.0.2:6443", "1");
    sleep(Duration::from_secs(12)).await;
    b.kill();
    sleep(Duration::from_secs(60)).await;
    let silent = a.knows();
    assert!(matches!(&silent[..], [(name, 57..=62)] if name == "b 10.0.0.2:6443"), "{silent:?}");
    let b = Gateway::start(&server, "b", "10.0.0.9:6443", "2");
    sleep(Duration::from_secs(6)).await;
    let announced = |gateway: &Gateway| -> Vec<String> {
        let claims = gateway.source.claims.borrow().claims.clone();
        let announced = claims.iter().filter(|claim| claim.announced);
        announced.filter_map(|claim| Some(claim.address.as_ref()?.to_string())).collect()
    };
    // Its own leftover Lease is no rival.
    assert_eq!(announced(&b), ["10.0.0.1:6443"]);
    assert_eq!(a.names(), ["b 10.0.0.2:6443", "b 10.0.0.9:6443"]);
    // A leftover Lease is deleted by any gateway after an hour.
    sleep(Duration::from_secs(4500)).await;
    assert_eq!(a.names(), ["b 10.0.0.9:6443"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_changes_or_deletes_is_repaired() {
    let server = Server::start();
    let a = Gateway::start(&server, "a", "10.0.0.1:6443", "1");
    let b = Gateway::start(&server, "b", "10.0.0.2:6443", "1");
    sleep(Duration::from_secs(6)).await;
    let mut forged = b.own.renewed(None);
    forged["metadata"]["annotations"][ADDRESS] = json!("10.6.6.6:6443");
    forged["spec"]["holderIdentity"] = json!("me");
    for _ in 0..3 {
        server.write(forged.clone()).await;
        sleep(Duration::from_millis(10)).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(a.names(), ["b 10.0.0.2:6443"]);
    }
    let path = format!("{PATH}/{}", b.own.name);
    let _: Value = call(&server, Method::DELETE, &path, None).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(a.names(), ["b 10.0.0.2:6443"]);
}

#[tokio::test(start_paused = true)]
async fn a_takeover_keeps_the_lease() {
    let server = Server::start();
    let a = Gateway::start(&server, "a", "10.0.0.1:6443", "1");
    let old = Gateway::start(&server, "b", "10.0.0.2:6443", "1");
    sleep(Duration::from_secs(7)).await;
    let new = Gateway::start(&server, "b", "10.0.0.2:6443", "2");
    sleep(Duration::from_secs(7)).await;
    old.leaving.cancel();
    old.keeping.await.unwrap();
    let mut claims = a.source.claims.clone();
    claims.mark_unchanged();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(a.names(), ["b 10.0.0.2:6443"]);
    assert!(!claims.has_changed().unwrap(), "it was never deleted");
    // The new process is alone by now, and deletes the Lease at its shutdown.
    new.leaving.cancel();
    new.keeping.await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(a.names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_makes_no_member_silent() {
    let server = Server::start();
    let way = server.another_connection();
    let a = Gateway::start(&way, "a", "10.0.0.1:6443", "1");
    let b = Gateway::start(&server, "b", "10.0.0.2:6443", "1");
    sleep(Duration::from_secs(11)).await;
    way.cut.store(true, Ordering::Relaxed);
    // The watch ends by itself, and cannot be resumed.
    sleep(Duration::from_secs(400)).await;
    assert!(a.source.claims.borrow().deaf_since.is_some());
    assert_eq!(a.names(), ["b 10.0.0.2:6443"], "the last known members stay");
    assert_eq!(a.source.problem(), None, "an operator has nothing to solve here");
    b.leaving.cancel();
    way.cut.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert!(a.source.claims.borrow().deaf_since.is_none());
    assert_eq!(a.names(), [""; 0], "the missed change is seen");
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_reported_with_what_to_grant_until_it_ends() {
    let server = Server::start();
    server.forbids.store(true, Ordering::Relaxed);
    let a = Gateway::start(&server, "a", "10.0.0.1:6443", "1");
    sleep(Duration::from_secs(9)).await;
    let problems = (a.source.problem(), a.problem.borrow().clone());
    assert_eq!(problems, (None, None), "a server that starts forbids everything");
    sleep(Duration::from_secs(16)).await;
    let read = a.source.problem().unwrap();
    let kept = a.problem.borrow().clone().unwrap();
    for (problem, what) in [(read, "read"), (kept, "write")] {
        let start = format!("the API server denies permission to {what} Leases in kube-system");
        assert!(problem.starts_with(&start), "{problem}");
        assert!(problem.contains("(leases is forbidden); apply deploy/rbac.yaml"), "{problem}");
    }
    server.forbids.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert_eq!((a.source.problem(), a.problem.borrow().clone()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn identity_leases_with_an_address_are_members() {
    let server = Server::start();
    let (claims, source) = Source::new("identities");
    let clock = Clock::start();
    tokio::spawn(read_identities(server.clone(), clock, false, claims));
    let identity = |name: &str, address: Option<&str>, renewed: &str| {
        let mut annotations = json!({});
        if let Some(address) = address {
            annotations[PEER_ADDRESS] = json!(address);
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": "kube-system", "annotations": annotations,
                "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
            },
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": renewed},
        })
    };
    server.write(identity("apiserver-x", Some("10.0.0.2:6444"), "1")).await;
    server.write(identity("apiserver-y", None, "1")).await;
    server.write(identity("apiserver-z", Some("nonsense"), "1")).await;
    server.write(identity("apiserver-w", Some("127.0.0.1:6444"), "1")).await;
    sleep(Duration::from_secs(1)).await;
    advance(Duration::from_secs(30)).await;
    server.write(identity("apiserver-y", None, "2")).await;
    sleep(Duration::from_millis(10)).await;
    let shown: Vec<_> = source
        .claims
        .borrow()
        .claims
        .iter()
        .map(|claim| {
            let silent = clock.now().since(claim.heard.unwrap()).as_secs();
            (claim.id.clone().unwrap().to_string(), claim.address.clone(), claim.kind, silent)
        })
        .collect();
    let bare = MemberKind::Bare;
    let expected = [
        ("apiserver-x".to_owned(), Some("10.0.0.2:6444".into()), bare, 31),
        ("apiserver-y".to_owned(), None, bare, 0),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn lease_names_are_unique_for_each_id_and_address_and_differ_from_kube_apiservers() {
    let name = |id: &str, address: &str| {
        let (id, address) = (id.to_owned(), address.parse().unwrap());
        OwnLease::new(Announcement { id, address, instance: "1".to_owned() }).name
    };
    let ids = ["apiserver-c7uylvfxlbqccnk6myfkwetzze", "A_b.C", "___", &"x".repeat(253)];
    let mut names = Vec::new();
    for id in ids {
        for address in ["10.0.0.1:6443", "10.0.0.1:6444", "[fd00::1]:6443"] {
            let name = name(id, address);
            // A DNS label.
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.len() <= 63 && name.chars().all(fits), "{name}");
            assert!(name.starts_with("mvp-") && !name.ends_with('-'), "{name}");
            names.push(name);
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 12);
}

#[test]
fn the_content_of_a_lease_is_checked() {
    let lease = |id: &str, address: &str| Lease {
        metadata: Metadata {
            annotations: [(ID, id), (ADDRESS, address)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..Metadata::default()
        },
        spec: Spec::default(),
    };
    for (id, address, one_host, usable) in [
        ("a", "10.0.0.1:6443", false, true),
        ("a", "[fd00::1]:6443", false, true),
        ("a", "127.0.0.1:6443", true, true),
        ("a", "127.0.0.1:6443", false, false),
        ("a", "[::1]:6443", false, false),
        ("a", "[::ffff:127.0.0.1]:6443", false, false),
        ("a", "0.0.0.0:6443", true, false),
        ("a", "[::]:6443", true, false),
        ("a", "10.0.0.1:0", false, false),
        ("a", "224.0.0.1:6443", false, false),
        ("a", "example.com:6443", false, false),
        ("a", "10.0.0.1", false, false),
        ("a", "", false, false),
        ("", "10.0.0.1:6443", false, false),
        ("a b", "10.0.0.1:6443", false, false),
        ("a@10.0.0.2:6443", "10.0.0.1:6443", false, false),
    ] {
        let entry = gateway_entry(&lease(id, address), one_host);
        assert_eq!(entry.is_ok(), usable, "{id:?} {address:?}: {entry:?}");
    }
    assert!(
        gateway_entry(&Lease { metadata: Metadata::default(), spec: Spec::default() }, true)
            .is_err()
    );
}
