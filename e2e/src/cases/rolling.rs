//! The day that the project is for: three servers go from 1.34 to 1.36 one after the other, and back,
//! under a constant load of reads, writes and watches at each address.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{callers, objects};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::load::{Load, Outcome, Pace, Sentinel, Subject};
use crate::process::{Process, until};
use crate::programs::Minor;
use crate::relay::Relay;
use crate::tally::{Failures, Tally};

const PACE: Pace = Pace { read: Duration::from_millis(50), write: Duration::from_millis(100) };
/// Of what only one release has.
const SLOW_PACE: Pace =
    Pace { read: Duration::from_millis(150), write: Duration::from_millis(200) };
const WITHIN: Duration = Duration::from_secs(120);

/// Who stands before the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A gateway each, which stay while their servers change.
    Gateways,
    /// The same, but each restarts with its server.
    RestartedGateways,
    /// A load balancer that takes turns, and leaves out who refuses a connection.
    LoadBalancer,
}

pub(super) async fn gateways_stay(cluster: &mut Cluster) -> anyhow::Result<String> {
    let rolled = roll(cluster, Before::Gateways).await?;
    rolled.kept_its_promises()?;
    // Nobody was turned away: only what was under way when its server was killed has no good end. At
    // each of six restarts, one of each reader and writer at that address, of the four loads.
    rolled.reads.only(&["200", Tally::CUT_OFF]).context("reads")?;
    rolled.watching.only(&["200", Tally::CUT_OFF]).context("lists and watches")?;
    rolled.writes.only(&["201", "403", "503", Tally::CUT_OFF]).context("writes")?;
    // The last to be downgraded is newer than those who could write in its place. When it comes back
    // and is not ready yet, nobody else may be asked for a write, so it is; it knows no rules yet.
    let too_old = rolled.failures.that_say("too old to write");
    let forbidden = rolled.writes.of("403");
    ensure!(forbidden <= 3, "{forbidden} writes were forbidden, of 3 writers at that address");
    let under_way = rolled.failures.kinds().total() - too_old - forbidden;
    ensure!(under_way <= 6 * 4 * 2, "{under_way} failed: {}", rolled.failures.kinds());
    Ok(rolled.figures())
}

pub(super) async fn gateways_restart(cluster: &mut Cluster) -> anyhow::Result<String> {
    let rolled = roll(cluster, Before::RestartedGateways).await?;
    rolled.kept_its_promises()?;
    Ok(rolled.figures())
}

pub(super) async fn without_mvp(cluster: &mut Cluster) -> anyhow::Result<String> {
    let rolled = roll(cluster, Before::LoadBalancer).await?;
    ensure!(rolled.false_404s() > 0, "no harm was done: {}", rolled.figures());
    Ok(rolled.figures())
}

/// What came of it.
struct Rolled {
    took: Duration,
    reads: Tally,
    writes: Tally,
    watching: Tally,
    failures: Failures,
    broken: Vec<String>,
    /// How what only 1.36 has, and what only 1.34 has, was answered while there was one that has it.
    newer: Tally,
    older: Tally,
    namespaces: Namespaces,
}

#[derive(Debug, Default)]
struct Namespaces {
    deleted: usize,
    /// Those that are not gone.
    stuck: usize,
    /// Those that are gone, and what they held is not.
    left_behind: usize,
}

