//! A connection for each request: the cost of a new client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::{ClientConfig, HandshakeKind};
use tokio::time::sleep_until;

use super::connect::{Connection, connect};
use super::wire::Seen;
use super::{Figures, Order, figure, percentiles, pki};
use crate::pki::client_config;
use crate::usage::Usage;

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    resumed: AtomicUsize,
}

pub(super) async fn run(order: &Order, resumed: bool) -> anyhow::Result<Figures> {
    let end = Instant::now() + Duration::from_secs_f64(order.warm_up_seconds + order.seconds);
    let counts = Arc::new(Counts::default());
    let pki = pki(order);
    // One client per worker: rustls keeps eight tickets per server, which is too few for many
    // workers.
    let workers = (0..order.connections)
        .map(|_| client_config(&pki, &order.user, order.protocol.alpn(), resumed))
        .map(|config| {
            config.map(|config| tokio::spawn(work(order.clone(), config, Arc::clone(&counts), end)))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let of = |counter: &AtomicUsize| figure(counter.load(Ordering::Relaxed));

    sleep_until((end - Duration::from_secs_f64(order.seconds)).into()).await;
    let before = Usage::of(&order.processes);
    let (first, started) = (of(&counts.connections), Instant::now());
    sleep_until(end.into()).await;
    let after = Usage::of(&order.processes);
    let seconds = started.elapsed().as_secs_f64();
    let done = of(&counts.connections) - first;
    let share = of(&counts.resumed) / of(&counts.connections).max(1.0);

    let mut latencies = Vec::new();
    for worker in workers {
        latencies.extend(worker.await??);
    }
    let cpu = after.cpu_seconds - before.cpu_seconds;
    let mut figures = Figures::from([
        ("connections".to_owned(), done),
        ("connections_per_second".to_owned(), done / seconds),
        ("cpu_us_per_connection".to_owned(), cpu * 1e6 / done.max(1.0)),
        ("cpu_share".to_owned(), cpu / seconds),
        ("resumed_share".to_owned(), share),
    ]);
    percentiles(&mut figures, latencies);
    Ok(figures)
}

/// Connects, sends one request, reads the response and closes; repeatedly.
async fn work(
    order: Order,
    config: Arc<ClientConfig>,
    counts: Arc<Counts>,
    end: Instant,
) -> anyhow::Result<Vec<f32>> {
    let mut latencies = Vec::new();
    loop {
        let started = Instant::now();
        if started > end {
            return Ok(latencies);
        }
        let stream = connect(order.to, &config).await?;
        let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        let mut connection = Connection::new(stream, &order);
        connection.request(started);
        connection.flush().await?;
        let mut seen = Seen::default();
        while seen.done.is_empty() {
            connection.read(&mut seen).await?;
            anyhow::ensure!(seen.failures == 0, "a request on a new connection failed");
        }
        latencies.push(started.elapsed().as_secs_f32());
        counts.connections.fetch_add(1, Ordering::Relaxed);
        counts.resumed.fetch_add(usize::from(resumed), Ordering::Relaxed);
    }
}
