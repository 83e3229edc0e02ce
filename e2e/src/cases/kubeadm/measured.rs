//! An upgrade under load, and its figures. Entry item: [`Measured::upgrade`].

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use crate::cases::objects;
use crate::kubeadm::{Lab, Node};
use crate::load::{Load, Outcome, Pace, Sentinel, Subject};
use crate::programs::Minor;
use crate::tally::Tally;

const PACE: Pace = Pace { read: Duration::from_millis(100), write: Duration::from_millis(100) };
const NAMESPACE: &str = "load";

/// The results of an upgrade.
pub(super) struct Measured {
    took: Duration,
    outcome: Outcome,
    /// The responses for an API that only the newer release has, from the moment at which the first
    /// node was upgraded.
    newer: Tally,
}

impl Measured {
    /// Upgrades one node after the other, while clients read, write and watch through the load
    /// balancer. Calls `upgraded` after each.
    pub(super) async fn upgrade(
        lab: &Lab,
        to: Minor,
        mut upgraded: impl FnMut(&Node) -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        let (admin, at) = (&lab.admin, lab.balancer());
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        admin.create(at, "/api/v1/namespaces", &namespace).await?.expect(201)?;
        let since = Instant::now();
        let load = Load::start_of(Subject::config_maps(NAMESPACE), PACE, since, admin, &[at]);
        let newer = objects::mutating_policy("").collection;
        let asks_newer = Sentinel::start(admin, &[at], &newer);
        let mut newer_from = None;
        for node in &lab.nodes {
            let started = since.elapsed().as_secs_f64();
            lab.upgrade(node, to).await?;
            upgraded(node)?;
            // From now on this server serves the newer API, and stays up.
            newer_from.get_or_insert_with(Instant::now);
            let ended = since.elapsed().as_secs_f64();
            eprintln!("      {}: upgrade from {started:.0} s to {ended:.0} s", node.name);
        }
        let took = since.elapsed();
        let newer = asks_newer.between(newer_from.unwrap_or(since), Instant::now());
        drop(asks_newer);
        let outcome = load.finish(admin, at).await?;
        eprintln!("      what failed, by second:\n{}", outcome.failures);
        let measured = Measured { took, outcome, newer };
        eprintln!("      {}", measured.figures());
        Ok(measured)
    }

    /// Fails after a false 404, a lost or doubled write, or a missed event.
    pub(super) fn kept_its_promises(&self) -> anyhow::Result<()> {
        let figures = self.figures();
        ensure!(self.false_404s() == 0, "false 404s: {figures}");
        let Outcome { lost, doubled, missed, blind, .. } = &self.outcome;
        ensure!(lost.len() + doubled.len() + missed.len() + blind == 0, "{figures}");
        ensure!(self.newer.of("200") > 100 && self.outcome.writes.of("201") > 100, "{figures}");
        Ok(())
    }

    /// Responses 404 for an API that a live server serves.
    pub(super) fn false_404s(&self) -> usize {
        let Outcome { reads, writes, watching, .. } = &self.outcome;
        [reads, writes, watching, &self.newer].iter().map(|tally| tally.of("404")).sum()
    }

    pub(super) fn figures(&self) -> String {
        let Outcome { reads, writes, watching, lost, doubled, missed, .. } = &self.outcome;
        format!(
            "upgrade of three nodes in {:.1} min: {} false 404s; reads {reads}; writes {writes}; \
             lists and watches {watching}; the newer API {}; {} writes lost, {} doubled, {} events \
             missed",
            self.took.as_secs_f64() / 60.0,
            self.false_404s(),
            self.newer,
            lost.len(),
            doubled.len(),
            missed.len(),
        )
    }
}
