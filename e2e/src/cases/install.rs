//! What `mvp manifests` prints, given to a real kube-apiserver: all fields exist, and admission agrees.

use anyhow::{Context, ensure};
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "install/manifests",
        manifests,
        "a server accepts what mvp manifests prints, in a dry run with strict validation"
    )]
}

/// The kinds that are objects of the API, and how many objects each has.
const KINDS: [(&str, usize); 6] = [
    ("daemonset", 10),
    ("rbac", 8),
    ("static-pod", 1),
    ("node-local", 4),
    ("node-local-static-pod", 1),
    ("before", 4),
];

async fn manifests(cluster: &mut Cluster) -> anyhow::Result<String> {
    let kubectl = cluster.kubectl(cluster.server("a")?.direct())?;
    // Pods need it, and no controller runs here that makes it.
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: default\n  \
                   namespace: kube-system\n";
    kubectl.run(["apply", "-f", "-"], Some(account)).await?;
    let apply = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
    let mut accepted = 0;
    for (kind, count) in KINDS {
        let text = printed(cluster, kind).await?;
        let said = kubectl.run(apply, Some(&text)).await.with_context(|| kind.to_owned())?;
        let lines = said.lines().filter(|line| line.ends_with("(server dry run)")).count();
        ensure!(lines == count, "{kind}: {lines} objects instead of {count}\n{said}");
        accepted += lines;
    }
    // The check finds a field that does not exist.
    let wrong = printed(cluster, "daemonset").await?.replace("maxSurge:", "maxSurges:");
    let refused = kubectl.try_run(&apply, Some(&wrong)).await?;
    ensure!(!refused.ok && refused.errors.contains("maxSurges"), "accepted: {refused:?}");
    Ok(format!("{accepted} objects of {} kinds accepted", KINDS.len()))
}

async fn printed(cluster: &Cluster, kind: &str) -> anyhow::Result<String> {
    let output = Command::new(&cluster.programs.mvp).args(["manifests", kind]).output().await?;
    ensure!(output.status.success(), "mvp manifests {kind}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}
