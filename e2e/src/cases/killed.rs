//! A member dies without a word.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::client::Client;
use crate::cluster::{Cluster, Server};
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "killed/two-can-serve",
            two_can_serve,
            "SIGKILL of a peer while another can serve: no read fails"
        ),
        case!(
            Mixed,
            "killed/behind-its-gateway",
            behind_its_gateway,
            "SIGKILL of a kube-apiserver behind a live gateway: no read fails"
        ),
        case!(
            Mixed,
            "killed/only-it-can",
            only_it_can,
            "SIGKILL of the only capable peer: 503 Status, never 404, until it returns"
        ),
        case!(
            Native,
            "killed/kubernetes-own",
            kubernetes_own,
            "comparison: the same SIGKILL with the Kubernetes proxy"
        ),
    ]
}

const JOBS: &str = "/apis/batch/v1/jobs";
/// Only `a` has every alpha API on.
const ONLY_A: &str = "/apis/coordination.k8s.io/v1alpha2/leasecandidates";

/// A read every 20 ms for a while, each over a connection of its own, and the time from the first
/// to the last that failed.
async fn read_every_20_ms(
    client: &Client,
    to: SocketAddr,
    lasts: Duration,
) -> anyhow::Result<(Tally, Duration)> {
    let mut tally = Tally::default();
    let mut failed: Option<(Instant, Instant)> = None;
    let mut pace = interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    while started.elapsed() < lasts {
        pace.tick().await;
        let answer = client.get(to, JOBS).await;
        tally.count(&answer);
        if !answer.is_ok_and(|answer| answer.status == 200) {
            let now = Instant::now();
            failed = Some(failed.map_or((now, now), |(first, _)| (first, now)));
        }
    }
    Ok((tally, failed.map_or(Duration::ZERO, |(first, last)| last - first)))
}

/// The same by four at once, so that some are under way at any moment.
async fn four_read(client: &Client, to: SocketAddr, lasts: Duration) -> anyhow::Result<Tally> {
    let mut all = Tally::default();
    let readers = (0..4).map(|_| read_every_20_ms(client, to, lasts));
    for (tally, _) in futures_util::future::try_join_all(readers).await? {
        all.add(&tally);
    }
    Ok(all)
}

async fn two_can_serve(cluster: &mut Cluster) -> anyhow::Result<String> {
    kill_each(cluster, |server| {
        server.kill();
        Ok(())
    })
    .await
}

/// Its gateway lives on, and refuses what it is sent.
async fn behind_its_gateway(cluster: &mut Cluster) -> anyhow::Result<String> {
    kill_each(cluster, |server| {
        server.process()?.kill();
        Ok(())
    })
    .await
}

async fn kill_each(
    cluster: &mut Cluster,
    kill_one: fn(&mut Server) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let through = cluster.server("b")?.through();
    let admin = cluster.admin.clone();
    let (mut all, mut rounds) = (Tally::default(), 0);
    for name in ["a", "c"] {
        let calm = read_every_20_ms(&admin, through, Duration::from_secs(1)).await?;
        calm.0.only(&["200"]).context("before the kill")?;
        let reads = four_read(&admin, through, Duration::from_secs(5));
        let kill = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            kill_one(cluster.server_mut(name)?)
        };
        let (reads, killed) = tokio::join!(reads, kill);
        killed?;
        let tally = reads?;
        // One each at the most was half way.
        tally.all_well_but_cut_off(4).with_context(|| format!("{name} was killed"))?;
        all.add(&tally);
        rounds += 1;
        cluster.heal().await?;
    }
    Ok(format!("{rounds} kills: {all}"))
}

async fn only_it_can(cluster: &mut Cluster) -> anyhow::Result<String> {
    let admin = cluster.admin.clone();
    let through = [cluster.server("b")?.through(), cluster.server("c")?.through()];
    for to in through {
        admin.get(to, ONLY_A).await?.expect(200).context("before the kill")?;
    }
    cluster.server_mut("a")?.kill();
    let mut down = Tally::default();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        for to in through {
            let answer = admin.get(to, ONLY_A).await;
            down.count(&answer);
            let answer = answer?;
            let status = answer.expect(503)?;
            let is_status = status.pointer("/kind") == Some(&json!("Status"))
                && status.pointer("/reason") == Some(&json!("ServiceUnavailable"));
            ensure!(is_status, "no Status: {answer}");
            ensure!(answer.headers.contains_key("retry-after"), "no Retry-After: {answer}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It comes back, and until then there is no 404 either.
    let index = cluster.index("a")?;
    cluster.start_server(index)?;
    cluster.start_gateway(index)?;
    let restarted = Instant::now();
    let mut returning = Tally::default();
    let mut back = [false; 2];
    while back != [true; 2] {
        ensure!(
            restarted.elapsed() < Duration::from_secs(120),
            "not back after 120 s: {returning}"
        );
        for (to, back) in through.into_iter().zip(&mut back) {
            let answer = admin.get(to, ONLY_A).await;
            returning.count(&answer);
            *back = answer.is_ok_and(|answer| answer.status == 200);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    returning.only(&["200", "429", "503"]).context("while it came back")?;
    let took = restarted.elapsed().as_secs_f64();
    Ok(format!("down: {down}; until it was back ({took:.0} s): {returning}"))
}

async fn kubernetes_own(cluster: &mut Cluster) -> anyhow::Result<String> {
    let admin = cluster.admin.clone();
    let mut figures = Vec::new();
    for (what, ours) in [("Kubernetes' own", false), ("mvp", true)] {
        let server = cluster.server("b")?;
        let to = if ours { server.through() } else { server.direct() };
        let calm = read_every_20_ms(&admin, to, Duration::from_secs(1)).await?;
        calm.0.only(&["200"]).context("before the kill")?;
        let reads = read_every_20_ms(&admin, to, Duration::from_secs(20));
        let kill = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            cluster.server_mut("c")?.kill();
            anyhow::Ok(())
        };
        let (reads, killed) = tokio::join!(reads, kill);
        killed?;
        let (tally, span) = reads?;
        let errors = tally.total() - tally.of("200");
        if ours {
            tally.all_well_but_cut_off(1).context("with mvp")?;
        } else {
            ensure!(
                errors > 0,
                "Kubernetes' own lost nothing: the comparison in the docs is stale"
            );
        }
        let span = span.as_secs_f64();
        figures.push(format!("{what}: {errors} of {} failed, over {span:.1} s", tally.total()));
        cluster.heal().await?;
    }
    Ok(figures.join("; "))
}
