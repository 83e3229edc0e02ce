//! Requests over persistent connections: as many as possible, or at a fixed rate.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::pending;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep_until, timeout_at};

use super::connect::Connection;
use super::wire::Seen;
use super::{Figures, Kind, Order, figure, percentiles};
use crate::usage::Usage;

/// The time limit for responses after the end of the measurement.
const GRACE: Duration = Duration::from_secs(1);

/// The time window that is measured.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: Instant,
    end: Instant,
}

impl Window {
    fn has(&self, moment: Instant) -> bool {
        self.start <= moment && moment < self.end
    }
}

/// The results of one connection within the window.
#[derive(Debug, Default)]
struct Tally {
    latencies: Vec<f32>,
    failures: usize,
    body_bytes: usize,
}

pub(super) async fn run(order: &Order) -> anyhow::Result<Figures> {
    let connections = Connection::all(order).await?;
    let start = Instant::now() + Duration::from_secs_f64(order.warm_up_seconds);
    let window = Window { start, end: start + Duration::from_secs_f64(order.seconds) };

    let mut senders = Vec::new();
    let mut tasks = Vec::new();
    for connection in connections {
        tasks.push(match order.kind {
            Kind::Paced { .. } => {
                let (sender, due) = unbounded_channel();
                senders.push(sender);
                tokio::spawn(drive(connection, 0, Some(due), window))
            }
            _ => tokio::spawn(drive(connection, order.streams, None, window)),
        });
    }
    let pacer = match order.kind {
        Kind::Paced { rate } => {
            Some(tokio::task::spawn_blocking(move || pace(&senders, rate, window)))
        }
        _ => None,
    };

    sleep_until(window.start.into()).await;
    let before = Usage::of(&order.processes);
    let started = Instant::now();
    sleep_until(window.end.into()).await;
    let after = Usage::of(&order.processes);
    let seconds = started.elapsed().as_secs_f64();

    let mut all = Tally::default();
    for task in tasks {
        let tally = task.await??;
        all.latencies.extend(tally.latencies);
        all.failures += tally.failures;
        all.body_bytes += tally.body_bytes;
    }
    let asked = match pacer {
        Some(pacer) => pacer.await??,
        None => all.latencies.len(),
    };
    let done = figure(all.latencies.len());
    let cpu = after.cpu_seconds - before.cpu_seconds;
    let mut figures = Figures::from([
        ("requests".to_owned(), done),
        ("failures".to_owned(), figure(all.failures)),
        ("unanswered".to_owned(), figure(asked) - done),
        ("requests_per_second".to_owned(), done / seconds),
        ("body_bytes_per_second".to_owned(), figure(all.body_bytes) / seconds),
        ("cpu_us_per_request".to_owned(), cpu * 1e6 / done.max(1.0)),
        ("cpu_seconds_per_gb".to_owned(), cpu * 1e9 / figure(all.body_bytes).max(1.0)),
        ("cpu_share".to_owned(), cpu / seconds),
        ("main_cpu_share".to_owned(), (after.main_seconds - before.main_seconds) / seconds),
        ("waited_share".to_owned(), (after.waited_seconds - before.waited_seconds) / seconds),
        ("rss_mib".to_owned(), after.resident_bytes / f64::from(1 << 20)),
    ]);
    percentiles(&mut figures, all.latencies);
    Ok(figures)
}

/// Keeps `streams` requests in flight, or sends those that are due, until the window is over.
async fn drive(
    mut connection: Connection,
    streams: usize,
    mut due: Option<UnboundedReceiver<Instant>>,
    window: Window,
) -> anyhow::Result<Tally> {
    let paced = due.is_some();
    let mut tally = Tally::default();
    let mut waiting = streams;
    let until = if paced { window.end + GRACE } else { window.end };
    for _ in 0..streams {
        connection.request(Instant::now());
    }
    loop {
        connection.flush().await?;
        let mut seen = Seen::default();
        let next = async {
            match &mut due {
                Some(due) => due.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            order = next => match order {
                Some(moment) => {
                    connection.request(moment);
                    waiting += 1;
                    continue;
                }
                None => due = None,
            },
            read = timeout_at(until.into(), connection.read(&mut seen)) => match read {
                Ok(read) => read?,
                Err(_) => return Ok(tally),
            },
        }
        let now = Instant::now();
        if window.has(now) {
            tally.body_bytes += seen.body_bytes;
            tally.failures += seen.failures;
        }
        waiting = waiting.saturating_sub(seen.done.len() + seen.failures);
        for asked in seen.done {
            if window.has(if paced { asked } else { now }) {
                tally.latencies.push((now - asked).as_secs_f32());
            }
            if !paced && now < window.end {
                connection.request(now);
                waiting += 1;
            }
        }
        if now > window.end && (waiting == 0 || !paced) {
            return Ok(tally);
        }
    }
}

/// Tells connections in turn that a request is due, and returns the number of requests in the
/// window.
///
/// A thread of its own: timers of the runtime are no finer than a millisecond. If it is late,
/// latency counts from when the request was due.
fn pace(senders: &[UnboundedSender<Instant>], rate: f64, window: Window) -> anyhow::Result<usize> {
    let pause = Duration::from_secs_f64(1.0 / rate);
    let mut due = Instant::now();
    let mut turns = senders.iter().cycle();
    let mut asked = 0;
    while due < window.end {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        while due <= now && due < window.end {
            // A closed connection is noticed when its task is checked.
            let _ = turns.next().context("no connection")?.send(due);
            asked += usize::from(window.has(due));
            due += pause;
        }
    }
    Ok(asked)
}
