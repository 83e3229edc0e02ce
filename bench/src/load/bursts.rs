//! Watches of a real kube-apiserver while many objects change at once. It ends a watch whose client
//! reads too slowly; this counts how many it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use futures_util::future::try_join_all;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::connect::Connection;
use super::sender::Sender;
use super::watches::{Counts, OPENED_AT_ONCE, watch};
use super::{Figures, Order, figure};
use crate::usage::Usage;

/// The objects that change.
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const WATCH_PATH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const BYTES: usize = 4_000;
const ROUNDS: usize = 12;
/// After this time without an event, all have arrived.
const SILENCE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// Changes this many objects at once at that server, repeatedly.
pub(super) async fn run(
    order: &Order,
    server: SocketAddr,
    at_once: usize,
) -> anyhow::Result<Figures> {
    let writer = Writer(Sender::connect(order, server).await?);
    writer.change(at_once, 0).await?;
    let counts = Arc::new(Counts::default());
    let turns = Arc::new(Semaphore::new(OPENED_AT_ONCE));
    for connection in Connection::all(order).await? {
        let (turns, counts) = (Arc::clone(&turns), Arc::clone(&counts));
        tokio::spawn(watch(connection, order.streams, turns, counts));
    }
    let all = order.connections * order.streams;
    let opening = Instant::now();
    while counts.heads.load(Ordering::Relaxed) < all {
        ensure!(opening.elapsed() < DEADLINE, "not every watch was opened");
        sleep(Duration::from_millis(20)).await;
    }
    // The initial events of a watch.
    let first = settled(&counts).await?;
    let (before, started) = (Usage::of(&order.processes), Instant::now());
    for round in 1..=ROUNDS {
        writer.change(at_once, round).await?;
    }
    let last = settled(&counts).await?;
    let seconds = (started.elapsed() - SILENCE).as_secs_f64();
    let cpu = Usage::of(&order.processes).cpu_seconds - before.cpu_seconds;
    let events = figure(last - first);
    Ok(Figures::from([
        ("watches".to_owned(), figure(all)),
        ("watches_ended".to_owned(), figure(counts.failures.load(Ordering::Relaxed))),
        ("events_per_second".to_owned(), events / seconds),
        ("cpu_us_per_event".to_owned(), cpu * 1e6 / events.max(1.0)),
    ]))
}

/// Waits until no more events arrive, and returns their number.
async fn settled(counts: &Counts) -> anyhow::Result<usize> {
    let started = Instant::now();
    let mut last = (counts.events.load(Ordering::Relaxed), Instant::now());
    while last.1.elapsed() < SILENCE {
        ensure!(started.elapsed() < DEADLINE, "events do not end");
        sleep(Duration::from_millis(20)).await;
        let now = counts.events.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(last.0)
}

/// Writes objects over one connection.
struct Writer(Sender);

impl Writer {
    async fn change(&self, at_once: usize, round: usize) -> anyhow::Result<()> {
        try_join_all((0..at_once).map(|index| self.put(index, round))).await.map(drop)
    }

    async fn put(&self, index: usize, round: usize) -> anyhow::Result<()> {
        let name = format!("changing-{index}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"round": round.to_string(), "text": "x".repeat(BYTES)},
        });
        let body = Bytes::from(object.to_string());
        let one = format!("{COLLECTION}/{name}");
        let (mut status, mut said) = self.0.send("PUT", &one, &body).await?;
        if status == 404 {
            (status, said) = self.0.send("POST", COLLECTION, &body).await?;
        }
        ensure!(matches!(status, 200 | 201), "{status}: {}", String::from_utf8_lossy(&said));
        Ok(())
    }
}
