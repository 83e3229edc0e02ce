//! The workers of a load. Each sends requests to one address.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::{MARK, Pace, Subject, number};
use crate::client::Client;
use crate::tally::{Failures, Tally};

/// A worker that opens a connection for each request.
pub(super) struct Worker {
    pub(super) client: Client,
    pub(super) to: SocketAddr,
    pub(super) subject: Subject,
    pub(super) pace: Pace,
    pub(super) since: Instant,
    pub(super) over: Arc<AtomicBool>,
}

/// The responses to a writer.
pub(super) struct Written {
    pub(super) tally: Tally,
    pub(super) failures: Failures,
    /// The numbers of acknowledged writes.
    pub(super) acknowledged: Vec<String>,
}

/// The events that a watcher saw.
pub(super) struct Watched {
    pub(super) tally: Tally,
    pub(super) failures: Failures,
    pub(super) seen: BTreeSet<String>,
    pub(super) watches: usize,
    pub(super) lists: usize,
}

impl Worker {
    pub(super) async fn read(self) -> (Tally, Failures) {
        let (mut tally, mut failures) = (Tally::default(), Failures::since(self.since));
        let path = format!("{}?limit=1", self.subject.collection);
        while !self.over.load(Ordering::Relaxed) {
            let answer = self.client.get(self.to, &path).await;
            tally.count(&answer);
            failures.count("read", &answer);
            sleep(self.pace.read).await;
        }
        (tally, failures)
    }

    pub(super) async fn write(self, writer: usize) -> Written {
        let mut written = Written {
            tally: Tally::default(),
            failures: Failures::since(self.since),
            acknowledged: Vec::new(),
        };
        for round in 0.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let number = format!("{writer}-{round}");
            let object = self.subject.next(&number);
            let answer = self.client.create(self.to, &self.subject.collection, &object).await;
            written.tally.count(&answer);
            written.failures.count("write", &answer);
            if answer.is_ok_and(|answer| answer.status == 201) {
                written.acknowledged.push(number);
            }
            sleep(self.pace.write).await;
        }
        written
    }

    /// Lists and watches until the last object appears, as informers do: it resumes an ended watch,
    /// and lists again when the version is too old.
    pub(super) async fn watch(self) -> Watched {
        let mut watched = Watched {
            tally: Tally::default(),
            failures: Failures::since(self.since),
            seen: BTreeSet::new(),
            watches: 0,
            lists: 0,
        };
        let mut version = String::new();
        while !watched.seen.contains(MARK) {
            if version.is_empty() {
                version = self.list(&mut watched).await;
            } else {
                version = self.follow(&mut watched, version).await;
            }
            sleep(Duration::from_millis(20)).await;
        }
        watched
    }

    /// Lists the objects and returns the version to watch from; none if that failed.
    async fn list(&self, watched: &mut Watched) -> String {
        let answer = self.client.get(self.to, &self.subject.path("")).await;
        watched.tally.count(&answer);
        watched.failures.count("list", &answer);
        let Some(answer) = answer.ok().filter(|answer| answer.status == 200) else {
            return String::new();
        };
        let list = answer.json();
        let items = list.pointer("/items").and_then(Value::as_array);
        watched.seen.extend(items.into_iter().flatten().filter_map(number));
        watched.lists += 1;
        let at = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        at.unwrap_or_default().to_owned()
    }

    /// Watches from a version until the watch ends or the last object appears. Returns the version
    /// to resume from; none if a list is needed.
    async fn follow(&self, watched: &mut Watched, mut version: String) -> String {
        let query = format!("&watch=1&allowWatchBookmarks=true&resourceVersion={version}");
        let mut watch = match self.client.open_watch(self.to, &self.subject.path(&query)).await {
            Ok(Ok(watch)) => watch,
            refused => {
                let refused = refused.and_then(|refused| match refused {
                    Err(answer) => Ok(answer),
                    Ok(_) => anyhow::bail!("a watch is no refusal"),
                });
                watched.tally.count(&refused);
                watched.failures.count("watch", &refused);
                let expired = refused.is_ok_and(|answer| answer.status == 410);
                return if expired { String::new() } else { version };
            }
        };
        watched.tally.one("200".to_owned());
        watched.watches += 1;
        while let Ok(Some(event)) = watch.next_or_silence(Duration::from_secs(20)).await {
            let Some(object) = event.get("object") else { break };
            if event.get("type").and_then(Value::as_str) == Some("ERROR") {
                return String::new();
            }
            let at = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            version = at.unwrap_or(&version).to_owned();
            watched.seen.extend(number(object));
            if watched.seen.contains(MARK) {
                break;
            }
        }
        version
    }
}
