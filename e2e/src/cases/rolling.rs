//! A rolling upgrade: three servers go from 1.34 to 1.36 one after the other, and back, under a
//! constant load of reads, writes and watches at each address.
//!
//! Entry item: [`roll`].

mod linear;
mod steps;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{callers, objects};
use crate::cluster::Cluster;
use crate::load::{Outcome, Pace, Sentinel};
use crate::programs::Minor;
use crate::suite::Case;
use crate::tally::{Failures, Tally};
use steps::Upgrade;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Rolling,
            "upgrade/rolling",
            gateways_stay,
            "three servers from 1.34 to 1.36 and back, under load at each gateway"
        ),
        case!(
            full Rolling,
            "upgrade/nodes-and-back",
            nodes_restart_and_back,
            "whole nodes restart, gateways found by Leases only: no read fails"
        ),
        case!(
            full Rolling,
            "upgrade/gateways-too",
            gateways_restart,
            "the same upgrade, each gateway restarting with its server"
        ),
        case!(
            full Rolling,
            "upgrade/without-mvp",
            without_mvp,
            "without mvp: the same upgrade behind a load balancer"
        ),
        case!(
            Rolling,
            "upgrade/linearizable",
            linear::upgrade_and_faults,
            "the upgrade with kills and hangs: what clients see is linearizable, watches are complete"
        ),
        case!(
            Rolling,
            "upgrade/nodes",
            nodes_restart,
            "the upgrade with whole nodes restarting, found by Leases: no read fails"
        ),
    ]
}

const PACE: Pace = Pace { read: Duration::from_millis(50), write: Duration::from_millis(100) };
/// Objects that only one release serves.
const SLOW_PACE: Pace =
    Pace { read: Duration::from_millis(150), write: Duration::from_millis(200) };
const WITHIN: Duration = Duration::from_secs(120);

/// The proxy before the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// One gateway each, which keeps running while its server changes.
    Gateways,
    /// The same, but each restarts with its server.
    RestartedGateways,
    /// The same, without a list of peers, as whole nodes restart: gateways find each other by
    /// Leases, and clients find them by a load balancer with readiness checks.
    FoundGateways,
    /// A round-robin load balancer that skips servers that refuse connections.
    LoadBalancer,
}

/// The extent of the upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    AndBack,
}

async fn gateways_stay(cluster: &mut Cluster) -> anyhow::Result<String> {
    let rolled = roll(cluster, Before::Gateways, Way::AndBack).await?;
    rolled.kept_its_promises()?;
    // No request was refused. Only requests in flight when their server was killed may break off:
    // at each of six restarts, one of each reader and writer at that address, of the four loads.
    // Until its peers have seen a new API, they may return 503.
    for (whose, told) in [("1.36", &rolled.newer), ("1.34", &rolled.older)] {
        told.only(&["200", "503", Tally::CUT_OFF]).context(format!("of what only {whose} has"))?;
        ensure!(told.of("503") <= 60, "of what only {whose} has: {told}");
    }
    rolled.reads.only(&["200", Tally::CUT_OFF]).context("reads")?;
    rolled.watching.only(&["200", Tally::CUT_OFF]).context("lists and watches")?;
    rolled.writes.only(&["201", "503", Tally::CUT_OFF]).context("writes")?;
    // The last one to be downgraded is newer than the servers that could write in its place.
    let too_old = rolled.failures.that_say("too old to write");
    let under_way = rolled.failures.kinds().total() - too_old;
    ensure!(under_way <= 6 * 4 * 2, "{under_way} failed: {}", rolled.failures.kinds());
    Ok(rolled.figures())
}

async fn gateways_restart(cluster: &mut Cluster) -> anyhow::Result<String> {
    let rolled = roll(cluster, Before::RestartedGateways, Way::AndBack).await?;
    rolled.kept_its_promises()?;
    // A connection to a stopped server is refused.
    let allowed = ["200", "503", Tally::CUT_OFF, Tally::NO_ANSWER];
    rolled.reads.only(&allowed).context("reads")?;
    rolled.writes.only(&["201", "503", Tally::CUT_OFF, Tally::NO_ANSWER]).context("writes")?;
    rolled.newer.only(&allowed).context("of what only 1.36 has")?;
    rolled.older.only(&allowed).context("of what only 1.34 has")?;
    Ok(rolled.figures())
}

async fn nodes_restart(cluster: &mut Cluster) -> anyhow::Result<String> {
    found(cluster, Way::Up).await
}

async fn nodes_restart_and_back(cluster: &mut Cluster) -> anyhow::Result<String> {
    found(cluster, Way::AndBack).await
}

async fn found(cluster: &mut Cluster, way: Way) -> anyhow::Result<String> {
    let rolled = roll(cluster, Before::FoundGateways, way).await?;
    rolled.kept_its_promises()?;
    // At least one gateway is always ready.
    rolled.reads.only(&["200"]).context("reads")?;
    rolled.watching.only(&["200"]).context("lists and watches")?;
    rolled.writes.only(&["201", "503", Tally::CUT_OFF]).context("writes")?;
    // A write that was in flight when its server stopped.
    let failed = rolled.failures.kinds();
    ensure!(failed.total() <= 2 * rolled.restarts, "{failed}");
    for (whose, told) in [("1.36", &rolled.newer), ("1.34", &rolled.older)] {
        told.only(&["200"]).context(format!("of what only {whose} has"))?;
    }
    Ok(rolled.figures())
}

