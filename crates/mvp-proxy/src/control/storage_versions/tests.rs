//! The whole control loop on a paused clock: for which members StorageVersions count, and how long.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use mvp_core::decide::{Asked, Denial, LocalHealth, Origin};
use mvp_core::discovery::Part;
use mvp_core::member::MemberKind;
use mvp_core::{RequestInfo, decide};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::{
    AskError, Clock, ControlSettings, MemberRecord, SnapshotReader, WatchedMembership, channel,
    first_snapshot, run,
};
use super::*;
use crate::body::Body;
use crate::metrics::Metrics;

const JOBS: &str = "/apis/batch/v1/namespaces/x/jobs";
const MISSING: &str = "confirmed-not-found";

/// A server that serves pods and, if the test sets them, StorageVersions.
#[derive(Clone, Default)]
struct Double(Arc<Inside>);

#[derive(Default)]
struct Inside {
    /// The response for StorageVersions: status and body.
    says: Mutex<Option<(u16, String)>>,
    /// Whether requests for StorageVersions hang.
    hangs: Mutex<bool>,
    asked: AtomicUsize,
}

impl Double {
    fn says(&self, status: u16, body: impl Into<String>) {
        *self.0.says.lock().unwrap() = Some((status, body.into()));
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }
}

impl Ask for Double {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let says = self.0.says.lock().unwrap().clone();
        let path = request.uri().path().to_owned();
        let (status, body) = if path.ends_with("/storageversions") {
            self.0.asked.fetch_add(1, Ordering::SeqCst);
            if *self.0.hangs.lock().unwrap() {
                std::future::pending::<()>().await;
            }
            says.unwrap_or((404, String::new()))
        } else {
            let group = match path.as_str() {
                "/api" => Some(("", "v1", "pods")),
                "/apis" if says.is_some() => Some((GROUP, VERSION, RESOURCE)),
                "/apis" => None,
                _ => return Err(AskError::new("no such document")),
            };
            let items: Vec<Value> = group.into_iter().map(discovered).collect();
            let version = "apidiscovery.k8s.io/v2";
            let list =
                json!({"kind": "APIGroupDiscoveryList", "apiVersion": version, "items": items});
            (200, list.to_string())
        };
        let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let response = Response::builder().status(status).header("content-type", kind);
        response
            .body(Body::from(bytes::Bytes::from(body)))
            .map_err(|error| AskError::new(error.to_string()))
    }
}

fn discovered((group, version, resource): (&str, &str, &str)) -> Value {
    json!({"metadata": {"name": group}, "versions": [{
        "version": version, "freshness": "Current",
        "resources": [{
            "resource": resource, "scope": "Cluster", "verbs": ["get", "list"],
            "responseKind": {"group": group, "version": version, "kind": "It"},
        }],
    }]})
}

/// The format of kube-apiserver 1.36.
fn list(items: &[(&str, &str, &[&str])]) -> String {
    let item = |(name, server, served): &(&str, &str, &[&str])| {
        let decodable = ["batch/v1", "batch/v1beta1", "v1"];
        let of_server = json!({"apiServerID": server, "encodingVersion": "batch/v1",
            "decodableVersions": decodable, "servedVersions": served});
        json!({"metadata": {"name": name}, "spec": {}, "status": {"storageVersions": [of_server]}})
    };
    let items: Vec<Value> = items.iter().map(item).collect();
    json!({"kind": "StorageVersionList", "metadata": {"resourceVersion": "7"}, "items": items})
        .to_string()
}

/// Two servers, `a` the local one and `b` a peer, and a member `c` without an address.
struct World {
    local: Double,
    peer: Double,
    members: watch::Sender<Vec<MemberRecord>>,
    reader: SnapshotReader,
    _stop: DropGuard,
}

struct Doubles(Double, Double);

impl Reach for Doubles {
    type Ask = Double;

    fn reach(&self, member: &Member) -> Option<Double> {
        match &*member.id {
            "a" => Some(self.0.clone()),
            "b" => Some(self.1.clone()),
            _ => None,
        }
    }
}

fn record(id: &str, address: Option<&str>, heard: Option<Timestamp>) -> MemberRecord {
    MemberRecord {
        name: id.into(),
        address: address.map(Into::into),
        kind: MemberKind::Bare,
        heard,
    }
}

