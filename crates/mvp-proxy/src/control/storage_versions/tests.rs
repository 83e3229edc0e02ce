//! With a paused clock, through the whole loop: what is recorded counts for whom, and how long.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use mvp_core::decide::{Asked, Denial, LocalHealth, Origin};
use mvp_core::member::MemberKind;
use mvp_core::{RequestInfo, decide};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::{
    Clock, ControlSettings, SnapshotReader, WatchedMembership, channel, first_snapshot, run,
};
use super::*;
use crate::body::Body;
use crate::metrics::Metrics;

const JOBS: &str = "/apis/batch/v1/namespaces/x/jobs";
const MISSING: &str = "confirmed-not-found";

/// A server that serves pods and, where it is said so, StorageVersions.
#[derive(Clone, Default)]
struct Double(Arc<Inside>);

#[derive(Default)]
struct Inside {
    /// What it says of StorageVersions: status and body.
    says: Mutex<Option<(u16, String)>>,
    /// Whether it never answers for them.
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
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, String> {
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
                _ => return Err("nothing else is here".to_owned()),
            };
            let items: Vec<Value> = group.into_iter().map(discovered).collect();
            let version = "apidiscovery.k8s.io/v2";
            let list =
                json!({"kind": "APIGroupDiscoveryList", "apiVersion": version, "items": items});
            (200, list.to_string())
        };
        let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let response = Response::builder().status(status).header("content-type", kind);
        response.body(Body::from(bytes::Bytes::from(body))).map_err(|error| error.to_string())
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

/// As kube-apiserver 1.36 writes them.
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

/// Two servers that can be asked, `a` the local one, and whoever else is said to be a member.
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

    fn reach(&self, id: &Arc<str>, _: Option<&MemberRecord>) -> Option<Double> {
        match &**id {
            "a" => Some(self.0.clone()),
            "b" => Some(self.1.clone()),
            _ => None,
        }
    }
}

fn record(id: &str, address: Option<&str>, heard: Option<Timestamp>) -> MemberRecord {
    MemberRecord { id: id.into(), address: address.map(Into::into), kind: MemberKind::Bare, heard }
}

impl World {
    fn start() -> World {
        let (local, peer) = (Double::default(), Double::default());
        let members = watch::Sender::new(Vec::new());
        let settings = ControlSettings { local: Some("a".into()), ..ControlSettings::default() };
        let clock = Clock::start();
        let (writer, reader) = channel(clock, first_snapshot(&settings, clock));
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
        world.stranger();
        world
    }

    /// `c` gives a sign of life, and no address.
    fn stranger(&self) {
        let c = record("c", None, Some(self.reader.now()));
        self.members.send_replace(vec![record("b", Some("b:1"), None), c]);
    }

    /// Time passes, in which it is heard of.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.stranger();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// What is decided after the local server denied it, once all confirmed what they serve.
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
    // Who says itself what it serves is not said by others to.
    ("policy.budgets", "b", &["policy/v1"]),
];

#[tokio::test(start_paused = true)]
async fn what_a_living_server_is_recorded_to_serve_is_not_404_though_it_was_never_seen() {
    let world = World::start();
    world.pass(8).await;
    assert_eq!(world.decided(JOBS).await, MISSING, "nobody has StorageVersions");
    assert_eq!(world.local.asked() + world.peer.asked(), 0);

    // A peer comes to have them.
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
    assert_eq!(world.local.asked(), 0, "it has none");

    // What is recorded no more is not there.
    world.peer.says(200, list(&[("core.nodes", "c", &["v1"])]));
    world.pass(8).await;
    assert_eq!(world.decided(JOBS).await, MISSING);
    assert_eq!(world.decided("/api/v1/nodes").await, "recorded");
}

/// A server that restarts for its upgrade is there again in a while: it is remembered as any member
/// is. But nobody deletes what the dead are recorded to serve.
#[tokio::test(start_paused = true)]
async fn what_is_recorded_counts_as_long_as_the_server_is_remembered() {
    let world = World::start();
    world.local.says(200, list(&RECORDS));
    world.pass(8).await;
    let forget_after = ControlSettings::default().forget_after;
    // Its Lease is not renewed any more.
    tokio::time::sleep(forget_after - Duration::from_secs(20)).await;
    assert_eq!(world.decided(JOBS).await, "recorded");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(world.decided(JOBS).await, MISSING, "it lapsed");
    world.pass(8).await;
    assert_eq!(world.decided(JOBS).await, "recorded", "it is back");

    // Its Lease is gone.
    world.members.send_replace(vec![record("b", Some("b:1"), None)]);
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(world.decided(JOBS).await, "recorded");
    world.reader.forget("c");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.decided(JOBS).await, MISSING, "somebody said so");
}

#[tokio::test(start_paused = true)]
async fn what_is_known_stays_until_something_else_is_said() {
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
    // What is well formed, and odd, says nothing.
    let odd = json!({"items": [
        {"metadata": {"name": "nodots"}, "status": {"storageVersions": [{"apiServerID": "c", "servedVersions": ["batch/v1"]}]}},
        {"metadata": {"name": "batch.jobs"}},
        {"metadata": {"name": "batch.jobs"}, "status": {"storageVersions": [{}, {"apiServerID": "c"}]}},
    ]});
    world.local.says(200, odd.to_string());
    world.pass(12).await;
    assert_eq!(world.decided(JOBS).await, MISSING);
}

/// One that does not tell is not asked for ever.
#[tokio::test(start_paused = true)]
async fn another_is_asked_where_one_does_not_say() {
    let world = World::start();
    world.local.says(200, "");
    *world.local.0.hangs.lock().unwrap() = true;
    world.peer.says(200, list(&RECORDS));
    world.pass(30).await;
    assert_eq!(world.decided(JOBS).await, "recorded");
    assert!(world.local.asked() > 0, "the nearest was asked first");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_where_all_speak_for_themselves() {
    let world = World::start();
    world.local.says(200, list(&RECORDS));
    world.members.send_replace(vec![record("b", Some("b:1"), None)]);
    tokio::time::sleep(Duration::from_secs(700)).await;
    let before = world.local.asked();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.local.asked(), before);
    // Every 5 s, with a stranger.
    world.pass(60).await;
    let asked = world.local.asked() - before;
    assert!((11..=13).contains(&asked), "{asked} times a minute");
}

#[tokio::test(start_paused = true)]
async fn who_hangs_is_waited_for_at_the_start_and_keeps_nobody_busy() {
    let world = World::start();
    world.local.says(200, list(&[("batch.jobs", "c", &["batch/v1"])]));
    *world.local.0.hangs.lock().unwrap() = true;
    world.pass(2).await;
    assert_eq!(world.decided(JOBS).await, "unconfirmed", "nobody knows yet what is recorded");
    let published = Arc::new(AtomicUsize::new(0));
    let (reader, counts) = (world.reader.clone(), Arc::clone(&published));
    let counting = tokio::spawn(async move {
        let count = |_: &Snapshot| counts.fetch_add(1, Ordering::SeqCst) > usize::MAX / 2;
        reader.wait_for(count).await;
    });
    world.pass(7).await;
    counting.abort();
    // Two members are asked once a second.
    let published = published.load(Ordering::SeqCst);
    assert!((7..100).contains(&published), "{published} snapshots in 7 s");
    *world.local.0.hangs.lock().unwrap() = false;
    world.pass(8).await;
    assert_eq!(world.decided(JOBS).await, "recorded");
}
