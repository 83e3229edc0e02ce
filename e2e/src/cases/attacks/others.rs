//! Those who work while somebody attacks: an administrator with 20 watches, readers by certificate
//! and by token, small requests over HTTP/2 and HTTP/1.1. Entry item: [`Others::start`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use testkit::process::until;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::super::{callers, objects};
use crate::client::{Answer, Client, Http2, Http2Watch, is_retryable};
use crate::cluster::Cluster;
use crate::tally::{Failures, Tally};

/// The namespace of what they read and watch.
pub(super) const NAMESPACE: &str = "attacks";
/// Of the administrator, on one connection, and of the one with a token, on another.
const WATCHES: [usize; 2] = [20, 5];

/// What they read and watch.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) collection: String,
    object: Value,
}

impl Subject {
    /// Every server has ConfigMaps.
    pub(super) fn local() -> Subject {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        Subject { collection, object }
    }

    /// `b` lacks Jobs: through it they take the hop.
    pub(super) fn of_peers() -> Subject {
        let kind = objects::job(NAMESPACE, "last");
        Subject { collection: kind.collection, object: kind.object }
    }
}

/// They work until [`Others::end`].
pub(super) struct Others {
    to: SocketAddr,
    subjects: Vec<Subject>,
    admin: Client,
    over: Arc<AtomicBool>,
    readers: Vec<JoinHandle<(Tally, Failures)>>,
    watchers: Vec<JoinHandle<Option<String>>>,
    /// The name of the last object.
    mark: String,
    /// The connections of the watches.
    _connections: Vec<Http2>,
}

/// What they were told.
pub(super) struct Harm {
    answers: Tally,
    failures: Failures,
    watches: usize,
    ended: Tally,
}