impl World {
    fn start() -> World {
        let (local, peer) = (Double::default(), Double::default());
        let members = watch::Sender::new(Vec::new());
        let settings = ControlSettings { local: Some("a".into()), ..ControlSettings::default() };
        let clock = Clock::start();
        let (writer, reader) = channel(clock, first_snapshot(&settings, clock), settings.documents);
        let stop = CancellationToken::new();
        tokio::spawn(run(
            WatchedMembership::new(members.subscribe()),
            Doubles(local.clone(), peer.clone()),
            settings,
            writer,
            Arc::new(Metrics::new(false)),
            stop.clone(),
        ));
        let world = World { local, peer, members, reader, _stop: stop.drop_guard() };
        world.beat();
        world
    }

    /// `c` has a heartbeat, and no address.
    fn beat(&self) {
        let c = record("c", None, Some(self.reader.now()));
        self.members.send_replace(vec![record("b", Some("b:1"), None), c]);
    }

    /// Lets time pass, with heartbeats of `c`.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.beat();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The decision after a 404 of the local server, once all members confirmed their views.
    async fn decided(&self, path: &str) -> &'static str {
        let arrived = self.reader.now();
        let confirmed = |snapshot: &Snapshot| {
            Part::ALL.into_iter().all(|part| {
                let seen = |member: &Member| {
                    member.view.part(part).is_none_or(|seen| seen.confirmed >= arrived)
                };
                snapshot.members().all(seen)
            })
        };
        let snapshot = self.reader.refresh(Duration::from_secs(5), confirmed).await;
        assert!(confirmed(&snapshot));
        let denials = [Denial { member: "a", at: self.reader.now(), listed: false }];
        let (origin, local) = (Origin::Client, LocalHealth::Ready);
        let asked = Asked { origin, nopeer: false, arrived, local, denials: &denials };
        let request = RequestInfo::parse("GET", path, None);
        decide(&request, &snapshot, asked).reason.as_str()
    }
}

const RECORDS: [(&str, &str, &[&str]); 4] = [
    ("batch.jobs", "c", &["batch/v1"]),
    ("core.nodes", "c", &["v1"]),
    ("apps.deployments", "dead", &["apps/v1"]),
    // The discovery of b was seen, so that records do not count.
    ("policy.budgets", "b", &["policy/v1"]),
];

#[tokio::test(start_paused = true)]
async fn a_recorded_resource_of_an_unseen_member_is_not_404() {
    let world = World::start();
    world.pass(8).await;
    assert_eq!(world.decided(JOBS).await, MISSING, "no member serves StorageVersions");
    assert_eq!(world.local.asked() + world.peer.asked(), 0);

    // A peer starts to serve them.
    world.peer.says(200, list(&RECORDS));
    world.pass(8).await;
    for (path, reason) in [
        (JOBS, "recorded"),
        ("/apis/batch/v1", "recorded"),
        ("/apis/batch", "recorded"),
        ("/openapi/v3/apis/batch/v1", "recorded"),
        ("/api/v1/nodes", "recorded"),
        ("/apis/batch/v1beta1/namespaces/x/jobs", MISSING),
        ("/apis/batch/v1/namespaces/x/cronjobs", MISSING),
        ("/apis/apps/v1/namespaces/x/deployments", MISSING),
        ("/apis/policy/v1/namespaces/x/budgets", MISSING),
    ] {
        assert_eq!(world.decided(path).await, reason, "{path}");
    }
    assert_eq!(world.local.asked(), 0, "it does not serve them");

    // A record is removed.
    world.peer.says(200, list(&[("core.nodes", "c", &["v1"])]));
    world.pass(8).await;
    assert_eq!(world.decided(JOBS).await, MISSING);
    assert_eq!(world.decided("/api/v1/nodes").await, "recorded");
}

