//! One step of an upgrade: a server stops and returns as another release, while a namespace is
//! deleted. Entry item: [`Upgrade::step`].

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use testkit::process::{Process, Signal, until};

use super::super::{membership, objects};
use super::{Before, Namespaces, PACE, Rolled, SLOW_PACE, WITHIN, Way};
use crate::client::Client;
use crate::cluster::{Cluster, Server};
use crate::load::{Load, Subject};
use crate::programs::Minor;
use crate::relay::Relay;
use crate::tally::{Failures, Tally};

/// A running upgrade.
pub(super) struct Upgrade<'a> {
    pub(super) cluster: &'a mut Cluster,
    admin: Client,
    before: Before,
    /// The prefix of created names.
    name: String,
    pub(super) since: Instant,
    /// The addresses of clients.
    pub(super) addresses: Vec<SocketAddr>,
    _relay: Relay,
    /// The namespace controller, at the second address.
    controller: Process,
    pub(super) rolled: Rolled,
}

impl<'a> Upgrade<'a> {
    pub(super) async fn prepare(
        cluster: &'a mut Cluster,
        before: Before,
        way: Way,
    ) -> anyhow::Result<Upgrade<'a>> {
        if before == Before::FoundGateways {
            membership::allow(cluster).await?;
        }
        all_of_1_34(cluster).await?;
        cluster.list_members(before != Before::FoundGateways);
        cluster.heal().await?;
        let directly: Vec<_> = cluster.servers.iter().map(|server| server.direct()).collect();
        let gateways: Vec<_> = cluster.servers.iter().map(|server| server.through()).collect();
        let behind = if before == Before::LoadBalancer { &directly } else { &gateways };
        let mut relay = Relay::start(cluster.spare_address(), behind).await?;
        if before == Before::FoundGateways {
            let asked = |server: &Server| (server.through(), server.gateway_admin());
            relay.ask_whether_ready(cluster.servers.iter().map(asked).collect());
        }
        let addresses = match before {
            Before::LoadBalancer | Before::FoundGateways => vec![relay.address(); behind.len()],
            Before::Gateways | Before::RestartedGateways => gateways,
        };
        let name = format!("{before:?}-{way:?}").to_lowercase();
        let second = *addresses.get(1).context("no second address")?;
        let controller = cluster.controller("namespace-controller", &name, second)?;
        let since = Instant::now();
        let rolled = Rolled {
            restarts: 0,
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
        let _relay = relay;
        Ok(Upgrade { cluster, admin, before, name, since, addresses, _relay, controller, rolled })
    }

    pub(super) async fn load_of_config_maps(
        &self,
        name: &str,
        client: &Client,
    ) -> anyhow::Result<Load> {
        let namespace = format!("{}-{name}", self.name);
        self.cluster.namespace(&namespace).await?;
        let subject = Subject::config_maps(&namespace);
        Ok(Load::start_of(subject, PACE, self.since, client, &self.addresses))
    }

    pub(super) fn load_of_newer(&self, client: &Client) -> Load {
        self.load_of(objects::mutating_policy(""), "newer", client)
    }

    pub(super) fn load_of_older(&self, direction: &str, client: &Client) -> Load {
        self.load_of(objects::old_volume_class(""), &format!("older-{direction}"), client)
    }

    fn load_of(&self, kind: objects::Kind, tag: &str, client: &Client) -> Load {
        let tag = format!("{}-{tag}", self.name);
        let subject = Subject { collection: kind.collection, object: kind.object, tag };
        Load::start_of(subject, SLOW_PACE, self.since, client, &self.addresses)
    }

    /// Ends a load and compares it with the objects of a capable server.
    pub(super) async fn end(&mut self, what: &str, load: Load, at: &str) -> anyhow::Result<()> {
        let at = self.cluster.server(at)?.direct();
        let outcome = load.finish(&self.admin, at).await.with_context(|| what.to_owned())?;
        self.rolled.add(what, outcome);
        Ok(())
    }

    /// Replaces one server by another release, and deletes a namespace meanwhile. Returns the
    /// moment from which the cluster has served the APIs of that release.
    pub(super) async fn step(&mut self, name: &str, minor: Minor) -> anyhow::Result<Instant> {
        let started = self.since.elapsed().as_secs_f64();
        let doomed = Doomed::make(self.cluster, &self.admin, &self.name, name, minor).await?;
        let index = self.cluster.index(name)?;
        let restarts = matches!(self.before, Before::RestartedGateways | Before::FoundGateways);
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
            Minor::V1_36 => objects::mutating_policy("").collection,
            _ => objects::old_volume_class("").collection,
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
        // A server is a member again once its gateway is up; a listed one always is.
        let found = self.before == Before::FoundGateways;
        let served = if found { Instant::now() } else { served };
        self.cluster.agreed().await?;
        let back = self.since.elapsed().as_secs_f64();
        eprintln!("      {name} to {minor:?}: left at {started:.0} s, well at {back:.0} s");
        self.controller.check()?;
        doomed.count(self.cluster, &self.admin, &mut self.rolled.namespaces).await?;
        self.rolled.restarts += 1;
        Ok(served)
    }

    /// Waits until an API that nobody serves is 404 at every address.
    pub(super) async fn all_say_404(&self, path: &str) -> anyhow::Result<()> {
        for to in &self.addresses {
            until(&format!("404 at {to}"), Duration::from_secs(30), async || {
                self.admin.get(*to, path).await?.expect(404).map(Some)
            })
            .await?;
        }
        Ok(())
    }
}

/// Replaces servers of another release. Nothing uses them: the next start is that of the cluster.
pub(super) async fn all_of_1_34(cluster: &mut Cluster) -> anyhow::Result<()> {
    for server in &mut cluster.servers {
        if server.spec.minor != Minor::V1_34 {
            server.leave_within(Duration::ZERO, Minor::V1_34).await?;
        }
    }
    Ok(())
}

/// A namespace that is deleted while a server is away.
struct Doomed {
    path: String,
    /// An object of an API that only 1.36 serves, if such a server stays.
    workloads: String,
    /// The newest server that stays.
    at: SocketAddr,
    has_workload: bool,
}

impl Doomed {
    async fn make(
        cluster: &Cluster,
        admin: &Client,
        upgrade: &str,
        leaves: &str,
        minor: Minor,
    ) -> anyhow::Result<Doomed> {
        let name = format!("{upgrade}-{leaves}-{minor:?}").to_lowercase().replace('_', "-");
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
