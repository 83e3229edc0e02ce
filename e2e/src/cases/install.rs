//! What `mvp manifests` prints, given to the programs that read it: all fields exist, and a real
//! kube-apiserver and a real kubeadm accept it.

use anyhow::{Context, ensure};
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::programs::Minor;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "install/manifests",
            manifests,
            "a server accepts what mvp manifests prints, in a dry run with strict validation"
        ),
        case!(
            Mixed,
            "install/kubeadm",
            kubeadm,
            "kubeadm config validate accepts what mvp manifests kubeadm prints, in both forms"
        ),
    ]
}

/// The kinds that are objects of the API, and how many objects each has.
const KINDS: [(&str, usize); 6] = [
    ("daemonset", 11),
    ("rbac", 9),
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
        let text = printed(cluster, &[kind]).await?;
        let said = kubectl.run(apply, Some(&text)).await.with_context(|| kind.to_owned())?;
        let lines = said.lines().filter(|line| line.ends_with("(server dry run)")).count();
        ensure!(lines == count, "{kind}: {lines} objects instead of {count}\n{said}");
        accepted += lines;
    }
    // The check finds a field that does not exist.
    let wrong = printed(cluster, &["daemonset"]).await?.replace("maxSurge:", "maxSurges:");
    let refused = kubectl.try_run(&apply, Some(&wrong)).await?;
    ensure!(!refused.ok && refused.errors.contains("maxSurges"), "accepted: {refused:?}");
    Ok(format!("{accepted} objects of {} kinds accepted", KINDS.len()))
}

async fn kubeadm(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut accepted = 0;
    for proxy in ["mvp", "kubernetes"] {
        for version in ["v1beta3", "v1beta4"] {
            let flags = [format!("--for={proxy}"), format!("--api-version={version}")];
            let text = printed(cluster, &["kubeadm", &flags[0], &flags[1]]).await?;
            // Without a version kubeadm asks the internet for the newest.
            let release = cluster.programs.version(Minor::V1_36);
            let text = format!("{text}kubernetesVersion: {release}\n");
            let (ok, said) = validated(cluster, &text).await?;
            ensure!(ok, "{proxy} {version}: {said}");
            accepted += 1;
            // The check finds a field that does not exist.
            let wrong = text.replace("extraArgs:", "extraArguments:");
            let (ok, said) = validated(cluster, &wrong).await?;
            ensure!(!ok && said.contains("extraArguments"), "{proxy} {version}: {said}");
        }
    }
    Ok(format!("{accepted} configurations accepted, each with a wrong field refused"))
}

/// Whether kubeadm accepts a configuration, and what it says.
async fn validated(cluster: &Cluster, text: &str) -> anyhow::Result<(bool, String)> {
    let file = cluster.folder().join("kubeadm.yaml");
    std::fs::write(&file, text)?;
    let mut command = Command::new(cluster.programs.kubeadm());
    command.args(["config", "validate", "--config"]).arg(&file);
    let output = command.output().await.context("cannot run kubeadm")?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

async fn printed(cluster: &Cluster, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(&cluster.programs.mvp);
    let output = command.arg("manifests").args(words).output().await?;
    ensure!(output.status.success(), "mvp manifests {words:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}
