//! Many watches, each on a connection of its own, that are resumed as informers do. Entry item:
//! [`Watches::open`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use testkit::process::until;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::Client;

/// Running watches of ConfigMaps.
pub(crate) struct Watches {
    counts: Arc<Counts>,
    collection: String,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    /// Watches that are open now.
    open: AtomicUsize,
    /// Watches that the server ended as it should.
    ended: AtomicUsize,
    /// Watches that broke off: their server was killed, or its time to drain was over.
    broken: AtomicUsize,
    /// Watches that could not be opened.
    rejected: AtomicUsize,
    /// Watches that saw the last object.
    saw_last: AtomicUsize,
}

/// The name of the object that every watch must see.
const LAST: &str = "the-last-one";

impl Drop for Watches {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Watches {
    /// Opens watches at an address, and waits until all are open.
    pub(crate) async fn open(
        client: &Client,
        to: SocketAddr,
        namespace: &str,
        number: usize,
    ) -> anyhow::Result<Watches> {
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let list = client.get(to, &format!("{collection}?limit=1")).await?.expect(200)?;
        let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let version = version.context("a list without a version")?.to_owned();
        let counts = Arc::<Counts>::default();
        let watch = |_| {
            let (client, collection) = (client.clone(), collection.clone());
            tokio::spawn(Arc::clone(&counts).watch(client, to, collection, version.clone()))
        };
        let tasks = (0..number).map(watch).collect();
        let watches = Watches { counts, collection, tasks };
        until("all watches are open", Duration::from_secs(60), async || {
            Ok((watches.number_open() == number).then_some(()))
        })
        .await?;
        Ok(watches)
    }

    pub(crate) fn number_open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// Waits until all were resumed.
    pub(crate) async fn until_resumed(&self) -> anyhow::Result<()> {
        until("all watches are open again", Duration::from_secs(60), async || {
            Ok((self.number_open() == self.tasks.len()).then_some(()))
        })
        .await
    }

    /// How often a watch could not be opened or resumed.
    pub(crate) fn rejected(&self) -> usize {
        self.counts.rejected.load(Ordering::Relaxed)
    }

    /// Creates one more object, waits until every watch saw it, and returns the figures.
    pub(crate) async fn end(self, client: &Client, at: SocketAddr) -> anyhow::Result<String> {
        let metadata = json!({"name": LAST});
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        client.create(at, &self.collection, &last).await?.expect(201)?;
        until("every watch sees the last object", Duration::from_secs(60), async || {
            Ok((self.counts.saw_last.load(Ordering::Relaxed) == self.tasks.len()).then_some(()))
        })
        .await?;
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let (ended, broken) = (count(&self.counts.ended), count(&self.counts.broken));
        let rejected = count(&self.counts.rejected);
        let number = self.tasks.len();
        Ok(format!(
            "{number} watches: {ended} times ended and {broken} times broken off, each resumed, \
             {rejected} rejected, all saw the last object"
        ))
    }
}

impl Counts {
    async fn watch(
        self: Arc<Self>,
        client: Client,
        to: SocketAddr,
        collection: String,
        mut version: String,
    ) {
        loop {
            let path = format!(
                "{collection}?watch=true&allowWatchBookmarks=true&resourceVersion={version}"
            );
            let Ok(Ok(mut watch)) = client.open_watch(to, &path).await else {
                self.rejected.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(500)).await;
                continue;
            };
            self.open.fetch_add(1, Ordering::Relaxed);
            let broken = loop {
                // No event for a long time is no failure.
                match watch.next_or_silence(Duration::from_secs(600)).await {
                    Ok(Some(event)) => {
                        let text = |pointer| event.pointer(pointer).and_then(Value::as_str);
                        if let Some(next) = text("/object/metadata/resourceVersion") {
                            next.clone_into(&mut version);
                        }
                        if text("/object/metadata/name") == Some(LAST) {
                            self.saw_last.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    }
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            self.open.fetch_sub(1, Ordering::Relaxed);
            let counter = if broken { &self.broken } else { &self.ended };
            counter.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(20)).await;
        }
    }
}
