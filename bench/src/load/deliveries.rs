//! Many watches of one collection while an object changes at a steady rate. Every watch must get
//! every change, once and in order; anything else is an error.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

use super::sender::Sender;
use super::watches::{number, since};
use super::{Figures, Order, figure, percentiles};
use crate::backend::SENT;
use crate::usage::Usage;

const NAME: &str = "changing";
/// The marker of the number of a write in its events.
const SEQUENCE: &str = "\"sequence\":\"";
/// The time for events that come too late, or twice.
const SILENCE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// Watches at the server of the order, and writes at that one.
pub(super) async fn run(
    order: &Order,
    server: SocketAddr,
    writes_per_second: f64,
) -> anyhow::Result<Figures> {
    let writer = Sender::connect(order, server).await?;
    let first = writer.object("POST", &order.path, &object(0)).await?;
    let revision = first.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
    let revision = revision.and_then(Value::as_str).context("no resourceVersion")?;
    let idle = Usage::of(&order.processes);
    let watches = Watches::open(order, revision).await?;

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let writes = (order.seconds * writes_per_second).round() as usize;
    let (before, started) = (Usage::of(&order.processes), Instant::now());
    let mut turns = interval(Duration::from_secs_f64(1.0 / writes_per_second));
    let path = format!("{}/{NAME}", order.path);
    for sequence in 1..=writes {
        turns.tick().await;
        writer.object("PUT", &path, &object(sequence)).await?;
    }
    let written = started.elapsed().as_secs_f64();
    let expected = watches.tasks.len() * writes;
    while watches.events.load(Ordering::Relaxed) < expected && started.elapsed() < DEADLINE {
        sleep(Duration::from_millis(10)).await;
    }
    let arrived = watches.events.load(Ordering::Relaxed);
    ensure!(
        arrived >= expected,
        "{arrived} of {expected} events arrived within {} s",
        DEADLINE.as_secs()
    );
    let (delivered, after) = (started.elapsed().as_secs_f64(), Usage::of(&order.processes));
    sleep(SILENCE).await;

    let count = watches.tasks.len();
    let (latencies, events) = watches.close(writes).await?;
    let cpu = after.cpu_seconds - before.cpu_seconds;
    let growth = before.resident_bytes - idle.resident_bytes;
    let mut figures = Figures::from([
        ("watches".to_owned(), figure(count)),
        ("idle_bytes_per_watch".to_owned(), growth / figure(count)),
        ("writes_per_second".to_owned(), figure(writes) / written),
        ("events".to_owned(), figure(events)),
        ("events_per_second".to_owned(), figure(events) / delivered),
        ("cpu_us_per_event".to_owned(), cpu * 1e6 / figure(events).max(1.0)),
    ]);
    percentiles(&mut figures, latencies);
    Ok(figures)
}

/// The changing object. It says when it was written.
fn object(sequence: usize) -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME},
        "data": {"sequence": sequence.to_string(), "sent": now.to_string()},
    });
    Bytes::from(object.to_string())
}

/// The open watches. Each task returns what it has seen once it is told to stop.
struct Watches {
    tasks: Vec<JoinHandle<anyhow::Result<Log>>>,
    events: Arc<AtomicUsize>,
    stop: CancellationToken,
}

/// The writes that one watch has seen, and their delay in seconds.
#[derive(Debug, Default)]
struct Log {
    sequence: Vec<u64>,
    latencies: Vec<f32>,
}

impl Watches {
    async fn open(order: &Order, revision: &str) -> anyhow::Result<Watches> {
        let (events, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let path = format!("{}?watch=1&resourceVersion={revision}", order.path);
        let mut tasks = Vec::new();
        for _ in 0..order.connections {
            let sender = Sender::connect(order, order.to).await?;
            for _ in 0..order.streams {
                let body = sender.watch(&path).await?;
                let (events, stop) = (Arc::clone(&events), stop.clone());
                tasks.push(tokio::spawn(async move { follow(body, &events, &stop).await }));
            }
        }
        Ok(Watches { tasks, events, stop })
    }

    /// Ends the watches. Fails if one has not seen every write, once and in order.
    async fn close(self, writes: usize) -> anyhow::Result<(Vec<f32>, usize)> {
        self.stop.cancel();
        let (mut latencies, mut events, mut sum) = (Vec::new(), 0, Faults::default());
        for task in self.tasks {
            let log = task.await??;
            events += log.sequence.len();
            let Faults { lost, doubled, reordered } = faults(&log.sequence, writes);
            sum.lost += lost;
            sum.doubled += doubled;
            sum.reordered += reordered;
            latencies.extend(log.latencies);
        }
        ensure!(sum == Faults::default(), "events of watches: {sum:?}");
        Ok((latencies, events))
    }
}

/// Reads events until it is told to stop.
async fn follow(
    mut body: Incoming,
    events: &AtomicUsize,
    stop: &CancellationToken,
) -> anyhow::Result<Log> {
    let (mut log, mut pending) = (Log::default(), Vec::new());
    while let Some(frame) = stop.run_until_cancelled(body.frame()).await {
        let frame = frame.context("the server ended a watch")??;
        pending.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        let end = pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = pending.drain(..end).collect();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Some(sequence) = number(line, SEQUENCE) else {
                bail!("an unexpected event: {}", String::from_utf8_lossy(line));
            };
            log.sequence.push(sequence);
            log.latencies.extend(number(line, SENT).and_then(since));
            events.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(log)
}

/// How the events of watches differ from the writes.
#[derive(Debug, Default, PartialEq)]
struct Faults {
    lost: usize,
    doubled: usize,
    reordered: usize,
}

/// Compares what a watch has seen with the writes 1, 2, 3 and so on.
fn faults(seen: &[u64], writes: usize) -> Faults {
    let distinct: BTreeSet<u64> = seen.iter().copied().collect();
    let pairs = seen.iter().zip(seen.iter().skip(1));
    Faults {
        lost: writes.saturating_sub(distinct.len()),
        doubled: seen.len() - distinct.len(),
        reordered: pairs.filter(|(earlier, later)| earlier > later).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_watch_is_counted() {
        let of = |seen: &[u64]| {
            let Faults { lost, doubled, reordered } = faults(seen, 4);
            [lost, doubled, reordered]
        };
        assert_eq!(of(&[1, 2, 3, 4]), [0, 0, 0]);
        assert_eq!(of(&[1, 2, 4]), [1, 0, 0]);
        assert_eq!(of(&[1, 2, 2, 3, 4]), [0, 1, 0]);
        assert_eq!(of(&[1, 3, 2, 4]), [0, 0, 1]);
        assert_eq!(of(&[]), [4, 0, 0]);
    }

    #[test]
    fn an_event_says_which_write_it_is_of() {
        let event = object(17);
        assert_eq!(number(&event, SEQUENCE), Some(17));
        assert!(number(&event, SENT).is_some());
    }
}
