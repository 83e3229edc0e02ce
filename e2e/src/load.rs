//! A constant load of reads, writes and watches that checks its own results. Entry item:
//! [`Load::start`].

mod sentinel;
mod worker;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) use sentinel::Sentinel;

use crate::client::Client;
use crate::tally::{Failures, Tally};
use worker::{Watched, Worker, Written};

/// A running load: at each address a reader, a writer and a watcher.
pub(crate) struct Load {
    subject: Subject,
    since: Instant,
    over: Arc<AtomicBool>,
    readers: Vec<JoinHandle<(Tally, Failures)>>,
    writers: Vec<JoinHandle<Written>>,
    watchers: Vec<JoinHandle<Watched>>,
}

/// The kind of object that is read, written and watched.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) collection: String,
    /// A template of the object; the load sets its metadata.
    pub(crate) object: Value,
    /// The label of the objects of this load.
    pub(crate) tag: String,
}

impl Subject {
    pub(crate) fn config_maps(namespace: &str) -> Subject {
        Subject {
            collection: format!("/api/v1/namespaces/{namespace}/configmaps"),
            object: json!({"apiVersion": "v1", "kind": "ConfigMap"}),
            tag: "config-maps".to_owned(),
        }
    }

    /// The path of all objects of the load, with further query parameters.
    pub(crate) fn path(&self, query: &str) -> String {
        format!("{}?labelSelector=load%3D{}{query}", self.collection, self.tag)
    }

    /// An object of the load with this number and metadata.
    pub(crate) fn object(&self, number: &str, name: Value) -> Value {
        let mut object = self.object.clone();
        if let (Some(object), Value::Object(mut metadata)) = (object.as_object_mut(), name) {
            metadata.insert("labels".to_owned(), json!({"load": self.tag, "number": number}));
            object.insert("metadata".to_owned(), Value::Object(metadata));
        }
        object
    }

    /// The server generates the name: a request that is sent twice creates two objects.
    fn next(&self, number: &str) -> Value {
        self.object(number, json!({"generateName": "load-"}))
    }

    /// The last object, which every watcher must see.
    fn mark(&self) -> Value {
        self.object(MARK, json!({"name": format!("{MARK}-{}", self.tag)}))
    }
}

/// The pause between two requests of a reader or writer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) read: Duration,
    pub(crate) write: Duration,
}

impl Pace {
    pub(crate) const BRISK: Pace =
        Pace { read: Duration::from_millis(20), write: Duration::from_millis(40) };
}

/// The results of a load.
pub(crate) struct Outcome {
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    /// The responses to watches and to the lists before them.
    pub(crate) watching: Tally,
    pub(crate) watches: usize,
    pub(crate) lists: usize,
    pub(crate) failures: Failures,
    /// The numbers of acknowledged writes that are lost.
    pub(crate) lost: Vec<String>,
    /// The numbers of writes that were executed twice.
    pub(crate) doubled: Vec<String>,
    /// The numbers of acknowledged writes that a watcher did not see.
    pub(crate) missed: Vec<String>,
    /// The number of watchers that never saw the last object.
    pub(crate) blind: usize,
}

impl Outcome {
    /// Fails if an acknowledged write was lost, a write was executed twice, or a watcher missed an
    /// acknowledged write.
    pub(crate) fn faultless(self) -> anyhow::Result<Outcome> {
        ensure!(self.doubled.is_empty(), "made twice: {:?}", self.doubled);
        ensure!(self.lost.is_empty(), "acknowledged, but lost: {:?}", self.lost);
        ensure!(self.blind == 0, "{} watchers never saw the last event", self.blind);
        ensure!(self.missed.is_empty(), "a watch missed {:?}", self.missed);
        ensure!(self.writes.of("201") > 0, "nothing was written: {}", self.writes);
        Ok(self)
    }
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
    /// Starts a load of ConfigMaps in an existing namespace.
    pub(crate) fn start(client: &Client, addresses: &[SocketAddr], namespace: &str) -> Load {
        let subject = Subject::config_maps(namespace);
        Load::start_of(subject, Pace::BRISK, Instant::now(), client, addresses)
    }

