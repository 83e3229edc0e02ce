//! A member hangs: it is stopped, while its kernel still accepts connections; or its network is
//! cut.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::Signal;

use crate::cluster::Cluster;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "stopped/two-can-serve",
            two_can_serve,
            "SIGSTOP of a peer while another can serve: no read fails"
        ),
        case!(
            Mixed,
            "stopped/behind-its-gateway",
            behind_its_gateway,
            "SIGSTOP of a kube-apiserver behind a live gateway: no read fails"
        ),
        case!(
            Mixed,
            "stopped/only-it-can",
            only_it_can,
            "SIGSTOP of the only capable peer: 503 Status, never 404 or a hang"
        ),
        case!(Mixed, "stopped/slow-list", slow_list, "a LIST that takes 5 s is sent once"),
        case!(
            Cable,
            "cut/two-can-serve",
            cut_two_can_serve,
            "the network of a peer is cut while another can serve: no read fails"
        ),
        case!(
            Cable,
            "cut/only-it-can",
            cut_only_it_can,
            "the network of the only capable peer is cut: 503 Status, never 404 or a hang"
        ),
    ]
}

const JOBS: &str = "/apis/batch/v1/jobs";
/// An API that only `a` serves, with all alpha APIs on.
const ONLY_A: &str = "/apis/coordination.k8s.io/v1alpha2/leasecandidates";

/// The way in which a member hangs.
#[derive(Clone, Copy)]
enum Silence {
    Stopped,
    /// Only its kube-apiserver hangs.
    ServerStopped,
    Cut,
}

impl Silence {
    fn begin(self, cluster: &mut Cluster, name: &str) -> anyhow::Result<()> {
        match self {
            Silence::Stopped => signal(cluster, name, Signal::STOP),
            Silence::ServerStopped => cluster.server_mut(name)?.process()?.signal(Signal::STOP),
            Silence::Cut => cluster.cable.as_ref().context("no cable")?.cut(),
        }
    }

    fn end(self, cluster: &mut Cluster, name: &str) -> anyhow::Result<()> {
        match self {
            Silence::Stopped => signal(cluster, name, Signal::CONT),
            Silence::ServerStopped => cluster.server_mut(name)?.process()?.signal(Signal::CONT),
            Silence::Cut => cluster.cable.as_ref().context("no cable")?.mend(),
        }
    }
}

/// An unanswered PING or handshake for 2 s shows that a member hangs; far less than the timeout of
/// a client.
fn found_out(longest: Duration) -> anyhow::Result<()> {
    ensure!(longest < Duration::from_secs(10), "somebody waited for {longest:?}");
    Ok(())
}

/// A signal to the whole node.
fn signal(cluster: &mut Cluster, name: &str, signal: Signal) -> anyhow::Result<()> {
    let server = cluster.server_mut(name)?;
    server.process()?.signal(signal)?;
    server.gateway()?.signal(signal)
}

async fn two_can_serve(cluster: &mut Cluster) -> anyhow::Result<String> {
    another_can(cluster, Silence::Stopped, &["a", "c"]).await
}

async fn behind_its_gateway(cluster: &mut Cluster) -> anyhow::Result<String> {
    another_can(cluster, Silence::ServerStopped, &["a", "c"]).await
}

async fn cut_two_can_serve(cluster: &mut Cluster) -> anyhow::Result<String> {
    another_can(cluster, Silence::Cut, &["a", "a"]).await
}

async fn another_can(
    cluster: &mut Cluster,
    silence: Silence,
    names: &[&str],
) -> anyhow::Result<String> {
    let (admin, through) = (cluster.admin.clone(), cluster.server("b")?.through());
    let mut tally = Tally::default();
    let mut longest = Duration::ZERO;
    for name in names {
        silence.begin(cluster, name)?;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(6) {
            let asked = Instant::now();
            tally.count(&admin.get(through, JOBS).await);
            longest = longest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        silence.end(cluster, name)?;
        tally.only(&["200"]).with_context(|| format!("{name} was silent"))?;
        cluster.heal().await?;
    }
    found_out(longest)?;
    let count = names.len();
    Ok(format!("{count} hangs: {tally}; the longest read took {:.1} s", longest.as_secs_f64()))
}

async fn only_it_can(cluster: &mut Cluster) -> anyhow::Result<String> {
    nobody_can(cluster, Silence::Stopped).await
}

async fn cut_only_it_can(cluster: &mut Cluster) -> anyhow::Result<String> {
    nobody_can(cluster, Silence::Cut).await
}

async fn nobody_can(cluster: &mut Cluster, silence: Silence) -> anyhow::Result<String> {
    let (admin, through) = (cluster.admin.clone(), cluster.server("b")?.through());
    admin.get(through, ONLY_A).await?.expect(200).context("before it was silent")?;
    silence.begin(cluster, "a")?;
    let mut tally = Tally::default();
    let mut longest = Duration::ZERO;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(8) {
        let asked = Instant::now();
        let answer = admin.get(through, ONLY_A).await;
        longest = longest.max(asked.elapsed());
        tally.count(&answer);
        let status = answer?.expect(503)?;
        ensure!(status.pointer("/kind") == Some(&json!("Status")), "no Status: {status}");
    }
    found_out(longest)?;
    silence.end(cluster, "a")?;
    let woken = Instant::now();
    loop {
        let answer = admin.get(through, ONLY_A).await?;
        ensure!(answer.status != 404, "a false 404: {answer}");
        if answer.status == 200 {
            break;
        }
        ensure!(woken.elapsed() < Duration::from_secs(30), "not back after 30 s: {answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (longest, back) = (longest.as_secs_f64(), woken.elapsed().as_secs_f64());
    Ok(format!("{tally}, the longest after {longest:.1} s; served again {back:.1} s after SIGCONT"))
}

/// Slow is not dead: a LIST that takes 5 s is sent once.
async fn slow_list(cluster: &mut Cluster) -> anyhow::Result<String> {
    let (admin, through) = (cluster.admin.clone(), cluster.server("b")?.through());
    // An API that two others serve, so that failover is possible.
    let path = format!("{JOBS}?pretty=e2e-slow");
    admin.get(through, JOBS).await?.expect(200)?;
    cluster.etcd().signal(Signal::STOP)?;
    let started = Instant::now();
    let (answer, woken) = tokio::join!(admin.get(through, &path), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        cluster.etcd().signal(Signal::CONT)
    });
    woken?;
    let took = started.elapsed();
    let answer = answer?;
    ensure!(answer.status == 200, "the slow list: {answer}");
    ensure!(took >= Duration::from_secs(5), "it was not slow: {took:?}");
    let mut processed = 0;
    for server in &cluster.servers {
        let of_it = |entry: &Value| {
            let uri = entry.get("requestURI").and_then(Value::as_str);
            uri.is_some_and(|uri| uri.contains("e2e-slow"))
        };
        processed += server.audit()?.iter().filter(|entry| of_it(entry)).count();
    }
    ensure!(processed == 1, "servers processed it {processed} times");
    Ok(format!("answered after {:.1} s, processed once", took.as_secs_f64()))
}
