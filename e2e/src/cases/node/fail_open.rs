//! Whatever ends or stops `mvp`: new connections reach kube-apiserver.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::process::Signal;

use crate::cluster::Cluster;
use crate::node::{Gateway, Node, NodeSpec, Nodes, Retrying, Stream, Told, Watches, tally};
use crate::programs::Minor;

/// On an idle machine it takes 0.3 s at the most. This machine may be busy; beats that hold for 2 s,
/// which are for a server that is down, would take longer than this.
const FAIL_OPEN: Duration = Duration::from_millis(1500);
/// The same if a thread lacked CPU time before: then beats hold for 2 s.
const FAIL_OPEN_STARVED: Duration = Duration::from_millis(3500);

pub(super) async fn fail_open(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "fail-open").await?;
    let node = nodes.node(0, NodeSpec::new("a", Minor::V1_36)).await?;
    nodes.namespace(node.address(), "fail-open").await?;
    let test = Test { nodes: &nodes, node: &node };
    let retrying = Retrying::start(&nodes.admin, node.address(), "fail-open", (2, 0));
    let figures = [
        test.terminated().await.context("SIGTERM")?,
        test.killed().await.context("SIGKILL")?,
        test.stopped().await.context("SIGSTOP")?,
        test.stopped_and_killed().await.context("SIGSTOP, then SIGKILL")?,
        test.no_descriptors().await.context("no descriptors")?,
        test.no_room().await.context("too many connections")?,
    ];
    let retried = retrying.end(&nodes.admin, node.address()).await?;
    retried.faultless()?;
    Ok(format!("{}; {retried}", figures.join("; ")))
}

struct Test<'a> {
    nodes: &'a Nodes,
    node: &'a Node,
}

impl Test<'_> {
    fn stream(&self) -> Stream {
        Stream::start(&self.nodes.admin, self.node.address())
    }

    /// Attached and detached, in order.
    async fn terminated(&self) -> anyhow::Result<String> {
        let stream = self.stream();
        stream.goes_on(20).await?;
        for number in 0..2 {
            let started = Instant::now();
            let gateway = self.node.gateway(self.nodes, number).await?;
            stream.until_answered_by("mvp", started).await?;
            stream.goes_on(100).await?;
            gateway.end().await?;
            stream.until_answered_by("server", Instant::now()).await?;
        }
        stream.goes_on(50).await?;
        stream.none_failed()?;
        let told = stream.end().await?;
        Ok(format!("attached and detached twice: {}", tally(&told)))
    }

    /// Only connections that were open at the moment of the kill may fail.
    async fn killed(&self) -> anyhow::Result<String> {
        let stream = self.stream();
        let mut kills = Vec::new();
        for number in 2..5 {
            let mut gateway = self.node.gateway(self.nodes, number).await?;
            stream.until_answered_by("mvp", Instant::now()).await?;
            stream.goes_on(50).await?;
            let before = Instant::now();
            gateway.process.kill();
            let killed = Instant::now();
            kills.push((before, killed));
            stream.until_answered_by("server", killed).await?;
            stream.goes_on(50).await?;
        }
        let told = stream.end().await?;
        let in_flight = |told: &Told| {
            kills.iter().any(|(before, killed)| told.asked <= *killed && told.answered >= *before)
        };
        let others: Vec<Told> = failed(&told).filter(|told| !in_flight(told)).cloned().collect();
        ensure!(others.is_empty(), "failed, but not in flight at a kill: {}", tally(&others));
        Ok(format!("killed 3 times: {}", tally(&told)))
    }

    async fn stopped(&self) -> anyhow::Result<String> {
        let gateway = self.node.gateway(self.nodes, 5).await?;
        let stream = self.stream();
        stream.until_answered_by("mvp", Instant::now()).await?;
        stream.goes_on(50).await?;
        let mut longest = Duration::ZERO;
        for seconds in [5, 4] {
            let limit = limit_of(&gateway).await?;
            gateway.process.signal(Signal::STOP)?;
            let stopped = Instant::now();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            gateway.process.signal(Signal::CONT)?;
            let woken = Instant::now();
            longest = longest.max(opened(&stream, stopped, woken, limit)?);
            stream.until_answered_by("mvp", woken).await?;
            stream.goes_on(50).await?;
        }
        let told = stream.end().await?;
        none_failed(&told)?;
        gateway.end().await?;
        let open = longest.as_secs_f64();
        Ok(format!("stopped for 5 s and for 4 s: open after {open:.2} s, {}", tally(&told)))
    }

    async fn stopped_and_killed(&self) -> anyhow::Result<String> {
        let mut gateway = self.node.gateway(self.nodes, 6).await?;
        let stream = self.stream();
        stream.until_answered_by("mvp", Instant::now()).await?;
        stream.goes_on(50).await?;
        let limit = limit_of(&gateway).await?;
        gateway.process.signal(Signal::STOP)?;
        let stopped = Instant::now();
        tokio::time::sleep(Duration::from_secs(4)).await;
        let open = opened(&stream, stopped, Instant::now(), limit)?;
        gateway.process.kill();
        let killed = Instant::now();
        stream.until_answered_by("server", killed).await?;
        stream.goes_on(50).await?;
        let told = stream.end().await?;
        // Those that it had accepted, or would have.
        let late = failed(&told).filter(|told| told.asked > stopped + limit).count();
        ensure!(late == 0, "{late} connections failed after it had failed open");
        let open = open.as_secs_f64();
        Ok(format!("stopped and killed: open after {open:.2} s, {}", tally(&told)))
    }

    /// It cannot accept connections any more.
    async fn no_descriptors(&self) -> anyhow::Result<String> {
        let gateway = self.node.gateway(self.nodes, 7).await?;
        let stream = self.stream();
        stream.until_answered_by("mvp", Instant::now()).await?;
        let files = format!("/proc/{}/fd", gateway.process.id());
        let open = std::fs::read_dir(&files).context(files)?.count();
        let taken = Instant::now();
        limit_descriptors(gateway.process.id(), open.saturating_sub(8))?;
        let first = stream.until_answered_by("server", taken).await?;
        let opened = first.asked.saturating_duration_since(taken);
        tokio::time::sleep(Duration::from_secs(5)).await;
        limit_descriptors(gateway.process.id(), 1024)?;
        let given = Instant::now();
        stream.until_answered_by("mvp", given).await?;
        let told = stream.end().await?;
        let during: Vec<Told> =
            told.iter().filter(|told| told.asked > taken && told.asked < given).cloned().collect();
        gateway.end().await?;
        few_failed(&during)?;
        let longest = during.iter().map(|told| told.answered.duration_since(told.asked)).max();
        let longest = longest.unwrap_or_default().as_secs_f64();
        let open = opened.as_secs_f64();
        Ok(format!(
            "5 s without descriptors: open after {open:.2} s, the longest answer took {longest:.1} s, {}",
            tally(&during)
        ))
    }

    /// Watches fill all connections that it may have.
    async fn no_room(&self) -> anyhow::Result<String> {
        let mut gateway =
            self.node.start_gateway(self.nodes, 8, &["--max-client-connections=60"])?;
        gateway.ready().await?;
        let to = self.node.address();
        self.nodes.until_answered_by("mvp", to).await?;
        let watches = Watches::open(&self.nodes.admin, to, "fail-open", 70).await?;
        let filled = Instant::now();
        let stream = self.stream();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let told = stream.end().await?;
        ensure!(told.iter().any(|told| told.what == "server"), "all full: {}", tally(&told));
        few_failed(&told)?;
        drop(watches);
        gateway.end().await?;
        let seconds = filled.elapsed().as_secs();
        Ok(format!("{seconds} s with 60 connections that are all watches: {}", tally(&told)))
    }
}

