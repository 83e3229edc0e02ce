//! Membership: gateways that find each other without a list of peers.

mod endpoints;
mod etcd;
mod flood;
mod forged;
mod leases;
mod removed;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::kubernetes::gateway_flags;
use testkit::process::{Process, Program, until};

use super::objects;
use crate::client::plain;
use crate::cluster::Cluster;
use crate::suite::Case;

pub(super) use endpoints::keep_endpoints;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    [
        leases::cases(),
        removed::cases(),
        forged::cases(),
        flood::cases(),
        etcd::cases(),
        endpoints::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The time limit of waits: usually seconds, longer on a busy machine.
const SOON: Duration = Duration::from_secs(60);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// A gateway of the case, beside a server of the cluster.
struct Finder {
    name: &'static str,
    through: SocketAddr,
    admin: SocketAddr,
    /// The socket for `mvp forget`.
    socket: PathBuf,
    process: Process,
}

impl Finder {
    /// Starts it on that port, with these flags.
    fn start(
        cluster: &Cluster,
        name: &'static str,
        port: u16,
        flags: &[String],
    ) -> anyhow::Result<Finder> {
        let through = SocketAddr::new(cluster.server(name)?.through().ip(), port);
        Finder::start_at(cluster, name, through, flags)
    }

    /// One beside each server.
    fn three(cluster: &Cluster, port: u16, flags: &[String]) -> anyhow::Result<[Finder; 3]> {
        let start = |name| Finder::start(cluster, name, port, flags);
        Ok([start("a")?, start("b")?, start("c")?])
    }

    /// The same at another address.
    fn start_at(
        cluster: &Cluster,
        name: &'static str,
        through: SocketAddr,
        flags: &[String],
    ) -> anyhow::Result<Finder> {
        let server = cluster.server(name)?;
        let port = through.port();
        let admin = SocketAddr::new(through.ip(), port + 1000);
        let socket = cluster.folder().join(format!("{name}-{port}.sock"));
        let mut arguments = vec![
            "serve".to_owned(),
            format!("--bind-address={}", through.ip()),
            format!("--secure-port={port}"),
            // All members are on this host.
            format!("--peer-advertise-ip={}", through.ip()),
            format!("--admin-bind-address={admin}"),
            format!("--admin-socket={}", socket.display()),
            format!("--local-server=https://{}", server.direct()),
            format!("--server-id=finder-{name}"),
            "--workers=1".to_owned(),
        ];
        arguments.extend(gateway_flags(cluster.pki.files()));
        arguments.extend_from_slice(flags);
        let log = cluster.folder().join(format!("finder-{name}.mvp.log"));
        let title = format!("finder-{name}");
        let process =
            Program::new(&title, &cluster.programs.mvp).with_host_name().start(&log, arguments)?;
        Ok(Finder { name, through, admin, socket, process })
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        until(&format!("the gateway of {} is ready", self.name), SOON, async || {
            self.process.check()?;
            let answer = plain(self.admin, "/readyz").await?;
            ensure!(answer.status.is_success(), "{answer}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until it is not ready for this reason.
    async fn fails(&mut self, why: &str) -> anyhow::Result<()> {
        until(&format!("{} says: {why}", self.name), SOON, async || {
            self.process.check()?;
            let said = plain(self.admin, "/readyz").await?;
            let said = String::from_utf8_lossy(&said.body).into_owned();
            ensure!(said.contains(&format!("[-]membership failed: {why}")), "{said}");
            Ok(Some(()))
        })
        .await?;
        let log = std::fs::read_to_string(self.process.log())?;
        let logged = log.lines().any(|line| line.contains(" WARN ") && line.contains(why));
        ensure!(logged, "{} does not log: {why}", self.name);
        Ok(())
    }

    /// Its view of a member; none for an unknown ID.
    async fn knows(&self, id: &str) -> anyhow::Result<Option<Value>> {
        let snapshot = plain(self.admin, "/debug/snapshot").await?.json();
        let members = snapshot.get("members").and_then(Value::as_array).context("no members")?;
        Ok(members.iter().find(|member| member.get("id") == Some(&json!(id))).cloned())
    }

    /// Waits until its view of a member satisfies a condition.
    async fn until(
        &self,
        what: &str,
        id: &str,
        is: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Duration> {
        let started = Instant::now();
        until(&format!("{} knows {id}: {what}", self.name), SOON, async || {
            let known = self.knows(id).await?.unwrap_or_default();
            ensure!(is(&known), "{known}");
            Ok(Some(()))
        })
        .await?;
        Ok(started.elapsed())
    }
}

fn is_present(member: &Value) -> bool {
    member.get("present") == Some(&json!(true)) && member.get("view") == Some(&json!("Fresh"))
}

fn has_left(member: &Value) -> bool {
    member.get("present") == Some(&json!(false))
}

/// Waits until the gateways know each other and serve the APIs of all servers.
async fn found(cluster: &Cluster, finders: &mut [Finder]) -> anyhow::Result<()> {
    for finder in finders.iter_mut() {
        finder.ready().await?;
    }
    for finder in finders.iter() {
        for other in finders.iter().filter(|other| other.name != finder.name) {
            finder.until("present", &format!("finder-{}", other.name), is_present).await?;
        }
    }
    for (finder, kind) in finders.iter().zip([
        objects::autoscaler("default", "x"),
        objects::job("default", "x"),
        objects::disruption_budget("default", "x"),
    ]) {
        let answer = cluster.admin.get(finder.through, &kind.collection).await?;
        answer.expect(200).with_context(|| format!("{} through {}", kind.name, finder.name))?;
    }
    Ok(())
}

fn rbac() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac.yaml").display().to_string()
}

/// Grants gateways the access to Leases.
pub(super) async fn allow(cluster: &Cluster) -> anyhow::Result<()> {
    let kubectl = cluster.kubectl(cluster.server("a")?.direct())?;
    kubectl.run(["apply", "-f", &rbac()], None).await.map(drop)
}
