//! What happens to the servers in each round: upgrades and downgrades, restarts, kills, a hang, and
//! new certificates. The gateways of `a` and `b` run all the time. Entry item: [`Churn::round`].

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::process::{Signal, until};
use tokio::time::sleep;

use super::figures::Sampler;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::programs::Minor;

pub(super) struct Churn<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) sampler: &'a Sampler,
    pub(super) counts: Counts,
}

/// What happened so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) rounds: usize,
    pub(super) upgrades: usize,
    pub(super) kills: usize,
    pub(super) hangs: usize,
    pub(super) rotations: usize,
}

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
const WITHIN: Duration = Duration::from_secs(120);
/// The pause after a step, in which watches return to their servers.
const CALM: Duration = Duration::from_secs(5);

impl Churn<'_> {
    /// One round, about a minute.
    pub(super) async fn round(&mut self) -> anyhow::Result<()> {
        let (b, c) = match self.counts.rounds.is_multiple_of(2) {
            true => (Minor::V1_36, Minor::V1_34),
            false => (Minor::V1_34, Minor::V1_36),
        };
        self.counts.rounds += 1;
        self.replace("b", b).await.context("the kube-apiserver of b")?;
        sleep(CALM).await;
        self.node("c", c).await.context("the node c")?;
        sleep(CALM).await;
        self.rotate().await.context("new certificates")?;
        self.kill_server("a").await.context("the kube-apiserver of a")?;
        sleep(CALM).await;
        self.hang("b").await?;
        sleep(CALM).await;
        self.kill_gateway("c").await.context("the gateway of c")?;
        self.cluster.agreed().await?;
        // What is left of the round once all watches are back.
        sleep(3 * CALM).await;
        Ok(())
    }

    /// Tells the sampler which processes the gateways are.
    pub(super) fn follow(&mut self) -> anyhow::Result<()> {
        for server in &mut self.cluster.servers {
            let (name, process) = (server.name(), server.gateway()?.id());
            self.sampler.follow(name, process);
        }
        Ok(())
    }

    /// Replaces a kube-apiserver by another release.
    async fn replace(&mut self, name: &str, minor: Minor) -> anyhow::Result<()> {
        self.counts.upgrades += 1;
        self.cluster.server_mut(name)?.leave_within(GRACE, minor).await?;
        self.return_of(name).await
    }

    /// The same, with its gateway.
    async fn node(&mut self, name: &str, minor: Minor) -> anyhow::Result<()> {
        self.counts.upgrades += 1;
        let server = self.cluster.server_mut(name)?;
        server.gateway()?.signal(Signal::TERM)?;
        server.leave_within(GRACE, minor).await?;
        server.gateway_ended().await?;
        self.return_of(name).await
    }

    async fn kill_server(&mut self, name: &str) -> anyhow::Result<()> {
        self.counts.kills += 1;
        self.cluster.server_mut(name)?.process()?.kill();
        self.return_of(name).await
    }

    async fn kill_gateway(&mut self, name: &str) -> anyhow::Result<()> {
        self.counts.kills += 1;
        self.cluster.server_mut(name)?.gateway()?.kill();
        self.return_of(name).await
    }

    /// Longer than a gateway takes to notice.
    async fn hang(&mut self, name: &str) -> anyhow::Result<()> {
        self.counts.hangs += 1;
        let server = self.cluster.server_mut(name)?;
        server.process()?.signal(Signal::STOP)?;
        sleep(Duration::from_secs(4)).await;
        server.process()?.signal(Signal::CONT)
    }

    /// Starts what has ended, and waits until it is ready.
    async fn return_of(&mut self, name: &str) -> anyhow::Result<()> {
        let admin = self.cluster.admin.clone();
        let index = self.cluster.index(name)?;
        self.cluster.start_server(index)?;
        self.cluster.start_gateway(index)?;
        let server = self.cluster.server_mut(name)?;
        server.ready(&admin, WITHIN).await?;
        server.gateway_ready(WITHIN).await?;
        self.follow()
    }

    /// Renews the certificates of servers and front proxies, and waits until all gateways present
    /// the new one.
    async fn rotate(&mut self) -> anyhow::Result<()> {
        self.counts.rotations += 1;
        let admin = self.cluster.admin.clone();
        let gateways: Vec<SocketAddr> =
            self.cluster.servers.iter().map(|server| server.through()).collect();
        let mut before = Vec::new();
        for to in &gateways {
            before.push(presented(&admin, *to).await?);
        }
        self.cluster.pki.issue_server_certificates()?;
        for (to, before) in gateways.iter().zip(before) {
            until(&format!("a new certificate at {to}"), WITHIN, async || {
                Ok((presented(&admin, *to).await? != before).then_some(()))
            })
            .await?;
        }
        Ok(())
    }
}

/// The certificate that a server presents.
async fn presented(client: &Client, to: SocketAddr) -> anyhow::Result<Vec<u8>> {
    let stream = client.handshake(to, b"http/1.1").await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    ensure!(!chain.is_empty(), "no certificate of {to}");
    chain.first().map(|certificate| certificate.to_vec()).context("no certificate")
}