impl Rolled {
    fn kept_its_promises(&self) -> anyhow::Result<()> {
        ensure!(self.broken.is_empty(), "{}", self.broken.join("; "));
        ensure!(self.false_404s() == 0, "false 404s: {}", self.figures());
        let well = self.namespaces.stuck + self.namespaces.left_behind == 0;
        ensure!(well, "{:?}", self.namespaces);
        self.newer.only(&["200", Tally::CUT_OFF, "503", Tally::NO_ANSWER]).context("of 1.36")?;
        self.older.only(&["200", Tally::CUT_OFF, "503", Tally::NO_ANSWER]).context("of 1.34")?;
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
            [] => "nothing lost, doubled or missed".to_owned(),
            broken => broken.join("; ").chars().take(300).collect(),
        };
        format!(
            "6 restarts in {:.0} s: {} false 404s; reads {}; writes {}; lists and watches {}; \
             {broken}; reads of what only 1.36 has {}, only 1.34 {}; {deleted} namespaces deleted, \
             {stuck} stuck, {left_behind} left something behind",
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

async fn roll(cluster: &mut Cluster, before: Before) -> anyhow::Result<Rolled> {
    let mut upgrade = Upgrade::prepare(cluster, before).await?;
    let (by_certificate, by_token) =
        (callers::by_certificate(upgrade.cluster).await?, callers::by_token(upgrade.cluster).await?);
    let newer = objects::mutating_policy("").collection;
    let older = objects::old_volume_class("").collection;
    let asks_newer = Sentinel::start(&by_token, &upgrade.addresses, &newer);
    let asks_older = Sentinel::start(&by_certificate, &upgrade.addresses, &older);
    let certificates = upgrade.load_of_config_maps("certificates", &by_certificate).await?;
    let tokens = upgrade.load_of_config_maps("tokens", &by_token).await?;

    // Up. What only 1.34 has is there until the last of it leaves.
    let load_of_older = upgrade.load_of_older("up", &by_token);
    let newer_from = upgrade.step("a", Minor::V1_36).await?;
    let load_of_newer = upgrade.load_of_newer(&by_certificate);
    upgrade.step("b", Minor::V1_36).await?;
    upgrade.end("what only 1.34 has, up", load_of_older, "c").await?;
    upgrade.rolled.older = asks_older.between(upgrade.since, Instant::now());
    upgrade.step("c", Minor::V1_36).await?;
    upgrade.all_say_404(&older).await.context("what only 1.34 has, at 1.36 alone")?;

    // And back. What only 1.36 has is there until the last of it leaves.
    let older_from = upgrade.step("a", Minor::V1_34).await?;
    let load_of_older = upgrade.load_of_older("down", &by_token);
    upgrade.step("b", Minor::V1_34).await?;
    upgrade.end("what only 1.36 has", load_of_newer, "c").await?;
    upgrade.rolled.newer = asks_newer.between(newer_from, Instant::now());
    upgrade.step("c", Minor::V1_34).await?;
    upgrade.all_say_404(&newer).await.context("what only 1.36 has, at 1.34 alone")?;

    upgrade.end("what only 1.34 has, down", load_of_older, "a").await?;
    upgrade.rolled.older.add(&asks_older.between(older_from, Instant::now()));
    upgrade.end("ConfigMaps by certificate", certificates, "a").await?;
    upgrade.end("ConfigMaps by token", tokens, "a").await?;
    upgrade.rolled.took = upgrade.since.elapsed();
    eprintln!("      what failed, by second:\n{}", upgrade.rolled.failures);
    Ok(upgrade.rolled)
}

/// An upgrade that is under way.
struct Upgrade<'a> {
    cluster: &'a mut Cluster,
    admin: Client,
    before: Before,
    since: Instant,
    /// Where clients ask.
    addresses: Vec<SocketAddr>,
    _relay: Relay,
    /// The namespace controller, at the second address.
    controller: Process,
    rolled: Rolled,
}

impl<'a> Upgrade<'a> {
    async fn prepare(cluster: &'a mut Cluster, before: Before) -> anyhow::Result<Upgrade<'a>> {
        for server in &mut cluster.servers {
            if server.spec.minor != Minor::V1_34 {
                server.leave_for(Minor::V1_34).await?;
            }
        }
        cluster.heal().await?;
        let directly: Vec<_> = cluster.servers.iter().map(|server| server.direct()).collect();
        let relay = Relay::start(cluster.spare_address(), &directly).await?;
        let addresses: Vec<_> = match before {
            Before::LoadBalancer => vec![relay.address(); directly.len()],
            _ => cluster.servers.iter().map(|server| server.through()).collect(),
        };
        let second = *addresses.get(1).context("no second address")?;
        let controller =
            cluster.controller("namespace-controller", &format!("{before:?}"), second)?;
        let since = Instant::now();
        let rolled = Rolled {
            took: Duration::ZERO,
            reads: Tally::default(),
            writes: Tally::default(),
            watching: Tally::default(),
            failures: Failures::since(since),
            broken: Vec::new(),
            newer: Tally::default(),
            older: Tally::default(),
            namespaces: Namespaces::default(),
        };
        let admin = cluster.admin.clone();
        Ok(Upgrade { cluster, admin, before, since, addresses, _relay: relay, controller, rolled })
    }

    async fn load_of_config_maps(&self, name: &str, client: &Client) -> anyhow::Result<Load> {
        let namespace = format!("{:?}-{name}", self.before).to_lowercase();
        self.cluster.namespace(&namespace).await?;
        let subject = Subject::config_maps(&namespace);
        Ok(Load::start_of(subject, PACE, self.since, client, &self.addresses))
    }

    fn load_of_newer(&self, client: &Client) -> Load {
        self.load_of(objects::mutating_policy(""), "newer", client)
    }

    fn load_of_older(&self, direction: &str, client: &Client) -> Load {
        self.load_of(objects::old_volume_class(""), &format!("older-{direction}"), client)
    }

    fn load_of(&self, kind: objects::Kind, tag: &str, client: &Client) -> Load {
        let tag = format!("{:?}-{tag}", self.before).to_lowercase();
        let subject = Subject { collection: kind.collection, object: kind.object, tag };
        Load::start_of(subject, SLOW_PACE, self.since, client, &self.addresses)
    }

    /// Ends a load, and compares it with what a server has that serves it.
    async fn end(&mut self, what: &str, load: Load, at: &str) -> anyhow::Result<()> {
        let at = self.cluster.server(at)?.direct();
        let outcome = load.finish(&self.admin, at).await.with_context(|| what.to_owned())?;
        self.rolled.add(what, outcome);
        Ok(())
    }

    /// One server leaves, and comes back as another release. Gives the moment from which it has
    /// served what only that release has. A namespace is deleted while it is away.
    async fn step(&mut self, name: &str, minor: Minor) -> anyhow::Result<Instant> {
        let started = self.since.elapsed().as_secs_f64();
        let doomed = Doomed::make(self.cluster, &self.admin, self.before, name, minor).await?;
        let index = self.cluster.index(name)?;
        let restarts = self.before == Before::RestartedGateways;
        let server = self.cluster.server_mut(name)?;
        let left = async {
            if restarts {
                server.gateway()?.signal(Signal::TERM)?;
            }
            server.leave_for(minor).await?;
            if restarts {
                server.gateway_ended().await?;
            }
            anyhow::Ok(())
        };
        let (left, deleted) = tokio::join!(left, doomed.delete(&self.admin));
        left.and(deleted)?;
        self.cluster.start_server(index)?;
        if restarts {
            self.cluster.start_gateway(index)?;
        }
        let own = match minor {
            Minor::V1_34 => objects::old_volume_class("").collection,
            Minor::V1_36 => objects::mutating_policy("").collection,
        };
        let direct = self.cluster.server(name)?.direct();
        until("it serves what only its release has", WITHIN, async || {
            self.admin.get(direct, &own).await?.expect(200).map(Some)
        })
        .await
        .with_context(|| format!("{name} as {minor:?}"))?;
        let served = Instant::now();
        let server = self.cluster.server_mut(name)?;
        server.ready(&self.admin, WITHIN).await?;
        server.gateway_ready(WITHIN).await?;
        self.cluster.agreed().await?;
        let back = self.since.elapsed().as_secs_f64();
        eprintln!("      {name} to {minor:?}: left at {started:.0} s, well at {back:.0} s");
        self.controller.check()?;
        doomed.count(self.cluster, &self.admin, &mut self.rolled.namespaces).await?;
        Ok(served)
    }

    /// Waits until what nobody serves any more is 404 at every address.
    async fn all_say_404(&self, path: &str) -> anyhow::Result<()> {
        for to in &self.addresses {
            until(&format!("404 at {to}"), Duration::from_secs(30), async || {
                self.admin.get(*to, path).await?.expect(404).map(Some)
            })
            .await?;
        }
        Ok(())
    }
}

/// A namespace that is deleted while a server is away.
struct Doomed {
    path: String,
    /// What is in it of an API that only 1.36 has, if there is one that stays.
    workloads: String,
    /// A server that stays, the newest.
    at: SocketAddr,
    has_workload: bool,
}

impl Doomed {
    async fn make(
        cluster: &Cluster,
        admin: &Client,
        before: Before,
        leaves: &str,
        minor: Minor,
    ) -> anyhow::Result<Doomed> {
        let name = format!("{before:?}-{leaves}-{minor:?}").to_lowercase().replace('_', "-");
        cluster.namespace(&name).await?;
        let stays = cluster.servers.iter().filter(|server| server.name() != leaves);
        let newest = stays.max_by_key(|server| server.spec.minor == Minor::V1_36);
        let newest = newest.context("nobody stays")?;
        let (at, has_workload) = (newest.direct(), newest.spec.minor == Minor::V1_36);
        let workload = objects::workload(&name, "one");
        if has_workload {
            admin.create(at, &workload.collection, &workload.object).await?.expect(201)?;
        }
        let path = format!("/api/v1/namespaces/{name}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
        admin.create(at, &format!("{path}/configmaps"), &map).await?.expect(201)?;
        Ok(Doomed { path, workloads: workload.collection, at, has_workload })
    }

    async fn delete(&self, admin: &Client) -> anyhow::Result<()> {
        admin.delete(self.at, &self.path).await?.expect(200).map(drop)
    }

    async fn count(
        &self,
        cluster: &Cluster,
        admin: &Client,
        namespaces: &mut Namespaces,
    ) -> anyhow::Result<()> {
        namespaces.deleted += 1;
        let gone = until("the namespace is gone", Duration::from_secs(45), async || {
            Ok((admin.get(self.at, &self.path).await?.status == 404).then_some(()))
        });
        if gone.await.is_err() {
            namespaces.stuck += 1;
            let stuck = admin.get(self.at, &self.path).await?;
            eprintln!("      stuck: {stuck}; logs in {:?}", cluster.folder());
        } else if self.has_workload {
            let left = admin.get(self.at, &self.workloads).await?.expect(200)?;
            let left = left.pointer("/items").and_then(Value::as_array).map_or(0, Vec::len);
            namespaces.left_behind += usize::from(left > 0);
        }
        Ok(())
    }
}
