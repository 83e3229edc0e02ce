//! A gateway before all servers: clients have one address for the whole control plane.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::kubernetes::gateway_flags;
use testkit::process::{Process, Program, Signal, until};

use super::{membership, objects};
use crate::client::plain;
use crate::cluster::Cluster;
use crate::load::Load;
use crate::programs::Minor;
use crate::relay::Relay;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "before/rolling",
            rolling,
            "one gateway before three servers: restarts and an upgrade under load"
        ),
        case!(
            Cable,
            "before/endpoints",
            endpoints,
            "one gateway before servers that it finds by EndpointSlices"
        ),
    ]
}

/// The environment variables by which pods find a server.
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const STARTUP: Duration = Duration::from_secs(120);

/// A gateway without a local server.
pub(super) struct Gateway {
    pub(super) through: SocketAddr,
    admin: SocketAddr,
    process: Process,
}

impl Gateway {
    /// Starts a gateway on that port, with these variables and flags.
    pub(super) fn start(
        cluster: &Cluster,
        port: u16,
        variables: &[String],
        flags: &[String],
    ) -> anyhow::Result<Gateway> {
        // An address in the server certificate.
        let ip = cluster.spare_address();
        let (through, admin) = (SocketAddr::new(ip, port), SocketAddr::new(ip, port + 1));
        let mut arguments = variables.to_vec();
        arguments.extend([
            cluster.programs.mvp.display().to_string(),
            "serve".to_owned(),
            format!("--bind-address={ip}"),
            format!("--secure-port={port}"),
            format!("--admin-bind-address={admin}"),
            "--workers=1".to_owned(),
        ]);
        arguments.extend(gateway_flags(cluster.pki.files()));
        arguments.extend_from_slice(flags);
        let log = cluster.folder().join(format!("before-{port}.mvp.log"));
        let process =
            Program::new("before", Path::new("env")).with_host_name().start(&log, arguments)?;
        Ok(Gateway { through, admin, process })
    }

    pub(super) async fn ready(&mut self) -> anyhow::Result<()> {
        until("the gateway before all is ready", STARTUP, async || {
            self.process.check()?;
            let answer = plain(self.admin, "/readyz").await?;
            ensure!(answer.status.is_success(), "{answer}");
            Ok(Some(()))
        })
        .await
    }

    /// The addresses of its members, and whether they are present.
    async fn members(&self) -> anyhow::Result<BTreeMap<String, bool>> {
        let snapshot = plain(self.admin, "/debug/snapshot").await?.json();
        let members = snapshot.get("members").and_then(Value::as_array).context("no members")?;
        let place = |member: &Value| {
            let address = member.get("address").and_then(Value::as_str).unwrap_or_default();
            (address.to_owned(), member.get("present").is_some_and(|present| present == true))
        };
        Ok(members.iter().map(place).collect())
    }