/// The time in which this gateway must fail open.
async fn limit_of(gateway: &Gateway) -> anyhow::Result<Duration> {
    let tolerance = gateway.metric("mvp_steering_tolerance_seconds").await?;
    Ok(if tolerance > 0.5 { FAIL_OPEN_STARVED } else { FAIL_OPEN })
}

/// The time until a new connection reached kube-apiserver. Connections from before may hang.
fn opened(
    stream: &Stream,
    stopped: Instant,
    until: Instant,
    limit: Duration,
) -> anyhow::Result<Duration> {
    let told = stream.after(stopped);
    let by_server = told.iter().filter(|told| told.what == "server" && told.answered < until);
    let first = by_server.map(|told| told.asked).min();
    let first = first.context("kube-apiserver answered nobody while mvp was stopped")?;
    let open = first.saturating_duration_since(stopped);
    ensure!(open < limit, "it took {open:?} until a new connection reached kube-apiserver");
    Ok(open)
}

fn failed(told: &[Told]) -> impl Iterator<Item = &Told> {
    told.iter().filter(|told| told.failed())
}

fn none_failed(told: &[Told]) -> anyhow::Result<()> {
    ensure!(failed(told).count() == 0, "connections failed: {}", tally(told));
    Ok(())
}

/// A connection that finds no room is closed: that is how it is found out. Then it is open.
fn few_failed(told: &[Told]) -> anyhow::Result<()> {
    let (failed, all) = (failed(told).count(), told.len());
    ensure!(failed * 10 <= all, "{failed} of {all} failed: {}", tally(told));
    Ok(())
}

fn limit_descriptors(process: u32, number: usize) -> anyhow::Result<()> {
    let mut command = Command::new("prlimit");
    command.args([format!("--pid={process}"), format!("--nofile={number}:")]);
    let output = command.output().context("cannot run prlimit, of util-linux")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(())
}
