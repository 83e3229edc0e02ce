//! kube-rs at a server that lacks what it wants: discovery, the dynamic API, and a watcher that
//! outlives the gateway it watches through.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::objects::{self, Kind};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "clients/kube-rs",
        kube_rs,
        "discovery, dynamic API and a watcher of kube-rs that survives its gateway"
    )]
}

const NAMESPACE: &str = "kube-rs";
const PATIENCE: Duration = Duration::from_secs(30);

async fn kube_rs(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace(NAMESPACE).await?;
    let lacking = [
        ("b", objects::job(NAMESPACE, "one")),
        ("c", objects::disruption_budget(NAMESPACE, "one")),
        ("b", objects::mutating_policy("e2e-kube-rs")),
    ];
    for (name, kind) in &lacking {
        let what = format!("{} at {name}", kind.name);
        let server = cluster.server(name)?;
        // The server's own lists are false during skew: it may even fail over what they name.
        let directly = find(cluster, server.direct(), kind).await;
        ensure!(!matches!(directly, Ok(Some(_))), "{what} directly: it is there");
        let api = find(cluster, server.through(), kind).await?;
        life(api.context("discovery lacks it")?, kind).await.context(what)?;
    }
    let restarts = watcher_outlives_gateway(cluster).await?;
    Ok(format!("3 kinds discovered, watched, created, changed and deleted; {restarts}"))
}

async fn client(cluster: &Cluster, to: SocketAddr) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig("admin", to)?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The API of a kind as discovery gives it.
async fn find(
    cluster: &Cluster,
    to: SocketAddr,
    kind: &Kind,
) -> anyhow::Result<Option<Api<DynamicObject>>> {
    let client = client(cluster, to).await?;
    let text = |field| kind.object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').context("no group")?;
    let wanted = GroupVersionKind::gvk(group, version, text("kind"));
    let discovery = Discovery::new(client.clone()).run().await?;
    let Some((resource, capabilities)) = discovery.resolve_gvk(&wanted) else { return Ok(None) };
    Ok(Some(match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client, NAMESPACE, &resource),
        Scope::Cluster => Api::all_with(client, &resource),
    }))
}

type Events = BoxStream<'static, Result<DynamicObject, watcher::Error>>;

/// Objects as they are made or changed, also by a watch that was begun anew.
fn watch(api: &Api<DynamicObject>) -> Events {
    watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed()
}

/// Waits for an object of that name, and of that label if any.
async fn see(events: &mut Events, name: &str, label: Option<&str>) -> anyhow::Result<()> {
    let seen = async {
        while let Some(event) = events.next().await {
            // What goes wrong on the way is tried again, as a controller would.
            let Ok(object) = event else { continue };
            let labels = object.metadata.labels.unwrap_or_default();
            let right = label.is_none_or(|label| labels.contains_key(label));
            if object.metadata.name.as_deref() == Some(name) && right {
                return Ok(());
            }
        }
        bail!("the watcher ended")
    };
    timeout(PATIENCE, seen).await.unwrap_or_else(|_| bail!("no word of {name}"))
}

async fn life(api: Api<DynamicObject>, kind: &Kind) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(kind.object.clone())?;
    let name = object.metadata.name.clone().context("no name")?;
    let mut events = watch(&api);
    api.create(&PostParams::default(), &object).await?;
    see(&mut events, &name, None).await?;
    let patch = json!({"metadata": {"labels": {"by": "kube-rs"}}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    see(&mut events, &name, Some("by")).await?;
    let listed = api.list(&ListParams::default().labels("by=kube-rs")).await?;
    ensure!(listed.items.len() == 1, "listed: {}", listed.items.len());
    api.delete(&name, &DeleteParams::background()).await?;
    let missing = api.get_opt(&name).await?;
    ensure!(missing.is_none(), "it is there after it was deleted");
    Ok(())
}

async fn watcher_outlives_gateway(cluster: &mut Cluster) -> anyhow::Result<String> {
    let index = cluster.index("b")?;
    let to = cluster.server("b")?.through();
    let job = |name: &str| objects::job(NAMESPACE, name);
    let api = find(cluster, to, &job("none")).await?.context("discovery lacks jobs")?;
    let mut events = watch(&api);
    let made = async |api: &Api<DynamicObject>, name: &str| {
        let object = serde_json::from_value(job(name).object)?;
        anyhow::Ok(api.create(&PostParams::default(), &object).await?)
    };
    made(&api, "before").await?;
    see(&mut events, "before", None).await?;
    let elsewhere = client(cluster, cluster.server("a")?.direct()).await?;
    let resource = kube::core::ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
    let elsewhere: Api<DynamicObject> = Api::namespaced_with(elsewhere, NAMESPACE, &resource);
    for round in 0..2 {
        let name = format!("while-down-{round}");
        cluster.servers.get_mut(index).context("no server")?.gateway()?.kill();
        made(&elsewhere, &name).await?;
        cluster.start_gateway(index)?;
        see(&mut events, &name, None).await.context("after the gateway's restart")?;
    }
    for object in api.list(&ListParams::default()).await?.items {
        let name = object.metadata.name.unwrap_or_default();
        api.delete(&name, &DeleteParams::background()).await?;
    }
    Ok("a watcher saw what was made during 2 kill -9 of its gateway".to_owned())
}