    /// Waits until its members are these.
    async fn until(&mut self, expected: &BTreeMap<String, bool>) -> anyhow::Result<()> {
        until(&format!("its members are {expected:?}"), STARTUP, async || {
            self.process.check()?;
            let members = self.members().await?;
            ensure!(members == *expected, "{members:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Every API works, whichever server lacks it.
    async fn serves_all(&self, cluster: &Cluster) -> anyhow::Result<()> {
        for kind in [
            objects::job("default", "x"),
            objects::autoscaler("default", "x"),
            objects::disruption_budget("default", "x"),
        ] {
            let answer = cluster.admin.get(self.through, &kind.collection).await?;
            answer.expect(200).context(kind.name)?;
        }
        Ok(())
    }
}

/// Servers found by their EndpointSlices: through a named one, or through the pod environment.
async fn endpoints(cluster: &mut Cluster) -> anyhow::Result<String> {
    membership::keep_endpoints(cluster).await?;
    let addresses: Vec<_> = cluster.servers.iter().map(|server| server.direct()).collect();
    let all: BTreeMap<String, bool> =
        addresses.iter().map(|address| (address.to_string(), true)).collect();
    let finds = "--membership=endpoints".to_owned();

    let named = format!("--servers=https://{}", addresses.first().context("no server")?);
    let mut by_one = Gateway::start(cluster, 17543, &[], &[named, finds.clone()])?;
    by_one.ready().await?;
    by_one.until(&all).await?;
    by_one.serves_all(cluster).await?;
    by_one.process.kill();

    // Like the Service on a node: each connection goes to any server that accepts it.
    let service = Relay::start(cluster.spare_address(), &addresses).await?;
    let variables = [
        format!("{HOST}={}", service.address().ip()),
        format!("KUBERNETES_SERVICE_PORT={}", service.address().port()),
    ];
    let mut by_service = Gateway::start(cluster, 17643, &variables, std::slice::from_ref(&finds))?;
    by_service.ready().await?;
    by_service.until(&all).await?;
    by_service.serves_all(cluster).await?;

    // A stopped server is removed by the others, and is back after its restart.
    let stopped = cluster.server("b")?.direct().to_string();
    let without: BTreeMap<String, bool> =
        all.keys().map(|address| (address.clone(), *address != stopped)).collect();
    let (admin, job) = (cluster.admin.clone(), objects::job("default", "x"));
    let (begun, mut reads, mut gone) = (Instant::now(), 0, None);
    cluster.server_mut("b")?.process()?.signal(Signal::TERM)?;
    // kube-apiserver waits a minute for watches to end; a kubelet does not wait that long.
    while gone.is_none() || begun.elapsed() < Duration::from_secs(10) {
        admin.get(by_service.through, &job.collection).await?.expect(200).context("a read")?;
        reads += 1;
        let members = by_service.members().await?;
        if gone.is_none() && members == without {
            gone = Some(begun.elapsed());
        }
        ensure!(begun.elapsed() < STARTUP, "{members:?}");
    }
    cluster.server_mut("b")?.process()?.kill();
    let gone = gone.unwrap_or_default();
    cluster.start_server(cluster.index("b")?)?;
    cluster.server_mut("b")?.ready(&admin, STARTUP).await?;
    let begun = Instant::now();
    by_service.until(&all).await?;
    by_service.serves_all(cluster).await?;
    let back = begun.elapsed();

    // Without the variables, no server can be found.
    let mut lost = Gateway::start(cluster, 17743, &["-u".to_owned(), HOST.to_owned()], &[finds])?;
    let status = lost.process.exited(Duration::from_secs(10)).await?;
    let said = std::fs::read_to_string(lost.process.log())?;
    ensure!(status.code() == Some(2) && said.contains("--servers: missing"), "{status}: {said}");
    Ok(format!(
        "three servers found through a named one and the pod environment; a stop noticed after {:.1} \
         s, {reads} reads meanwhile all 200; back {:.1} s after it is ready",
        gone.as_secs_f64(),
        back.as_secs_f64()
    ))
}

async fn rolling(cluster: &mut Cluster) -> anyhow::Result<String> {
    let servers: Vec<String> =
        cluster.servers.iter().map(|server| format!("https://{}", server.direct())).collect();
    let flags = [format!("--servers={}", servers.join(","))];
    let mut gateway = Gateway::start(cluster, 17443, &[], &flags)?;
    gateway.ready().await?;
    gateway.serves_all(cluster).await?;
    let through = gateway.through;
    cluster.namespace("before").await?;
    let client = cluster.admin.clone();
    let load = Load::start(&client, &[through], "before");
    tokio::time::sleep(Duration::from_secs(2)).await;
    for name in ["b", "a", "c"] {
        let server = cluster.server_mut(name)?;
        let before = server.spec.minor;
        server.process()?.signal(Signal::TERM)?;
        // It waits a minute for watches to end; a kubelet does not wait so long.
        let _ = server.process()?.exited(Duration::from_secs(10)).await;
        server.process()?.kill();
        server.spec.minor = Minor::V1_36;
        let index = cluster.index(name)?;
        cluster.start_server(index)?;
        let server = cluster.server_mut(name)?;
        server.ready(&client, STARTUP).await?;
        // The next start is of the version that other cases expect.
        server.spec.minor = before;
        gateway.serves_all(cluster).await.with_context(|| format!("after {name}"))?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let at = cluster.server("a")?.direct();
    let outcome = load.end(&client, at).await?;
    cluster.server_mut("b")?.process()?.kill();
    ensure!(outcome.reads.of("404") + outcome.writes.of("404") == 0, "a false 404");
    outcome.reads.all_well_but_cut_off(3).context("reads")?;
    outcome.writes.only(&["201", "503", Tally::CUT_OFF]).context("writes")?;
    let refused = outcome.writes.of("503") + outcome.writes.of(Tally::CUT_OFF);
    ensure!(refused <= 3, "{refused} writes were refused: {}", outcome.writes);
    Ok(format!(
        "three restarts, one from 1.34 to 1.36: reads {}, writes {}, {} lists and {} watches; \
         no write lost or doubled, no event missed",
        outcome.reads, outcome.writes, outcome.lists, outcome.watches
    ))
}
