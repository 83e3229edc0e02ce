//! A real kubeadm cluster of three control plane nodes: `mvp` is installed with one command, the
//! cluster is upgraded under load with `kubeadm upgrade`, and `mvp` is removed again. The same
//! upgrade without `mvp`, for comparison. Entry items: [`with_mvp`] and [`without_mvp`].

mod installed;
mod measured;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::kubeadm::Lab;
use crate::programs::Minor;
use crate::suite::Case;
use installed::Installed;
use measured::Measured;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            full Kubeadm,
            "kubeadm/upgrade",
            with_mvp,
            "kubectl apply of mvp, kubeadm upgrade of three nodes under load, kubectl delete"
        ),
        case!(
            full Kubeadm,
            "kubeadm/without-mvp",
            without_mvp,
            "comparison: the same kubeadm upgrade without mvp"
        ),
    ]
}

/// The upgrade. By default, 1.36 serves an API that 1.35 does not; 1.35 serves none that 1.34 does
/// not.
const FROM: Minor = Minor::V1_35;
const TO: Minor = Minor::V1_36;

/// The time limit of a case.
const LIMIT: Duration = Duration::from_secs(25 * 60);

async fn with_mvp(cluster: &mut Cluster) -> anyhow::Result<String> {
    let run = async {
        let image = installed::image()?;
        let (lab, up) = lab(cluster, "with-mvp", Some(&image)).await?;
        let mut installed = Installed::apply(&lab).await?;
        let adopted = installed.adopt().await?;
        let stopped = installed.stop_on_a_node().await?;
        let measured = Measured::upgrade(&lab, TO, |node| installed.note_manifests(node)).await?;
        measured.kept_its_promises()?;
        let survived = installed.survived().await?;
        installed.delete().await?;
        let figures = measured.figures();
        Ok(format!("{up}; {adopted}; {stopped}; {figures}; {survived}; removed without a trace"))
    };
    timeout(LIMIT, run).await.context("the case took too long")?
}

async fn without_mvp(cluster: &mut Cluster) -> anyhow::Result<String> {
    let run = async {
        let (lab, up) = lab(cluster, "without-mvp", None).await?;
        let measured = Measured::upgrade(&lab, TO, |_| Ok(())).await?;
        let figures = measured.figures();
        ensure!(measured.false_404s() > 0, "no harm was done: {figures}");
        Ok(format!("{up}; {figures}"))
    };
    timeout(LIMIT, run).await.context("the case took too long")?
}

async fn lab(cluster: &Cluster, name: &str, mvp: Option<&str>) -> anyhow::Result<(Lab, String)> {
    let started = Instant::now();
    let folder = cluster.folder().join(name);
    let lab = Lab::start(&cluster.programs, &[FROM, TO], mvp, &folder).await?;
    let up = format!("three nodes in {:.0} s", started.elapsed().as_secs_f64());
    eprintln!("      {up}");
    Ok((lab, up))
}
