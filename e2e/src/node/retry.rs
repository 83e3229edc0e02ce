//! Clients that retry as client-go does. Entry item: [`Retrying::start`].
//!
//! client-go repeats a GET whose connection was reset or closed, and any request that is answered
//! with 429 or 5xx and `Retry-After`, after a second, up to ten times.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::stream::{CLOSED, RESET, failure};
use crate::client::Client;
use crate::tally::Tally;

const RETRIES: usize = 10;
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The time between two requests of one client.
const PACE: Duration = Duration::from_millis(40);

/// Readers and writers at one address, each of which opens a connection for each request.
pub(crate) struct Retrying {
    over: Arc<AtomicBool>,
    retries: Arc<AtomicUsize>,
    readers: Vec<JoinHandle<Tally>>,
    writers: Vec<JoinHandle<Tally>>,
    collection: String,
}

impl Drop for Retrying {
    fn drop(&mut self) {
        self.readers.iter().chain(&self.writers).for_each(JoinHandle::abort);
    }
}

/// The results.
pub(crate) struct Retried {
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    pub(crate) retries: usize,
    /// The number of objects that are stored beyond those whose creation was acknowledged, negative
    /// if some are missing.
    pub(crate) surplus: i64,
}

impl Retried {
    /// Fails unless every request succeeded and every acknowledged object is stored.
    pub(crate) fn faultless(&self) -> anyhow::Result<()> {
        self.reads.only(&["200"]).context("reads that are retried as client-go does")?;
        self.writes.only(&["201"]).context("writes that are retried as client-go does")?;
        ensure!(self.surplus == 0, "{} objects too many", self.surplus);
        Ok(())
    }
}

impl std::fmt::Display for Retried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Retried { reads, writes, retries, .. } = self;
        write!(f, "reads {reads}, ")?;
        if writes.total() > 0 {
            write!(f, "writes {writes}, ")?;
        }
        write!(f, "{retries} retries as of client-go")
    }
}

#[derive(Clone)]
struct Caller {
    client: Client,
    to: SocketAddr,
    collection: String,
    over: Arc<AtomicBool>,
    retries: Arc<AtomicUsize>,
}

impl Retrying {
    /// Starts readers and writers of ConfigMaps in an existing namespace.
    pub(crate) fn start(
        client: &Client,
        to: SocketAddr,
        namespace: &str,
        (readers, writers): (usize, usize),
    ) -> Retrying {
        let (over, retries) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let caller = Caller {
            client: client.clone(),
            to,
            collection: collection.clone(),
            over: Arc::clone(&over),
            retries: Arc::clone(&retries),
        };
        let readers = (0..readers).map(|_| tokio::spawn(caller.clone().read())).collect();
        let writers = (0..writers).map(|_| tokio::spawn(caller.clone().write())).collect();
        Retrying { over, retries, readers, writers, collection }
    }

    /// Ends them and compares the writes with what is stored.
    pub(crate) async fn end(mut self, client: &Client, at: SocketAddr) -> anyhow::Result<Retried> {
        self.over.store(true, Ordering::Relaxed);
        let (mut reads, mut writes) = (Tally::default(), Tally::default());
        for reader in self.readers.drain(..) {
            reads.add(&reader.await?);
        }
        for writer in self.writers.drain(..) {
            writes.add(&writer.await?);
        }
        let path = format!("{}?labelSelector=retried%3Dtrue", self.collection);
        let list = client.get(at, &path).await?.expect(200)?;
        let stored = list.pointer("/items").and_then(Value::as_array).map_or(0, Vec::len);
        let surplus = i64::try_from(stored)? - i64::try_from(writes.of("201"))?;
        Ok(Retried { reads, writes, retries: self.retries.load(Ordering::Relaxed), surplus })
    }
}

impl Caller {
    async fn read(self) -> Tally {
        let mut tally = Tally::default();
        let path = format!("{}?limit=1", self.collection);
        while !self.over.load(Ordering::Relaxed) {
            tally.one(self.send(Method::GET, &path, None).await);
            sleep(PACE).await;
        }
        tally
    }

    async fn write(self) -> Tally {
        let mut tally = Tally::default();
        let labels = json!({"retried": "true"});
        let metadata = json!({"generateName": "retried-", "labels": labels});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        while !self.over.load(Ordering::Relaxed) {
            tally.one(self.send(Method::POST, &self.collection, Some(&object)).await);
            sleep(PACE).await;
        }
        tally
    }

    /// The status of the last attempt, or its failure.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> String {
        let body = body.map(|body| ("application/json", body));
        let mut last = String::new();
        for _ in 0..=RETRIES {
            let outcome = self.client.send(self.to, method.clone(), path, body).await;
            let again = match &outcome {
                Ok(answer) => {
                    let status = answer.status.as_u16();
                    (status == 429 || status >= 500) && answer.headers.contains_key("retry-after")
                }
                Err(error) => {
                    method == Method::GET && [RESET, CLOSED].contains(&failure(error).as_str())
                }
            };
            last = match outcome {
                Ok(answer) if answer.status.is_success() => answer.status.as_u16().to_string(),
                Ok(answer) => answer.to_string().chars().take(200).collect(),
                Err(error) => failure(&error),
            };
            if !again {
                break;
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            sleep(RETRY_AFTER).await;
        }
        last
    }
}
