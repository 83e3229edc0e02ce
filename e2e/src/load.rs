//! A constant load of reads, writes and watches, with a checker that knows what was promised to
//! each. Entry item: [`Load::start`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::Client;
use crate::tally::Tally;

/// A load that is under way: at each address a reader, a writer and a watcher of ConfigMaps.
pub(crate) struct Load {
    namespace: String,
    over: Arc<AtomicBool>,
    readers: Vec<JoinHandle<Tally>>,
    writers: Vec<JoinHandle<Written>>,
    watchers: Vec<JoinHandle<Watched>>,
}

/// What a writer was told.
struct Written {
    tally: Tally,
    /// The numbers of writes that were acknowledged.
    acknowledged: Vec<String>,
}

/// What a watcher saw.
struct Watched {
    seen: BTreeSet<String>,
    watches: usize,
    lists: usize,
}

/// What came of a load.
pub(crate) struct Outcome {
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    pub(crate) watches: usize,
    pub(crate) lists: usize,
}

/// The number of the last object.
const MARK: &str = "the-end";

impl Drop for Load {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
        self.writers.iter().for_each(JoinHandle::abort);
        self.watchers.iter().for_each(JoinHandle::abort);
    }
}

impl Load {
    /// Starts it, in a namespace that is there.
    pub(crate) fn start(client: &Client, addresses: &[SocketAddr], namespace: &str) -> Load {
        let over = Arc::new(AtomicBool::new(false));
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let worker = |to: &SocketAddr| Worker {
            client: client.clone(),
            to: *to,
            collection: collection.clone(),
            over: Arc::clone(&over),
        };
        Load {
            namespace: namespace.to_owned(),
            readers: addresses.iter().map(|to| tokio::spawn(worker(to).read())).collect(),
            writers: addresses
                .iter()
                .enumerate()
                .map(|(index, to)| tokio::spawn(worker(to).write(index)))
                .collect(),
            watchers: addresses.iter().map(|to| tokio::spawn(worker(to).watch())).collect(),
            over,
        }
    }

    /// Ends it, and checks it against what is stored: no acknowledged write is lost, none was made
    /// twice, and every watcher saw all that was acknowledged.
    pub(crate) async fn end(mut self, client: &Client, at: SocketAddr) -> anyhow::Result<Outcome> {
        self.over.store(true, Ordering::Relaxed);
        let (mut reads, mut writes) = (Tally::default(), Tally::default());
        for reader in self.readers.drain(..) {
            reads.add(&reader.await?);
        }
        let mut acknowledged = Vec::new();
        for writer in self.writers.drain(..) {
            let written = writer.await?;
            writes.add(&written.tally);
            acknowledged.extend(written.acknowledged);
        }

        let path = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        let list = client.get(at, &path).await?.expect(200)?;
        let mut stored: BTreeMap<String, usize> = BTreeMap::new();
        for item in list.pointer("/items").and_then(Value::as_array).into_iter().flatten() {
            if let Some(number) = number(item) {
                *stored.entry(number).or_default() += 1;
            }
        }
        let twice: Vec<_> = stored.iter().filter(|(_, count)| **count > 1).collect();
        ensure!(twice.is_empty(), "made twice: {twice:?}");
        let lost: Vec<_> = acknowledged.iter().filter(|one| !stored.contains_key(*one)).collect();
        ensure!(lost.is_empty(), "acknowledged, but lost: {lost:?}");
        ensure!(!acknowledged.is_empty(), "nothing was written: {writes}");

        // The last write is a mark that every watcher sees last.
        let mark = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": MARK, "labels": {"number": MARK}},
        });
        client.create(at, &path, &mark).await?.expect(201)?;
        let (mut watches, mut lists) = (0, 0);
        for watcher in self.watchers.drain(..) {
            let watched = tokio::time::timeout(Duration::from_secs(60), watcher).await;
            let watched = watched.context("a watcher never saw the last event")??;
            watches += watched.watches;
            lists += watched.lists;
            let missed: Vec<_> =
                acknowledged.iter().filter(|one| !watched.seen.contains(*one)).collect();
            ensure!(missed.is_empty(), "a watch missed {missed:?}");
        }
        Ok(Outcome { reads, writes, watches, lists })
    }
}

/// The number that a writer gave an object.
fn number(object: &Value) -> Option<String> {
    object.pointer("/metadata/labels/number").and_then(Value::as_str).map(str::to_owned)
}

/// One who asks the same address over and over, each time over a connection of its own.
struct Worker {
    client: Client,
    to: SocketAddr,
    collection: String,
    over: Arc<AtomicBool>,
}

impl Worker {
    async fn read(self) -> Tally {
        let mut tally = Tally::default();
        let path = format!("{}?limit=1", self.collection);
        while !self.over.load(Ordering::Relaxed) {
            tally.count(&self.client.get(self.to, &path).await);
            sleep(Duration::from_millis(20)).await;
        }
        tally
    }

    async fn write(self, writer: usize) -> Written {
        let mut written = Written { tally: Tally::default(), acknowledged: Vec::new() };
        for round in 0.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let number = format!("{writer}-{round}");
            // The server gives the name: a request that is sent twice makes two.
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"generateName": "load-", "labels": {"number": number}},
            });
            let answer = self.client.create(self.to, &self.collection, &object).await;
            written.tally.count(&answer);
            if answer.is_ok_and(|answer| answer.status == 201) {
                written.acknowledged.push(number);
            }
            sleep(Duration::from_millis(40)).await;
        }
        written
    }

    /// Lists and watches until the mark comes, as informers do: it goes on where a watch ended, and
    /// lists again where a server does not know that place any more.
    async fn watch(self) -> Watched {
        let mut watched = Watched { seen: BTreeSet::new(), watches: 0, lists: 0 };
        let mut version = String::new();
        loop {
            if version.is_empty() {
                let Ok(list) = self.client.get(self.to, &self.collection).await else { continue };
                let list = list.json();
                let items = list.pointer("/items").and_then(Value::as_array);
                watched.seen.extend(items.into_iter().flatten().filter_map(number));
                watched.lists += 1;
                let at = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                version = at.unwrap_or_default().to_owned();
                if watched.seen.contains(MARK) {
                    return watched;
                }
                sleep(Duration::from_millis(20)).await;
                continue;
            }
            let path = format!(
                "{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}",
                self.collection
            );
            let Ok(mut watch) = self.client.watch(self.to, &path).await else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            watched.watches += 1;
            while let Ok(Some(event)) = watch.next_or_silence(Duration::from_secs(20)).await {
                let Some(object) = event.get("object") else { break };
                if event.get("type").and_then(Value::as_str) == Some("ERROR") {
                    version.clear();
                    break;
                }
                let at = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                version = at.unwrap_or(&version).to_owned();
                if let Some(number) = number(object) {
                    let is_mark = number == MARK;
                    watched.seen.insert(number);
                    if is_mark {
                        return watched;
                    }
                }
            }
        }
    }
}