impl Others {
    /// They begin; returns once every watch is open.
    pub(super) async fn start(
        cluster: &Cluster,
        to: SocketAddr,
        subjects: Vec<Subject>,
    ) -> anyhow::Result<Others> {
        cluster.namespace(NAMESPACE).await?;
        let admin = cluster.admin.clone();
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("last-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let by_certificate = callers::by_certificate(cluster).await?;
        let by_token = callers::by_token(cluster).await?;
        let mut others = Others {
            to,
            subjects,
            admin: admin.clone(),
            over: Arc::default(),
            readers: Vec::new(),
            watchers: Vec::new(),
            mark,
            _connections: Vec::new(),
        };
        for (client, count) in [&admin, &by_token].into_iter().zip(WATCHES) {
            others.watch(client, count).await?;
        }
        let paths: Vec<String> = others
            .subjects
            .iter()
            .map(|subject| format!("{}?limit=1", subject.collection))
            .collect();
        for path in paths {
            others.read(&by_certificate, &path, true);
            others.read(&by_token, &path, true);
            others.read(&by_token, &path, false);
        }
        others.read(&admin, "/version", true);
        others.read(&by_token, "/version", true);
        others.read(&by_certificate, "/version", false);
        Ok(others)
    }

    /// More of those who come with a token, and more often: `/version` is not failed over to a peer,
    /// so that it shows every trouble with the local server.
    pub(super) async fn more_tokens(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        for client in tokens(cluster, &["marian", "tuck", "john", "much"]).await? {
            self.read_with(&client, "/version", true, Duration::from_millis(5));
        }
        Ok(())
    }

    async fn watch(&mut self, client: &Client, count: usize) -> anyhow::Result<()> {
        let connection = client.connect_http2(self.to).await?;
        for subject in self.subjects.iter().cycle().take(count) {
            let path = format!("{}?watch=1", subject.collection);
            match connection.watch(&path).await? {
                Err(answer) => bail!("watch {path}: {answer}"),
                Ok(watch) => {
                    let mark = format!("\"name\":\"{}\"", self.mark);
                    self.watchers.push(tokio::spawn(follow(watch, mark)));
                }
            }
        }
        self._connections.push(connection);
        Ok(())
    }

    fn read(&mut self, client: &Client, path: &str, http2: bool) {
        let pause = Duration::from_millis(if http2 { 40 } else { 100 });
        self.read_with(client, path, http2, pause);
    }

    fn read_with(&mut self, client: &Client, path: &str, http2: bool, pause: Duration) {
        let (client, path, to) = (client.clone(), path.to_owned(), self.to);
        let reader = Reader { client, path, to, pause, over: Arc::clone(&self.over) };
        self.readers.push(match http2 {
            true => tokio::spawn(reader.http2()),
            false => tokio::spawn(reader.http1()),
        });
    }

    /// They end: a last object is made, which every watch that lives must see.
    pub(super) async fn end(self, at: SocketAddr) -> anyhow::Result<Harm> {
        let mut failures = Failures::since(Instant::now());
        let mut answers = Tally::default();
        for subject in &self.subjects {
            let mut object = subject.object.clone();
            if let Some(object) = object.as_object_mut() {
                object.insert("metadata".to_owned(), json!({"name": self.mark}));
            }
            let made = self.admin.create(at, &subject.collection, &object).await?;
            made.expect(201).context("the last object")?;
        }
        let settled = || self.watchers.iter().filter(|watcher| watcher.is_finished()).count();
        let all = self.watchers.len();
        // Whoever saw it ends by itself; a watch that is silent is counted below.
        let _ =
            until("every watch has seen the last object", Duration::from_secs(20), async || {
                Ok((settled() == all).then_some(()))
            })
            .await;
        self.over.store(true, Ordering::Relaxed);
        for reader in self.readers {
            let (tally, failed) = reader.await?;
            answers.add(&tally);
            failures.add(&failed);
        }
        let mut ended = Tally::default();
        for watcher in self.watchers {
            if !watcher.is_finished() {
                watcher.abort();
                ended.one("silent".to_owned());
                continue;
            }
            if let Some(reason) = watcher.await? {
                ended.one(reason);
            }
        }
        Ok(Harm { answers, failures, watches: all, ended })
    }
}

/// Reads a watch until it shows the last object; otherwise gives the reason why it ended.
async fn follow(mut watch: Http2Watch, mark: String) -> Option<String> {
    let mut last = Vec::new();
    loop {
        match watch.next().await {
            Ok(Some(data)) => {
                // An event may come in two pieces.
                last.extend_from_slice(&data);
                if last.windows(mark.len()).any(|part| part == mark.as_bytes()) {
                    return None;
                }
                let long = last.len().saturating_sub(mark.len());
                last.drain(..long);
            }
            Ok(None) => return Some("ended".to_owned()),
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// Asks for one thing over and over.
struct Reader {
    client: Client,
    path: String,
    to: SocketAddr,
    /// Between an answer and the next request.
    pause: Duration,
    over: Arc<AtomicBool>,
}

impl Reader {
    fn what(&self) -> &'static str {
        if self.path == "/version" { "version" } else { "read" }
    }

    /// Over one connection, and over a new one where that has ended, as client-go does.
    async fn http2(self) -> (Tally, Failures) {
        let (mut tally, mut failures) = (Tally::default(), Failures::since(Instant::now()));
        let mut connection = None;
        while !self.over.load(Ordering::Relaxed) {
            let outcome = self.ask(&mut connection).await;
            tally.count(&outcome);
            failures.count(self.what(), &outcome);
            sleep(self.pause).await;
        }
        (tally, failures)
    }

    async fn ask(&self, kept: &mut Option<Http2>) -> anyhow::Result<Answer> {
        // Go's client sends a request again that the server did not process.
        for _ in 0..6 {
            let connection = match kept.take().filter(|connection| !connection.is_over()) {
                Some(connection) => connection,
                None => self.client.connect_http2(self.to).await?,
            };
            match connection.get(&self.path).await {
                Ok(answer) => {
                    *kept = Some(connection);
                    return Ok(answer);
                }
                Err(error) if is_retryable(&error) => {}
                Err(error) => return Err(error),
            }
        }
        bail!("refused six times")
    }

    /// Each time over a new connection.
    async fn http1(self) -> (Tally, Failures) {
        let (mut tally, mut failures) = (Tally::default(), Failures::since(Instant::now()));
        while !self.over.load(Ordering::Relaxed) {
            let outcome = self.client.get(self.to, &self.path).await;
            tally.count(&outcome);
            failures.count(self.what(), &outcome);
            sleep(self.pause).await;
        }
        (tally, failures)
    }
}

impl Harm {
    pub(super) fn errors(&self) -> usize {
        self.failures.kinds().total()
    }

    /// Fails if there was any.
    pub(super) fn none(&self) -> anyhow::Result<()> {
        ensure!(self.answers.total() > 0 && self.watches > 0, "the others did nothing");
        let harmed = self.errors() + self.ended.total();
        ensure!(harmed == 0, "{self}");
        Ok(())
    }
}

impl std::fmt::Display for Harm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (asked, errors) = (self.answers.total(), self.errors());
        let (watches, ended) = (self.watches, self.ended.total());
        write!(f, "others: {errors} errors in {asked} requests")?;
        if errors > 0 {
            write!(f, " ({})", self.failures.kinds())?;
        }
        write!(f, ", {ended} of {watches} watches ended")?;
        if ended > 0 {
            write!(f, " ({})", self.ended)?;
        }
        Ok(())
    }
}

/// A figure of a gateway's `/metrics`, over all labels.
pub(super) async fn metric(admin: SocketAddr, name: &str) -> anyhow::Result<f64> {
    let answer = crate::client::plain(admin, "/metrics").await?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    Ok(sum(&text, name))
}

/// The sum of a metric's series.
pub(super) fn sum(metrics: &str, name: &str) -> f64 {
    let of_it = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    let values = metrics.lines().filter(of_it).filter_map(|line| line.rsplit(' ').next());
    values.filter_map(|value| value.parse::<f64>().ok()).sum()
}

/// A token of a service account that may do everything.
pub(super) async fn tokens(cluster: &Cluster, names: &[&str]) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for name in names {
        let client = callers::by_token_of(cluster, name).await;
        clients.push(client.with_context(|| format!("service account {name}"))?);
    }
    Ok(clients)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_metric_is_the_sum_of_its_series() {
        let text = "a_total{b=\"1\"} 2\na_total{b=\"2\"} 3\na_total_seconds 9\n# a_total x\n";
        assert!((super::sum(text, "a_total") - 5.0).abs() < f64::EPSILON);
    }
}
