//! A server without an advertised address. The APIs that StorageVersions record for it are not 404
//! through another gateway.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::{Process, Signal, until};
use tokio::process::Command;

use super::objects;
use crate::client::{Answer, Client, plain};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Recorded,
        "membership/storage-versions",
        storage_versions,
        "an API that StorageVersions record for an unreachable server is 503, not 404"
    )]
}

const SOON: Duration = Duration::from_secs(60);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const RECORDS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const VERSION: &str = "/apis/scheduling.k8s.io/v1alpha2";
const NOWHERE: &str = "/apis/example.org/v1/nothings";

/// A gateway beside `a` finds members by Leases. `b` has a Lease without an address.
async fn storage_versions(cluster: &mut Cluster) -> anyhow::Result<String> {
    let (a, b) = (cluster.server("a")?.direct(), cluster.server("b")?.direct());
    let gateway = Recorded {
        admin: cluster.admin.clone(),
        workloads: objects::workload("default", "x").collection,
        groups: format!("{VERSION}/namespaces/default/podgroups"),
        stranger: identity(cluster, "b").await?,
        through: SocketAddr::new(a.ip(), 7443),
        inside: SocketAddr::new(a.ip(), 7480),
    };
    for path in [&gateway.workloads, &gateway.groups] {
        gateway.admin.get(b, path).await?.expect(200)?;
        let status = gateway.admin.get(a, path).await?.status;
        ensure!(status == 404, "{path}: the old server serves it too");
    }
    let _process = gateway.start(cluster).await?;
    let known_after = gateway.refuses_recorded(cluster).await?;
    let requests = gateway.refuses_during_restart(cluster).await?;

    // A deleted record no longer counts; the others do.
    gateway
        .admin
        .delete(a, &format!("{RECORDS}/scheduling.k8s.io.podgroups"))
        .await?
        .expect(200)?;
    let deleted_after = gateway.becomes_404(&gateway.groups, "a deleted record").await?;
    gateway.is_refused(&gateway.workloads).await?;

    gateway.forgets(cluster).await?;
    gateway.admin.get(a, &format!("{RECORDS}/scheduling.k8s.io.workloads")).await?.expect(200)?;
    Ok(format!(
        "404 from 1.34, 503 through its gateway, for an API of a 1.36 without an address; {:.1} s \
         after the grant, {requests} requests during its restart; 404 {:.1} s after a record is \
         deleted, and once the server is forgotten",
        known_after.as_secs_f64(),
        deleted_after.as_secs_f64()
    ))
}

/// A gateway beside `a`, and the paths that only `b` serves.
struct Recorded {
    admin: Client,
    workloads: String,
    groups: String,
    /// The ID of `b`.
    stranger: String,
    through: SocketAddr,
    inside: SocketAddr,
}

impl Recorded {
    /// Starts the gateway. Without the right to list StorageVersions it logs that, and returns 404.
    async fn start(&self, cluster: &Cluster) -> anyhow::Result<Process> {
        let a = cluster.server("a")?.direct();
        let own = identity(cluster, "a").await?;
        let kubectl = cluster.kubectl(a)?;
        let rbac = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac.yaml");
        let apply = ["apply".to_owned(), "-f".to_owned(), rbac.display().to_string()];
        kubectl.run(&apply, None).await?;
        kubectl.run(["delete", "clusterrolebinding", "mixed-version-proxy"], None).await?;
        let (mut process, _) = cluster.another_gateway("a", |arguments| {
            arguments
                .retain(|flag| !flag.starts_with("--peer=") && !flag.starts_with("--server-id="));
            arguments.extend([
                "--membership=leases".to_owned(),
                format!("--server-id={own}"),
                format!("--peer-advertise-ip={}", a.ip()),
            ]);
        })?;
        let ready = async || {
            let answer = plain(self.inside, "/readyz").await?;
            ensure!(answer.status.is_success(), "{answer}");
            Ok(())
        };
        process.ready(SOON, ready).await?;
        until("the gateway logs the missing right", SOON, async || {
            let log = std::fs::read_to_string(process.log())?;
            Ok(log.contains("listing StorageVersions is forbidden").then_some(()))
        })
        .await?;
        let status = self.admin.get(self.through, &self.workloads).await?.status;
        ensure!(status == 404, "{status}, although nothing is known of the records");
        kubectl.run(&apply, None).await?;
        Ok(process)
    }

    /// Requests a path. An API that nobody serves is 404 at any time.
    async fn ask(&self, path: &str) -> anyhow::Result<Answer> {
        let nowhere = self.admin.get(self.through, NOWHERE).await?;
        ensure!(nowhere.status == 404, "{NOWHERE}: {nowhere}");
        self.admin.get(self.through, path).await
    }

    async fn is_refused(&self, path: &str) -> anyhow::Result<()> {
        is_refusal(&self.ask(path).await?, &self.stranger)
    }

