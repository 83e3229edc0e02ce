//! The load, in a process of its own so that its cost is separate from the proxy's. It takes an
//! [`Order`] as its argument and prints figures as JSON. Entry item: [`run`].

mod beside;
mod bursts;
mod connect;
mod deliveries;
mod handshakes;
mod http1;
mod http2;
mod objects;
mod requests;
mod sender;
mod watches;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use testkit::pki::PkiFiles;
use testkit::process::Program;

use crate::cores::Cores;
use crate::others::Others;
pub(crate) use bursts::WATCH_PATH as BURSTS_PATH;
pub(crate) use wire::Protocol;

/// The measured values by name. The name ends with the unit.
pub(crate) type Figures = BTreeMap<String, f64>;

/// The parameters of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) to: SocketAddr,
    pub(crate) path: String,
    pub(crate) accept: String,
    /// The ETag of a document that the client already has, so that the expected status is 304;
    /// HTTP/2 only.
    pub(crate) etag: Option<String>,
    pub(crate) protocol: Protocol,
    pub(crate) connections: usize,
    /// The maximum number of requests in flight on each connection.
    pub(crate) streams: usize,
    pub(crate) warm_up_seconds: f64,
    pub(crate) seconds: f64,
    /// The processes whose cost is measured.
    pub(crate) processes: Vec<u32>,
    pub(crate) pki: PathBuf,
    /// Whose certificate the load has.
    pub(crate) user: String,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Each response is followed by the next request: the maximum throughput.
    Closed,
    /// A fixed rate, independent of responses.
    Paced { rate: f64 },
    /// A connection for each request.
    Handshakes { resumed: bool },
    /// Watches that are idle at first; then the backend sends events.
    Watches { server: SocketAddr, events_per_second: f64 },
    /// Nothing, then requests as [`Kind::Closed`], both beside this many idle watches.
    Beside { server: SocketAddr, watches: usize },
    /// Watches of a kube-apiserver at which this many objects change at once.
    Bursts { server: SocketAddr, at_once: usize },
    /// This many objects, created and listed in pages of that size.
    Objects { count: usize, page: usize },
    /// Watches of an object that is written at this server.
    Deliveries { server: SocketAddr, writes_per_second: f64 },
}

impl Order {
    /// Runs the load in another process, and adds what others used meanwhile.
    pub(crate) async fn carry_out(&self, cores: Cores) -> anyhow::Result<Figures> {
        let this = std::env::current_exe()?;
        let mut command = Program::new("load", &this).on_cpus(cores.cpus()).command()?;
        command.arg("load").arg(serde_json::to_string(self)?);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let others = Others::now();
        let output = tokio::process::Command::from(command).output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the load failed: {}", said.trim());
        let figures = serde_json::from_slice(&output.stdout);
        let mut figures: Figures = figures.context("cannot parse the output of the load")?;
        figures.extend(others.figures());
        Ok(figures)
    }
}

/// The entry point of the load process.
pub(crate) async fn run(order: &str) -> anyhow::Result<()> {
    let order: Order = serde_json::from_str(order)?;
    // A thousand connections exceed the usual limit.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let figures = match order.kind {
        Kind::Closed | Kind::Paced { .. } => requests::run(&order).await,
        Kind::Handshakes { resumed } => handshakes::run(&order, resumed).await,
        Kind::Watches { server, events_per_second } => {
            watches::run(&order, server, events_per_second).await
        }
        Kind::Beside { server, watches } => beside::run(&order, server, watches).await,
        Kind::Bursts { server, at_once } => bursts::run(&order, server, at_once).await,
        Kind::Objects { count, page } => objects::run(&order, count, page).await,
        Kind::Deliveries { server, writes_per_second } => {
            deliveries::run(&order, server, writes_per_second).await
        }
    };
    println!("{}", serde_json::to_string(&figures?)?);
    Ok(())
}

/// Percentiles of latencies, given in seconds, as microseconds.
fn percentiles(figures: &mut Figures, mut seconds: Vec<f32>) {
    seconds.sort_by(f32::total_cmp);
    for (name, share) in [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)] {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
        #[allow(clippy::cast_precision_loss, reason = "a rank")]
        let rank = ((seconds.len() as f64 * share).ceil() as usize).saturating_sub(1);
        if let Some(value) = seconds.get(rank) {
            figures.insert(name.to_owned(), f64::from(*value) * 1e6);
        }
    }
}

/// A count as a floating-point value.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn figure(count: usize) -> f64 {
    count as f64
}

fn pki(order: &Order) -> PkiFiles {
    PkiFiles::at(&order.pki)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let mut figures = Figures::new();
        let thousand = (1u16..=1000).rev().map(f32::from).collect();
        percentiles(&mut figures, thousand);
        assert_eq!(figures.get("p50_us"), Some(&500e6));
        assert_eq!(figures.get("p99_us"), Some(&990e6));
        assert_eq!(figures.get("p999_us"), Some(&999e6));
    }
}
