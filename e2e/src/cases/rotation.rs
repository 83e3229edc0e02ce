//! Every certificate and CA of the cluster is replaced under load.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::pki::PairFiles;
use testkit::process::until;

use super::objects;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::load::{Load, Outcome};
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "rotation/whole-cluster",
        whole_cluster,
        "every certificate and CA of the cluster is replaced under load"
    )]
}

/// kube-apiserver reloads its files at once or after a minute.
const TAKES: Duration = Duration::from_secs(100);

async fn whole_cluster(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("rotation-old").await?;
    cluster.namespace("rotation-new").await?;
    let started = Instant::now();
    let through: Vec<SocketAddr> = cluster.servers.iter().map(|server| server.through()).collect();
    let all: Vec<SocketAddr> =
        cluster.servers.iter().flat_map(|server| [server.through(), server.direct()]).collect();
    let old_front_proxy =
        copy(&cluster.pki.files().front_proxy(), cluster.folder(), "old-front-proxy")?;

    // Both CAs are trusted. Users have certificates of the old one.
    let old_user = cluster.pki.user("rotated", &["system:masters"])?;
    let old_user = copy(&old_user, cluster.folder(), "old-user")?;
    cluster.pki.replace_cas()?;
    let ca = cluster.pki.files().ca();
    let of_old = Client::with_certificate(&ca, &old_user)?;
    let load = Load::start(&of_old, &through, "rotation-old");
    let new_user = cluster.pki.user("admin", &["system:masters"])?;
    let of_new = Client::with_certificate(&ca, &new_user)?;
    answers(&of_new, &all, 200).await.context("the new authority of users")?;
    let new_speaker =
        Client::with_certificate(&ca, &cluster.pki.front_proxy_client("front-proxy-client-next")?)?;
    ensure!(new_speaker.get(*through.first().context("no server")?, "/api").await?.status == 401);

    // Servers present new certificates, to clients and to each other.
    cluster.pki.issue_server_certificates()?;
    let present = Client::with_certificate(&cluster.pki.current_ca()?, &new_user)?;
    answers(&present, &all, 200).await.context("new certificates of servers")?;
    let new_front_proxy = speaking(&ca, &cluster.pki.files().front_proxy())?;
    answers(&new_front_proxy, &all, 200).await.context("the new authority of front proxies")?;
    let at = cluster.server("a")?.direct();
    let first = check(load.end(&of_new, at).await?)?;

    // The old CAs are removed. Users have certificates of the new one.
    let load = Load::start(&of_new, &through, "rotation-new");
    cluster.pki.trust_only_current_cas()?;
    answers(&of_old, &all, 401).await.context("certificates of the old authority")?;
    let old_front_proxy = speaking(&ca, &old_front_proxy)?;
    answers(&old_front_proxy, &all, 401).await.context("front proxies of the old authority")?;
    // Over the hop, too.
    let jobs = objects::job("default", "").collection;
    let hop = cluster.server("b")?.through();
    present.get(hop, &jobs).await?.expect(200).context("over the hop")?;
    let second = check(load.end(&present, at).await?)?;
    cluster.admin = present;
    let took = started.elapsed().as_secs_f64();
    Ok(format!("all certificates and CAs in {took:.0} s: {first}; {second}"))
}

/// Nothing may fail.
fn check(outcome: Outcome) -> anyhow::Result<String> {
    outcome.reads.only(&["200"]).context("reads")?;
    outcome.writes.only(&["201"]).context("writes")?;
    Ok(format!("reads {}, writes {}", outcome.reads, outcome.writes))
}

/// Waits until every address returns that status.
async fn answers(client: &Client, all: &[SocketAddr], status: u16) -> anyhow::Result<()> {
    for to in all {
        until(&format!("{to} answers {status}"), TAKES, async || {
            client.get(*to, "/api/v1/namespaces/default").await?.expect(status).map(Some)
        })
        .await?;
    }
    Ok(())
}

/// A client that acts for an administrator through front proxy headers.
fn speaking(ca: &Path, pair: &PairFiles) -> anyhow::Result<Client> {
    Client::with_certificate(ca, pair)?
        .with_header("x-remote-user", "admin")?
        .with_header("x-remote-group", "system:masters")
}

/// Copies a pair that will be replaced.
fn copy(pair: &PairFiles, folder: &Path, name: &str) -> anyhow::Result<PairFiles> {
    let kept = PairFiles {
        certificate: folder.join(format!("{name}.crt")),
        key: folder.join(format!("{name}.key")),
    };
    std::fs::copy(&pair.certificate, &kept.certificate)?;
    std::fs::copy(&pair.key, &kept.key)?;
    Ok(kept)
}
