//! Watches of a real kube-apiserver while many objects change at once: it ends a watch whose client
//! takes events too slowly. How many does it end?

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::connect::{Connection, connect};
use super::watches::{Counts, OPENED_AT_ONCE, watch};
use super::{Figures, Order, figure, pki};
use crate::pki::client_config;
use crate::usage::Usage;

/// What changes.
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const WATCH_PATH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const BYTES: usize = 4_000;
const ROUNDS: usize = 12;
/// No event for so long: all have come.
const SILENCE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// Changes so many objects at the same time at that server, again and again.
pub(super) async fn run(
    order: &Order,
    server: SocketAddr,
    at_once: usize,
) -> anyhow::Result<Figures> {
    let writer = Writer::connect(order, server).await?;
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
    // What a watch begins with.
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

/// Waits until no more events come; gives their number.
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

/// Writes on one connection.
struct Writer {
    sender: http2::SendRequest<Full<Bytes>>,
    server: SocketAddr,
}

impl Writer {
    async fn connect(order: &Order, server: SocketAddr) -> anyhow::Result<Writer> {
        let stream = connect(server, &client_config(&pki(order), b"h2", false)?).await?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Writer { sender, server })
    }

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
        let (mut status, mut said) = self.send("PUT", &one, &body).await?;
        if status == 404 {
            (status, said) = self.send("POST", COLLECTION, &body).await?;
        }
        ensure!(matches!(status, 200 | 201), "{status}: {}", String::from_utf8_lossy(&said));
        Ok(())
    }

    async fn send(&self, method: &str, path: &str, body: &Bytes) -> anyhow::Result<(u16, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.server))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.clone()))?;
        let response = self.sender.clone().send_request(request).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}
