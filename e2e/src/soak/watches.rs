//! Thousands of watches of one object, a counter that goes up by one. Each watch must see every
//! number once and in order, across its reconnects, and keeps nothing else. Entry item:
//! [`Watches::open`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};
use testkit::process::until;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::{Client, Http2, Http2Watch};

/// The watches of one connection.
const SHARE: usize = 50;
/// The time between two numbers.
const EVERY: Duration = Duration::from_secs(5);
const WITHIN: Duration = Duration::from_secs(120);

pub(super) struct Watches {
    counts: Arc<Counts>,
    /// The last number that each watch saw.
    seen: Vec<Arc<AtomicU64>>,
    tasks: Vec<JoinHandle<()>>,
    counter: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    /// The number that was written last.
    written: AtomicU64,
    open: AtomicUsize,
    events: AtomicUsize,
    resumed: AtomicUsize,
    /// How often the version was too old, so that numbers in between could not be seen.
    lists: AtomicUsize,
    /// Numbers that did not follow the one before.
    wrong: AtomicUsize,
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.counter.abort();
    }
}

impl Watches {
    /// Opens watches, spread over the addresses, and waits until all are open.
    pub(super) async fn open(
        client: &Client,
        addresses: &[SocketAddr],
        collection: &str,
        number: usize,
    ) -> anyhow::Result<Watches> {
        let to = *addresses.first().context("no address")?;
        let (client, path) = (client.clone(), format!("{collection}/{NAME}"));
        client.create(to, collection, &object(0, None)).await?.expect(201)?;
        let counts = Arc::<Counts>::default();
        let (mut seen, mut tasks) = (Vec::new(), Vec::new());
        for index in 0..number.div_ceil(SHARE) {
            let to = *addresses.get(index % addresses.len()).context("no address")?;
            let shared = Arc::new(Shared {
                client: client.clone(),
                to,
                collection: collection.to_owned(),
                connection: Mutex::default(),
                counts: Arc::clone(&counts),
            });
            for _ in 0..SHARE.min(number - index * SHARE) {
                let last = Arc::<AtomicU64>::default();
                tasks.push(tokio::spawn(Arc::clone(&shared).watch(Arc::clone(&last))));
                seen.push(last);
            }
        }
        let counter = tokio::spawn(count(client, to, path, Arc::clone(&counts)));
        let watches = Watches { counts, seen, tasks, counter };
        until("all watches are open", WITHIN, async || {
            Ok((watches.counts.open.load(Ordering::Relaxed) == number).then_some(()))
        })
        .await?;
        Ok(watches)
    }

    /// Stops the counter, and waits until every watch has seen the last number.
    pub(super) async fn end(self) -> anyhow::Result<String> {
        self.counter.abort();
        let last = self.counts.written.load(Ordering::Relaxed);
        until("every watch has seen the last number", WITHIN, async || {
            let has_seen = |seen: &Arc<AtomicU64>| seen.load(Ordering::Relaxed) >= last;
            Ok(self.seen.iter().all(has_seen).then_some(()))
        })
        .await
        .with_context(|| self.figures())?;
        let wrong = self.counts.wrong.load(Ordering::Relaxed);
        ensure!(wrong == 0, "{wrong} numbers were missed or came twice: {}", self.figures());
        Ok(format!("{}; all saw the last number, {last}", self.figures()))
    }

    pub(super) fn figures(&self) -> String {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let Counts { open, events, resumed, lists, .. } = &*self.counts;
        let (open, events) = (count(open), count(events));
        let (resumed, lists) = (count(resumed), count(lists));
        format!(
            "{open} of {} watches open, {events} events, {resumed} times resumed, {lists} times \
             with a list",
            self.seen.len()
        )
    }
}

const NAME: &str = "counter";

/// The counter, for a create, or for an update on condition of a version.
fn object(number: u64, version: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "resourceVersion": version},
        "data": {"number": number.to_string()},
    })
}

/// The number and the version of the counter.
fn read(object: &Value) -> Option<(u64, &str)> {
    let number = object.pointer("/data/number")?.as_str()?.parse().ok()?;
    Some((number, object.pointer("/metadata/resourceVersion")?.as_str()?))
}

