//! A backend behind an APIService answers a write like a kube-apiserver that is shutting down: the
//! write must not be retried, as the backend has executed it.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::super::aggregated;
use crate::cluster::Cluster;
use crate::extension::{EXECUTED, SHUTTING_DOWN};
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "attacks/retried",
        retried,
        "a write to a backend that claims to shut down is executed once"
    )]
}

async fn retried(cluster: &mut Cluster) -> anyhow::Result<String> {
    let _extension = aggregated::up(cluster).await?;
    let outcome = writes(cluster).await;
    aggregated::remove(cluster).await?;
    outcome
}

async fn writes(cluster: &Cluster) -> anyhow::Result<String> {
    let mut figures = Vec::new();
    let mut all_once = true;
    for server in &cluster.servers {
        let object = aggregated::gadget(SHUTTING_DOWN);
        let path = aggregated::collection();
        let before = executed(cluster).await?;
        let answer = cluster.admin.create(server.through(), &path, &object).await?;
        let times = executed(cluster).await? - before;
        all_once &= times == 1;
        figures.push(format!("{times} through {} ({})", server.name(), answer.status.as_u16()));
    }
    let figures = format!("executed {}", figures.join(", "));
    ensure!(all_once, "{figures}");
    Ok(figures)
}

/// The number of times that the backend has executed the write.
async fn executed(cluster: &Cluster) -> anyhow::Result<u64> {
    let path = format!("{}/{EXECUTED}", aggregated::collection());
    let said = cluster.admin.get(cluster.server("a")?.direct(), &path).await?.expect(200)?;
    said.get("executed").and_then(Value::as_u64).context("no number")
}
