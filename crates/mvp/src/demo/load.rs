//! Readers that ask every server in turn, as through a load balancer that skips dead servers, and
//! judge each answer. Entry: [`Load::start`].

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::certificates::Certificates;
use super::client::{Client, Line};
use super::cluster::Cluster;

/// The readers at the same time.
const READERS: usize = 3;
/// The pause of a reader between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// What the readers ask for: a path, and its resource as `jobs.v1.batch`.
const PROBES: [(&str, &str); 3] = [
    ("/api/v1/namespaces/default/configmaps", "configmaps.v1"),
    ("/apis/batch/v1/namespaces/default/jobs", "jobs.v1.batch"),
    (
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
        "mutatingadmissionpolicies.v1.admissionregistration.k8s.io",
    ),
];

/// The counted answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// All requests that were answered.
    pub(super) answered: u64,
    /// 404s for an API that a running server served all the time.
    pub(super) false_404: u64,
    /// 404s for an API that no server had yet.
    pub(super) true_404: u64,
    /// 503s: try again.
    pub(super) refused: u64,
    /// Any other answer that is no success.
    pub(super) failed: u64,
    /// Connections that failed, after which the next server was asked.
    pub(super) moved: u64,
}

/// What is known of the cluster, and what was counted.
#[derive(Debug)]
struct Shared {
    started: Instant,
    addresses: Vec<SocketAddr>,
    /// The resources of each running server; none of one that restarts.
    serving: Vec<HashSet<String>>,
    /// By the second since the start.
    seconds: BTreeMap<u64, Tally>,
}

/// The readers.
pub(super) struct Load {
    shared: Arc<Mutex<Shared>>,
    readers: JoinSet<()>,
}

impl Load {
    /// Starts the readers.
    pub(super) fn start(certificates: &Certificates, cluster: &Cluster) -> anyhow::Result<Load> {
        let servers = &cluster.servers;
        let shared = Arc::new(Mutex::new(Shared {
            started: Instant::now(),
            addresses: servers.iter().map(|server| server.address).collect(),
            serving: servers.iter().map(|server| server.own().into_iter().collect()).collect(),
            seconds: BTreeMap::new(),
        }));
        let mut readers = JoinSet::new();
        for first in 0..READERS {
            let lines = (0..servers.len())
                .map(|_| Ok(Line::new(Client::admin(certificates)?)))
                .collect::<anyhow::Result<Vec<_>>>()?;
            readers.spawn(read(first, lines, Arc::clone(&shared)));
        }
        Ok(Load { shared, readers })
    }

    /// Records that a server ends.
    pub(super) fn is_ending(&self, place: usize) {
        if let Some(serving) = lock(&self.shared).serving.get_mut(place) {
            serving.clear();
        }
    }

    /// Records that a server runs.
    pub(super) fn is_serving(&self, place: usize, resources: Vec<String>) {
        if let Some(serving) = lock(&self.shared).serving.get_mut(place) {
            *serving = resources.into_iter().collect();
        }
    }

    /// Ends the readers. Returns what was counted in each second.
    pub(super) async fn end(mut self) -> Vec<Tally> {
        self.readers.shutdown().await;
        let seconds = &lock(&self.shared).seconds;
        let last = seconds.keys().next_back().copied().unwrap_or_default();
        (0..=last).map(|second| seconds.get(&second).copied().unwrap_or_default()).collect()
    }
}

/// The sum of several tallies.
pub(super) fn sum(tallies: &[Tally]) -> Tally {
    tallies.iter().fold(Tally::default(), |sum, tally| Tally {
        answered: sum.answered + tally.answered,
        false_404: sum.false_404 + tally.false_404,
        true_404: sum.true_404 + tally.true_404,
        refused: sum.refused + tally.refused,
        failed: sum.failed + tally.failed,
        moved: sum.moved + tally.moved,
    })
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks forever, each server and each probe in turn.
async fn read(first: usize, lines: Vec<Line>, shared: Arc<Mutex<Shared>>) {
    let servers = lines.len().max(1);
    for turn in first.. {
        // Every reader asks every server for every probe.
        let (probe, mut place) = (turn % PROBES.len(), turn / PROBES.len() % servers);
        let Some((path, resource)) = PROBES.get(probe).copied() else { return };
        for _ in 0..servers {
            if ask(&lines, place, path, resource, &shared).await {
                break;
            }
            place = (place + 1) % servers;
        }
        sleep(PAUSE).await;
    }
}

/// Asks one server. Returns whether it answered.
async fn ask(
    lines: &[Line],
    place: usize,
    path: &str,
    resource: &str,
    shared: &Mutex<Shared>,
) -> bool {
    let served_before = lock(shared).is_served(resource);
    let address = lock(shared).addresses.get(place).copied();
    let (Some(line), Some(address)) = (lines.get(place), address) else { return false };
    let request = Request::builder().method(Method::GET).uri(path).body(Bytes::new());
    let Ok(request) = request else { return false };
    let answer = line.send(address, request).await;
    let mut shared = lock(shared);
    let served = (served_before, shared.is_served(resource));
    let tally = shared.now();
    let Ok(answer) = answer else {
        tally.moved += 1;
        return false;
    };
    tally.answered += 1;
    match (answer.status.as_u16(), served) {
        (200..=299, _) => {}
        (404, (true, true)) => tally.false_404 += 1,
        // It appears or disappears right now: either answer is right.
        (404, _) => tally.true_404 += 1,
        (503, _) => tally.refused += 1,
        _ => tally.failed += 1,
    }
    true
}

impl Shared {
    fn is_served(&self, resource: &str) -> bool {
        self.serving.iter().any(|serving| serving.contains(resource))
    }

    /// The tally of the current second.
    fn now(&mut self) -> &mut Tally {
        self.seconds.entry(self.started.elapsed().as_secs()).or_default()
    }
}