/// Counts up. Whatever happens to a write, the next one depends on what is stored.
async fn count(client: Client, to: SocketAddr, path: String, counts: Arc<Counts>) {
    loop {
        sleep(EVERY).await;
        let Ok(answer) = client.get(to, &path).await else { continue };
        let stored = answer.json();
        let Some((number, version)) = read(&stored) else { continue };
        counts.wrote(number);
        let next = object(number + 1, Some(version));
        let body = Some(("application/json", &next));
        let written = client.send(to, Method::PUT, &path, body).await;
        if written.is_ok_and(|answer| answer.status == 200) {
            counts.wrote(number + 1);
        }
    }
}

impl Counts {
    fn wrote(&self, number: u64) {
        self.written.fetch_max(number, Ordering::Relaxed);
    }
}

/// What the watches of one connection share.
struct Shared {
    client: Client,
    to: SocketAddr,
    collection: String,
    connection: Mutex<Option<Arc<Http2>>>,
    counts: Arc<Counts>,
}

impl Shared {
    /// Watches forever. A version that is too old needs a read, after which numbers follow again.
    async fn watch(self: Arc<Self>, last: Arc<AtomicU64>) {
        let counts = &self.counts;
        let mut version = None;
        loop {
            version = match version {
                None => self.read(&last).await,
                Some(version) => match self.open(&version).await {
                    None => Some(version),
                    Some(watch) => {
                        counts.open.fetch_add(1, Ordering::Relaxed);
                        let version = self.follow(watch, version, &last).await;
                        counts.open.fetch_sub(1, Ordering::Relaxed);
                        counts.resumed.fetch_add(1, Ordering::Relaxed);
                        version
                    }
                },
            };
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The connection that all share, opened anew if it is over.
    async fn connection(&self) -> Option<Arc<Http2>> {
        let mut shared = self.connection.lock().await;
        if let Some(connection) = shared.as_ref().filter(|connection| !connection.is_over()) {
            return Some(Arc::clone(connection));
        }
        *shared = self.client.connect_http2(self.to).await.ok().map(Arc::new);
        shared.clone()
    }

    async fn read(&self, last: &AtomicU64) -> Option<String> {
        let path = format!("{}/{NAME}", self.collection);
        let stored = self.connection().await?.get(&path).await.ok()?.json();
        let (number, version) = read(&stored)?;
        last.store(number, Ordering::Relaxed);
        self.counts.lists.fetch_add(1, Ordering::Relaxed);
        Some(version.to_owned())
    }

    /// Opens a watch; none if that failed.
    async fn open(&self, version: &str) -> Option<Http2Watch> {
        let selector = format!("fieldSelector=metadata.name%3D{NAME}&allowWatchBookmarks=true");
        let path = format!("{}?watch=true&{selector}&resourceVersion={version}", self.collection);
        self.connection().await?.watch(&path).await.ok()?.ok()
    }

    /// Follows a watch to its end. Returns the version to resume from; none if it is too old.
    async fn follow(
        &self,
        mut watch: Http2Watch,
        mut version: String,
        last: &AtomicU64,
    ) -> Option<String> {
        let mut read_ahead = Vec::new();
        while let Ok(Some(data)) = watch.next().await {
            read_ahead.extend_from_slice(&data);
            while let Some(end) = read_ahead.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = read_ahead.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).ok()?;
                if event.get("type").is_some_and(|kind| kind == "ERROR") {
                    return None;
                }
                let at = event.pointer("/object/metadata/resourceVersion").and_then(Value::as_str);
                at?.clone_into(&mut version);
                if let Some((number, _)) = event.get("object").and_then(read) {
                    self.counts.events.fetch_add(1, Ordering::Relaxed);
                    let before = last.swap(number, Ordering::Relaxed);
                    let is_next = number == before + 1;
                    self.counts.wrong.fetch_add(usize::from(!is_next), Ordering::Relaxed);
                }
            }
        }
        Some(version)
    }
}
