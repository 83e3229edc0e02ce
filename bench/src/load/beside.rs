//! What a proxy costs beside idle watches: at rest, then under requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::watches::{Counts, REST, open, still_open, tell};
use super::{Figures, Kind, Order, figure, requests};
use crate::backend::WATCH_PATH;
use crate::usage::Usage;

/// The watches on one connection.
const STREAMS: usize = 100;

/// Opens this many watches, measures the proxy at rest, and then under the requests of the order.
pub(super) async fn run(
    order: &Order,
    server: SocketAddr,
    watches: usize,
) -> anyhow::Result<Figures> {
    let before = Usage::of(&order.processes);
    let mut watchers = Vec::new();
    if watches > 0 {
        tell(order, server, 0).await?;
        let path = WATCH_PATH.to_owned();
        let connections = watches.div_ceil(STREAMS);
        let held = Order { path, connections, streams: STREAMS, ..order.clone() };
        watchers = open(&held, &Arc::new(Counts::default())).await?;
    }
    sleep(REST).await;
    let (first, started) = (Usage::of(&order.processes), Instant::now());
    sleep(Duration::from_secs_f64(order.seconds)).await;
    let rest = Usage::of(&order.processes);
    let percent = |seconds: f64| seconds * 100.0 / started.elapsed().as_secs_f64();
    let at_rest = [
        ("idle_cpu_percent".to_owned(), percent(rest.cpu_seconds - first.cpu_seconds)),
        ("idle_control_percent".to_owned(), percent(rest.main_seconds - first.main_seconds)),
        ("idle_rss_mib".to_owned(), rest.resident_bytes / f64::from(1 << 20)),
    ];

    let mut figures = requests::run(&Order { kind: Kind::Closed, ..order.clone() }).await?;
    still_open(&watchers)?;
    figures.extend(at_rest);
    if watches > 0 {
        let growth = (rest.resident_bytes - before.resident_bytes) / figure(watches);
        figures.insert("idle_bytes_per_watch".to_owned(), growth);
    }
    Ok(figures)
}
