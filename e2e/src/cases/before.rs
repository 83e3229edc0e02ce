//! A gateway before all servers: clients have one address for the whole control plane.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::Signal;

use super::objects;
use crate::client::plain;
use crate::cluster::Cluster;
use crate::load::Load;
use crate::process::{Process, until};
use crate::programs::Minor;
use crate::tally::Tally;

const STARTUP: Duration = Duration::from_secs(120);

/// A gateway with no server of its own.
fn start(cluster: &Cluster, at: SocketAddr, admin: SocketAddr) -> anyhow::Result<Process> {
    let servers: Vec<String> =
        cluster.servers.iter().map(|server| format!("https://{}", server.direct())).collect();
    let (pki, serving, proxy) = (&cluster.pki, cluster.pki.server(), cluster.pki.front_proxy());
    let arguments = [
        "serve".to_owned(),
        format!("--bind-address={}", at.ip()),
        format!("--secure-port={}", at.port()),
        format!("--admin-bind-address={admin}"),
        format!("--servers={}", servers.join(",")),
        format!("--tls-cert-file={}", serving.certificate.display()),
        format!("--tls-private-key-file={}", serving.key.display()),
        format!("--client-ca-file={}", pki.ca().display()),
        format!("--peer-ca-file={}", pki.ca().display()),
        format!("--requestheader-client-ca-file={}", pki.front_proxy_ca().display()),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        format!("--proxy-client-cert-file={}", proxy.certificate.display()),
        format!("--proxy-client-key-file={}", proxy.key.display()),
        "--workers=1".to_owned(),
    ];
    let log = cluster.folder().join("before.mvp.log");
    Process::start("before", &log, &cluster.programs.mvp, arguments)
}

pub(super) async fn rolling(cluster: &mut Cluster) -> anyhow::Result<String> {
    // An address of the first server's, which is in the certificate.
    let ip = cluster.server("a")?.through().ip();
    let (through, admin) = (SocketAddr::new(ip, 17443), SocketAddr::new(ip, 17480));
    let mut gateway = start(cluster, through, admin)?;
    until("the gateway before all is ready", STARTUP, async || {
        gateway.check()?;
        let answer = plain(admin, "/readyz").await?;
        ensure!(answer.status.is_success(), "{answer}");
        Ok(Some(()))
    })
    .await?;
    // Whichever server lacks it, another has it.
    let kinds = || {
        [
            objects::job("default", "x"),
            objects::autoscaler("default", "x"),
            objects::disruption_budget("default", "x"),
        ]
    };
    for kind in kinds() {
        cluster.admin.get(through, &kind.collection).await?.expect(200).context(kind.name)?;
    }
    cluster.namespace("before").await?;
    let client = cluster.admin.clone();
    let load = Load::start(&client, &[through], "before");
    tokio::time::sleep(Duration::from_secs(2)).await;
    for name in ["b", "a", "c"] {
        let server = cluster.server_mut(name)?;
        let before = server.spec.minor;
        server.process()?.signal(Signal::TERM)?;
        // It waits a minute for watches to end; a kubelet does not wait so long.
        let _ = server.process()?.ended(Duration::from_secs(10)).await;
        server.process()?.kill();
        server.spec.minor = Minor::V1_36;
        let index = cluster.index(name)?;
        cluster.start_server(index)?;
        let server = cluster.server_mut(name)?;
        server.ready(&client, STARTUP).await?;
        // The next start is of the version that other cases expect.
        server.spec.minor = before;
        for kind in kinds() {
            let answer = client.get(through, &kind.collection).await?;
            answer.expect(200).with_context(|| format!("{} after {name}", kind.name))?;
        }
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
         nothing lost, doubled or missed",
        outcome.reads, outcome.writes, outcome.lists, outcome.watches
    ))
}