    /// Starts a load that counts failures by the second since a moment.
    pub(crate) fn start_of(
        subject: Subject,
        pace: Pace,
        since: Instant,
        client: &Client,
        addresses: &[SocketAddr],
    ) -> Load {
        let over = Arc::new(AtomicBool::new(false));
        let worker = |to: &SocketAddr| Worker {
            client: client.clone(),
            to: *to,
            subject: subject.clone(),
            pace,
            since,
            over: Arc::clone(&over),
        };
        Load {
            readers: addresses.iter().map(|to| tokio::spawn(worker(to).read())).collect(),
            writers: addresses
                .iter()
                .enumerate()
                .map(|(index, to)| tokio::spawn(worker(to).write(index)))
                .collect(),
            watchers: addresses.iter().map(|to| tokio::spawn(worker(to).watch())).collect(),
            subject,
            since,
            over,
        }
    }

    /// Ends the load and checks its results.
    pub(crate) async fn end(self, client: &Client, at: SocketAddr) -> anyhow::Result<Outcome> {
        self.finish(client, at).await?.faultless()
    }

    /// Ends the load and compares the responses with what is stored.
    pub(crate) async fn finish(
        mut self,
        client: &Client,
        at: SocketAddr,
    ) -> anyhow::Result<Outcome> {
        self.over.store(true, Ordering::Relaxed);
        let (mut reads, mut writes) = (Tally::default(), Tally::default());
        let mut failures = Failures::since(self.since);
        for reader in self.readers.drain(..) {
            let (tally, failed) = reader.await?;
            reads.add(&tally);
            failures.add(&failed);
        }
        let mut acknowledged = Vec::new();
        for writer in self.writers.drain(..) {
            let written = writer.await?;
            writes.add(&written.tally);
            failures.add(&written.failures);
            acknowledged.extend(written.acknowledged);
        }

        let list = client.get(at, &self.subject.path("")).await?.expect(200)?;
        let mut stored: BTreeMap<String, usize> = BTreeMap::new();
        for item in list.pointer("/items").and_then(Value::as_array).into_iter().flatten() {
            if let Some(number) = number(item) {
                *stored.entry(number).or_default() += 1;
            }
        }
        let doubled = stored.iter().filter(|(_, count)| **count > 1);
        let doubled = doubled.map(|(number, _)| number.clone()).collect();
        let is_lost = |number: &&String| !stored.contains_key(*number);
        let lost = acknowledged.iter().filter(is_lost).cloned().collect();

        let made = client.create(at, &self.subject.collection, &self.subject.mark()).await?;
        made.expect(201).context("the last object")?;
        let (mut watches, mut lists, mut blind) = (0, 0, 0);
        let (mut missed, mut watching) = (Vec::new(), Tally::default());
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        for mut watcher in self.watchers.drain(..) {
            let Ok(watched) = tokio::time::timeout_at(deadline, &mut watcher).await else {
                watcher.abort();
                blind += 1;
                continue;
            };
            let watched = watched?;
            watches += watched.watches;
            lists += watched.lists;
            watching.add(&watched.tally);
            failures.add(&watched.failures);
            let is_missed = |number: &&String| !watched.seen.contains(*number);
            missed.extend(acknowledged.iter().filter(is_missed).cloned());
        }
        Ok(Outcome {
            reads,
            writes,
            watching,
            watches,
            lists,
            failures,
            lost,
            doubled,
            missed,
            blind,
        })
    }
}

/// The number that the writer gave an object.
pub(crate) fn number(object: &Value) -> Option<String> {
    object.pointer("/metadata/labels/number").and_then(Value::as_str).map(str::to_owned)
}