/// A server that restarts for an upgrade returns soon, so it is remembered as any member is. But
/// nobody deletes the records of dead servers.
#[tokio::test(start_paused = true)]
async fn records_count_as_long_as_the_member_is_remembered() {
    let world = World::start();
    world.local.says(200, list(&RECORDS));
    world.pass(8).await;
    let forget_after = ControlSettings::default().forget_after;
    // Its Lease is no longer renewed.
    tokio::time::sleep(forget_after - Duration::from_secs(20)).await;
    assert_eq!(world.decided(JOBS).await, "recorded");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(world.decided(JOBS).await, MISSING, "it expired");
    world.pass(8).await;
    assert_eq!(world.decided(JOBS).await, "recorded", "it is back");

    // Its Lease is deleted.
    world.members.send_replace(vec![record("b", Some("b:1"), None)]);
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(world.decided(JOBS).await, "recorded");
    world.reader.forget("c");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.decided(JOBS).await, MISSING, "an operator forgot it");
}

#[tokio::test(start_paused = true)]
async fn the_last_known_records_stay_until_new_ones_are_read() {
    let world = World::start();
    world.local.says(200, list(&RECORDS));
    world.pass(8).await;
    let garbage = ["", "nonsense", "{}", "{\"items\":[{}]}", "{\"items\":[{\"metadata\":7}]}"];
    let huge = format!("{{\"items\":[]{}}}", " ".repeat(MAX_BYTES));
    let answers = garbage.map(|body| (200, body)).into_iter();
    for (status, body) in answers.chain([(200, &*huge), (500, "{}"), (403, "{}"), (404, "")]) {
        world.local.says(status, body);
        let before = world.local.asked();
        world.pass(12).await;
        assert!(world.local.asked() > before);
        assert_eq!(world.decided(JOBS).await, "recorded", "{status} {:.40}", body);
    }
    // Well-formed but incomplete objects record nothing.
    let odd = json!({"items": [
        {"metadata": {"name": "nodots"}, "status": {"storageVersions": [{"apiServerID": "c", "servedVersions": ["batch/v1"]}]}},
        {"metadata": {"name": "batch.jobs"}},
        {"metadata": {"name": "batch.jobs"}, "status": {"storageVersions": [{}, {"apiServerID": "c"}]}},
    ]});
    world.local.says(200, odd.to_string());
    world.pass(12).await;
    assert_eq!(world.decided(JOBS).await, MISSING);
}

/// A member that does not answer is not asked forever.
#[tokio::test(start_paused = true)]
async fn the_next_member_is_asked_after_a_failure() {
    let world = World::start();
    world.local.says(200, "");
    *world.local.0.hangs.lock().unwrap() = true;
    world.peer.says(200, list(&RECORDS));
    world.pass(30).await;
    assert_eq!(world.decided(JOBS).await, "recorded");
    assert!(world.local.asked() > 0, "the local server was asked first");
}

#[tokio::test(start_paused = true)]
async fn records_are_not_fetched_while_every_member_was_seen() {
    let world = World::start();
    world.local.says(200, list(&RECORDS));
    world.members.send_replace(vec![record("b", Some("b:1"), None)]);
    tokio::time::sleep(Duration::from_secs(700)).await;
    let before = world.local.asked();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.local.asked(), before);
    // Every 5 s while there is an unseen member.
    world.pass(60).await;
    let asked = world.local.asked() - before;
    assert!((11..=13).contains(&asked), "{asked} times a minute");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_hangs_delays_404s_at_the_start_and_causes_no_busy_loop() {
    let world = World::start();
    world.local.says(200, list(&[("batch.jobs", "c", &["batch/v1"])]));
    *world.local.0.hangs.lock().unwrap() = true;
    world.pass(2).await;
    assert_eq!(world.decided(JOBS).await, "unconfirmed", "the records are not read yet");
    let published = Arc::new(AtomicUsize::new(0));
    let (reader, counts) = (world.reader.clone(), Arc::clone(&published));
    let counting = tokio::spawn(async move {
        let count = |_: &Snapshot| counts.fetch_add(1, Ordering::SeqCst) > usize::MAX / 2;
        reader.wait_for(count).await;
    });
    world.pass(7).await;
    counting.abort();
    // Two members are fetched from once a second.
    let published = published.load(Ordering::SeqCst);
    assert!((7..100).contains(&published), "{published} snapshots in 7 s");
    *world.local.0.hangs.lock().unwrap() = false;
    world.pass(8).await;
    assert_eq!(world.decided(JOBS).await, "recorded");
}