    async fn becomes_404(&self, path: &str, what: &str) -> anyhow::Result<Duration> {
        let started = Instant::now();
        until(&format!("{what} blocks no 404"), SOON, async || {
            Ok((self.ask(path).await?.status == 404).then_some(()))
        })
        .await?;
        Ok(started.elapsed())
    }

    /// Recorded APIs are 503 once the records can be read. Returns how long that takes.
    async fn refuses_recorded(&self, cluster: &Cluster) -> anyhow::Result<Duration> {
        let started = Instant::now();
        until("recorded APIs are 503", SOON, async || {
            Ok((self.ask(&self.workloads).await?.status == 503).then_some(()))
        })
        .await?;
        let known_after = started.elapsed();
        for path in [&*self.workloads, &*self.groups, VERSION] {
            self.is_refused(path).await?;
        }
        self.ask("/api/v1/nodes").await?.expect(200)?;
        let beta = "/apis/scheduling.k8s.io/v1beta1/workloads";
        ensure!(self.ask(beta).await?.status == 404, "a version that nobody serves");
        // A gateway that has `b` as a peer forwards to it.
        let known = cluster.server("a")?.through();
        self.admin.get(known, &self.workloads).await?.expect(200)?;
        Ok(known_after)
    }

    /// The server restarts, as in an upgrade, and deletes its Lease meanwhile. Returns the number of
    /// requests, all of them 503.
    async fn refuses_during_restart(&self, cluster: &mut Cluster) -> anyhow::Result<usize> {
        let (mut requests, mut left) = (0, false);
        let server = cluster.server_mut("b")?.process()?;
        server.signal(Signal::TERM)?;
        let signalled = Instant::now();
        while server.check().is_ok() {
            ensure!(signalled.elapsed() < SOON, "the server does not exit");
            self.is_refused(&self.workloads).await?;
            requests += 1;
        }
        cluster.start_server(cluster.index("b")?)?;
        let (b, started) = (cluster.server("b")?.direct(), Instant::now());
        loop {
            ensure!(started.elapsed() < 2 * SOON, "the server does not return");
            self.is_refused(&self.workloads).await?;
            requests += 1;
            let present = member(self.inside, &self.stranger).await?.pointer("/present").cloned();
            left |= present == Some(json!(false));
            let ready = self.admin.get(b, "/readyz").await.is_ok_and(|answer| answer.status == 200);
            if ready && present == Some(json!(true)) {
                break;
            }
        }
        ensure!(left, "the Lease was never deleted: the case does not show what it should");
        Ok(requests)
    }

    /// The records of a dead server stay, and block no 404 once the server is forgotten.
    async fn forgets(&self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let a = cluster.server("a")?.direct();
        cluster.server_mut("b")?.kill();
        self.admin.delete(a, &format!("{LEASES}/{}", self.stranger)).await?.expect(200)?;
        until("the server has left", SOON, async || {
            let known = member(self.inside, &self.stranger).await?;
            Ok((known.pointer("/present") == Some(&json!(false))).then_some(()))
        })
        .await?;
        self.is_refused(&self.workloads).await?;
        let socket = format!("--admin-socket={}", cluster.another_socket().display());
        let forget = ["forget", &self.stranger, &socket];
        let output = Command::new(&cluster.programs.mvp).args(forget).output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.becomes_404(&self.workloads, "a forgotten server").await.map(drop)
    }
}

/// The ID of a server, by its Lease.
async fn identity(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let server = cluster.server(name)?;
    let list = format!("{LEASES}?labelSelector=kubernetes.io/hostname={name}");
    let leases = cluster.admin.get(server.direct(), &list).await?.expect(200)?;
    let id = leases.pointer("/items/0/metadata/name").and_then(Value::as_str);
    let address = "/items/0/metadata/annotations/kubernetes.io~1peer-advertise-address";
    ensure!(leases.pointer(address).is_none(), "{name} says where it is");
    Ok(id.with_context(|| format!("{name} has no Lease"))?.to_owned())
}

/// The gateway's view of a member.
async fn member(inside: SocketAddr, id: &str) -> anyhow::Result<Value> {
    let snapshot = plain(inside, "/debug/snapshot").await?.json();
    let members = snapshot.get("members").and_then(Value::as_array).context("no members")?;
    let known = members.iter().find(|member| member.get("id") == Some(&json!(id)));
    Ok(known.cloned().unwrap_or_default())
}

fn is_refusal(answer: &Answer, of: &str) -> anyhow::Result<()> {
    let status = answer.expect(503)?;
    let message = status.get("message").and_then(Value::as_str).unwrap_or_default();
    let named = message.contains("StorageVersion") && message.contains(of);
    ensure!(named, "another reason: {answer}");
    Ok(())
}
