//! Watches: the memory of idle ones, and the CPU cost of an event.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::connect::Connection;
use super::wire::{Protocol, Seen};
use super::{Figures, Kind, Order, figure, percentiles};
use crate::backend::{SENT, control_path};
use crate::usage::Usage;

/// Few are opened at a time, so that every proxy can share its upstream connections: none shares a
/// connection that is still being opened.
pub(super) const OPENED_AT_ONCE: usize = 4;

/// The time until memory use is stable.
pub(super) const REST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) heads: AtomicUsize,
    /// Watches that were rejected or ended.
    pub(super) failures: AtomicUsize,
    pub(super) events: AtomicUsize,
    /// The delay of events in seconds, while measuring.
    latencies: Mutex<Vec<f32>>,
    counts: AtomicBool,
}

pub(super) async fn run(
    order: &Order,
    server: SocketAddr,
    events_per_second: f64,
) -> anyhow::Result<Figures> {
    tell(order, server, 0).await?;
    let before = Usage::of(&order.processes);
    let started = Instant::now();
    let counts = Arc::new(Counts::default());
    let watchers = open(order, &counts).await?;
    let all = order.connections * order.streams;
    let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let opened = started.elapsed().as_secs_f64();
    sleep(REST).await;
    let idle = Usage::of(&order.processes);

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds")]
    let pause = (figure(all) / events_per_second * 1e3) as u64;
    tell(order, server, pause.max(1)).await?;
    sleep(Duration::from_secs_f64(order.warm_up_seconds)).await;
    let (first, events_start, start) =
        (of(&counts.events), Usage::of(&order.processes), Instant::now());
    counts.counts.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs_f64(order.seconds)).await;
    let end = Usage::of(&order.processes);
    let events = figure(of(&counts.events) - first);
    let seconds = start.elapsed().as_secs_f64();
    counts.counts.store(false, Ordering::Relaxed);
    tell(order, server, 0).await?;
    still_open(&watchers)?;

    let cpu = end.cpu_seconds - events_start.cpu_seconds;
    let mut figures = Figures::from([
        ("watches".to_owned(), figure(all)),
        ("watches_opened_per_second".to_owned(), figure(all) / opened),
        (
            "idle_bytes_per_watch".to_owned(),
            (idle.resident_bytes - before.resident_bytes) / figure(all),
        ),
        (
            "busy_bytes_per_watch".to_owned(),
            (end.resident_bytes - before.resident_bytes) / figure(all),
        ),
        ("events_per_second".to_owned(), events / seconds),
        ("cpu_us_per_event".to_owned(), cpu * 1e6 / events.max(1.0)),
        ("rss_mib".to_owned(), end.resident_bytes / f64::from(1 << 20)),
    ]);
    let mut latencies = counts.latencies.lock().unwrap_or_else(PoisonError::into_inner);
    percentiles(&mut figures, std::mem::take(&mut latencies));
    Ok(figures)
}

/// A connection with watches.
pub(super) type Watcher = JoinHandle<anyhow::Result<()>>;

/// Opens all watches of an order. They are read until the process ends.
pub(super) async fn open(order: &Order, counts: &Arc<Counts>) -> anyhow::Result<Vec<Watcher>> {
    let started = Instant::now();
    let mut watchers = Vec::new();
    let turns = Arc::new(Semaphore::new(OPENED_AT_ONCE));
    for connection in Connection::all(order).await? {
        let (turns, counts) = (Arc::clone(&turns), Arc::clone(counts));
        watchers.push(tokio::spawn(watch(connection, order.streams, turns, counts)));
    }
    let all = order.connections * order.streams;
    let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    while of(&counts.heads) < all {
        sleep(Duration::from_millis(20)).await;
        ensure!(of(&counts.failures) == 0, "{} watches were refused", of(&counts.failures));
        let late = started.elapsed() > Duration::from_secs(60);
        ensure!(!late, "{} of {all} watches within a minute", of(&counts.heads));
    }
    Ok(watchers)
}

/// Fails if a connection with watches ended.
pub(super) fn still_open(watchers: &[Watcher]) -> anyhow::Result<()> {
    let broken = watchers.iter().filter(|watcher| watcher.is_finished()).count();
    ensure!(broken == 0, "{broken} connections broke off");
    Ok(())
}

/// Opens watches one after the other and reads their events.
pub(super) async fn watch(
    mut connection: Connection,
    streams: usize,
    turns: Arc<Semaphore>,
    counts: Arc<Counts>,
) -> anyhow::Result<()> {
    for _ in 0..streams {
        let _turn = turns.acquire().await?;
        connection.request(Instant::now());
        while read(&mut connection, &counts).await? == 0 {}
    }
    loop {
        read(&mut connection, &counts).await?;
    }
}

/// Reads once and returns the number of watches that were accepted.
async fn read(connection: &mut Connection, counts: &Counts) -> anyhow::Result<usize> {
    connection.flush().await?;
    let mut events = 0;
    let mut latencies = Vec::new();
    let mut reader = |bytes: &[u8]| {
        events += bytes.iter().filter(|byte| **byte == b'\n').count();
        latencies.extend(number(bytes, SENT).and_then(since));
    };
    let mut seen = Seen { reader: Some(&mut reader), ..Seen::default() };
    connection.read(&mut seen).await?;
    let (heads, failures) = (seen.heads, seen.failures + seen.done.len());
    counts.heads.fetch_add(heads, Ordering::Relaxed);
    counts.failures.fetch_add(failures, Ordering::Relaxed);
    counts.events.fetch_add(events, Ordering::Relaxed);
    if counts.counts.load(Ordering::Relaxed) {
        let mut all = counts.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut latencies);
    }
    Ok(heads)
}

/// The number in an event after a marker, up to a quote, such as the time when it was sent. Events
/// are small; the rare one that is split is counted but not timed.
pub(super) fn number(bytes: &[u8], marker: &str) -> Option<u64> {
    let at = bytes.windows(marker.len()).position(|window| window == marker.as_bytes())?;
    let digits = bytes.get(at + marker.len()..)?.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The seconds since a time in nanoseconds.
pub(super) fn since(sent_nanoseconds: u64) -> Option<f32> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(Duration::from_nanos(sent_nanoseconds)).as_secs_f32())
}

/// Tells the server how often to send each watch an event; 0 for never.
pub(super) async fn tell(
    order: &Order,
    server: SocketAddr,
    milliseconds: u64,
) -> anyhow::Result<()> {
    let mut order = order.clone();
    order.to = server;
    order.path = control_path(milliseconds);
    (order.protocol, order.connections, order.kind) = (Protocol::Http1, 1, Kind::Closed);
    let mut connection = Connection::all(&order).await?.pop().context("no connection")?;
    connection.request(Instant::now());
    connection.flush().await?;
    let mut seen = Seen::default();
    while seen.done.is_empty() {
        connection.read(&mut seen).await?;
    }
    ensure!(seen.failures == 0, "the server cannot be told");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_when_it_was_sent() {
        let event = format!("{{\"x\":1,{SENT}12345\"}}\n");
        assert_eq!(number(event.as_bytes(), SENT), Some(12345));
        assert_eq!(number(b"{}\n", SENT), None);
    }
}