async fn without_mvp(cluster: &mut Cluster) -> anyhow::Result<String> {
    let rolled = roll(cluster, Before::LoadBalancer, Way::AndBack).await?;
    ensure!(rolled.false_404s() > 0, "no harm was done: {}", rolled.figures());
    Ok(rolled.figures())
}

/// The results.
struct Rolled {
    restarts: usize,
    took: Duration,
    reads: Tally,
    writes: Tally,
    watching: Tally,
    failures: Failures,
    broken: Vec<String>,
    /// The responses for APIs that only 1.36 or only 1.34 serves, while a server of that release
    /// was up.
    newer: Tally,
    older: Tally,
    namespaces: Namespaces,
}

#[derive(Debug, Default)]
struct Namespaces {
    deleted: usize,
    /// Namespaces that are not deleted.
    stuck: usize,
    /// Deleted namespaces whose objects are left.
    left_behind: usize,
}

impl Rolled {
    fn kept_its_promises(&self) -> anyhow::Result<()> {
        ensure!(self.broken.is_empty(), "{}", self.broken.join("; "));
        ensure!(self.false_404s() == 0, "false 404s: {}", self.figures());
        let well = self.namespaces.stuck + self.namespaces.left_behind == 0;
        ensure!(well, "{:?}", self.namespaces);
        ensure!(self.newer.of("200") > 100 && self.older.of("200") > 100, "{}", self.figures());
        Ok(())
    }

    fn false_404s(&self) -> usize {
        let all = [&self.reads, &self.writes, &self.watching, &self.newer, &self.older];
        all.iter().map(|tally| tally.of("404")).sum()
    }

    fn add(&mut self, what: &str, outcome: Outcome) {
        self.reads.add(&outcome.reads);
        self.writes.add(&outcome.writes);
        self.watching.add(&outcome.watching);
        self.failures.add(&outcome.failures);
        if let Err(fault) = outcome.faultless() {
            self.broken.push(format!("{what}: {fault:#}"));
        }
    }

    fn figures(&self) -> String {
        let Namespaces { deleted, stuck, left_behind } = self.namespaces;
        let broken = match self.broken.as_slice() {
            [] => "no write lost or doubled, no event missed".to_owned(),
            broken => broken.join("; ").chars().take(300).collect(),
        };
        format!(
            "{} restarts in {:.0} s: {} false 404s; reads {}; writes {}; lists and watches {}; \
             {broken}; reads of what only 1.36 has {}, only 1.34 {}; {deleted} namespaces deleted, \
             {stuck} stuck, {left_behind} left something behind",
            self.restarts,
            self.took.as_secs_f64(),
            self.false_404s(),
            self.reads,
            self.writes,
            self.watching,
            self.newer,
            self.older,
        )
    }
}

async fn roll(cluster: &mut Cluster, before: Before, way: Way) -> anyhow::Result<Rolled> {
    let mut upgrade = Upgrade::prepare(cluster, before, way).await?;
    let (by_certificate, by_token) = (
        callers::by_certificate(upgrade.cluster).await?,
        callers::by_token(upgrade.cluster).await?,
    );
    let newer = objects::mutating_policy("").collection;
    let older = objects::old_volume_class("").collection;
    let asks_newer = Sentinel::start(&by_token, &upgrade.addresses, &newer);
    let asks_older = Sentinel::start(&by_certificate, &upgrade.addresses, &older);
    let certificates = upgrade.load_of_config_maps("certificates", &by_certificate).await?;
    let tokens = upgrade.load_of_config_maps("tokens", &by_token).await?;

    // The upgrade. APIs of 1.34 are served until the last such server stops.
    let load_of_older = upgrade.load_of_older("up", &by_token);
    let newer_from = upgrade.step("a", Minor::V1_36).await?;
    let load_of_newer = upgrade.load_of_newer(&by_certificate);
    upgrade.step("b", Minor::V1_36).await?;
    upgrade.end("what only 1.34 has, up", load_of_older, "c").await?;
    upgrade.rolled.older = asks_older.between(upgrade.since, Instant::now());
    upgrade.step("c", Minor::V1_36).await?;
    upgrade.all_say_404(&older).await.context("what only 1.34 has, at 1.36 alone")?;

    if way == Way::Up {
        upgrade.end("what only 1.36 has", load_of_newer, "c").await?;
        upgrade.rolled.newer = asks_newer.between(newer_from, Instant::now());
    } else {
        // The downgrade. APIs of 1.36 are served until the last such server stops.
        let older_from = upgrade.step("a", Minor::V1_34).await?;
        let load_of_older = upgrade.load_of_older("down", &by_token);
        upgrade.step("b", Minor::V1_34).await?;
        upgrade.end("what only 1.36 has", load_of_newer, "c").await?;
        upgrade.rolled.newer = asks_newer.between(newer_from, Instant::now());
        upgrade.step("c", Minor::V1_34).await?;
        upgrade.all_say_404(&newer).await.context("what only 1.36 has, at 1.34 alone")?;
        upgrade.end("what only 1.34 has, down", load_of_older, "a").await?;
        upgrade.rolled.older.add(&asks_older.between(older_from, Instant::now()));
    }
    upgrade.end("ConfigMaps by certificate", certificates, "a").await?;
    upgrade.end("ConfigMaps by token", tokens, "a").await?;
    upgrade.rolled.took = upgrade.since.elapsed();
    eprintln!("      what failed, by second:\n{}", upgrade.rolled.failures);
    Ok(upgrade.rolled)
}
