//! Anonymous callers: many streams at once, and many requests on a server that is busy.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::join_all;
use serde_json::json;
use testkit::process::until;
use tokio::time::sleep;

use super::others::{Others, Subject};
use super::{attack, goes_on};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::sockets::{Counter, connections_to};
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "attacks/anonymous-streams",
            streams,
            "4 connections of 250 anonymous streams use few upstream connections"
        ),
        case!(
            Mixed,
            "attacks/anonymous-busy",
            busy_server,
            "500 concurrent anonymous requests to a server that is busy with lists"
        ),
        case!(
            full Mixed,
            "attacks/anonymous-directly",
            anonymous_directly,
            "comparison: the same at kube-apiserver"
        ),
    ]
}

/// The number of client connections, and of streams on each.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 250;
/// The maximum number of upstream connections for anonymous callers.
const MOST: usize = 150;
/// Concurrent requests to a busy server, each over a connection of its own.
const AT_ONCE: usize = 500;
/// The objects of a list that keeps the server busy, and their size.
const OBJECTS: usize = 1_500;
const BYTES: usize = 1_000;
const LISTERS: usize = 150;

/// 4 connections of 250 streams: the server gets a bounded number of connections, and fewer
/// afterwards.
async fn streams(cluster: &mut Cluster) -> anyhow::Result<String> {
    super::fresh(cluster, &["a"]).await?;
    let server = cluster.server("a")?;
    let (to, behind) = (server.through(), server.direct());
    let nobody = cluster.nobody()?;
    let others = Others::start(cluster, to, vec![Subject::local()]).await?;
    let before = connections_to(behind);
    let counter = Counter::start(behind);
    let attacks = (0..CONNECTIONS).map(|_| {
        let nobody = nobody.clone();
        attack(move || Box::pin(many_streams(nobody, to)))
    });
    let told = super::together(attacks.collect()).await?;
    let (_, most) = counter.figures();
    let after = connections_to(behind);
    let harm = others.end(behind).await?;
    let figures = format!("{told}; connections to the server {before}, then {most}, then {after}");
    harm.none().map_err(|error| error.context(figures.clone()))?;
    ensure!(told.of("200") > 100, "hardly an attack: {figures}");
    ensure!(most <= before + MOST, "{figures}");
    let fewer = until("connections are closed again", Duration::from_secs(100), async || {
        let now = connections_to(behind);
        Ok((now <= before + 20).then_some(now))
    });
    let fewer = fewer.await.map_err(|error| error.context(figures.clone()))?;
    Ok(format!("{figures}, in the end {fewer}; {harm}"))
}

async fn many_streams(nobody: Client, to: SocketAddr) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let since = Instant::now();
    while goes_on(since) {
        let Ok(connection) = nobody.connect_http2(to).await else {
            tally.one("no connection".to_owned());
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        while goes_on(since) && !connection.is_over() {
            let answers = join_all((0..STREAMS).map(|_| connection.get("/version"))).await;
            answers.iter().for_each(|answer| tally.count(answer));
            if answers.iter().any(Result::is_err) {
                break;
            }
        }
    }
    Ok(tally)
}

/// 500 concurrent anonymous requests to a server that is busy with lists: it is slow, not down.
async fn busy_server(cluster: &mut Cluster) -> anyhow::Result<String> {
    super::fresh(cluster, &["a"]).await?;
    let server = cluster.server("a")?;
    busy(cluster, server.through(), server.direct()).await
}

/// The same at kube-apiserver.
async fn anonymous_directly(cluster: &mut Cluster) -> anyhow::Result<String> {
    let to = cluster.server("a")?.direct();
    busy(cluster, to, to).await
}

async fn busy(cluster: &Cluster, to: SocketAddr, behind: SocketAddr) -> anyhow::Result<String> {
    let list = fill(cluster, behind).await?;
    let nobody = cluster.nobody()?;
    let mut others = Others::start(cluster, to, vec![Subject::local()]).await?;
    others.more_tokens(cluster).await?;
    let counter = Counter::start(behind);
    let admin = cluster.admin.clone();
    let lists = attack(move || Box::pin(list_on(admin, behind, list)));
    let told = attack(move || Box::pin(all_at_once(nobody, to)));
    let told = super::together(vec![told, lists]).await?;
    let (opened, most) = counter.figures();
    let harm = others.end(behind).await?;
    let figures = format!(
        "anonymous: {told}; {opened} connections opened by gateways, {most} at once to the server"
    );
    harm.none().map_err(|error| error.context(figures.clone()))?;
    Ok(format!("{figures}; {harm}"))
}

async fn all_at_once(nobody: Client, to: SocketAddr) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let since = Instant::now();
    while goes_on(since) {
        let answers = join_all((0..AT_ONCE).map(|_| nobody.get(to, "/version"))).await;
        answers.iter().for_each(|answer| tally.count(answer));
    }
    Ok(tally)
}

/// Creates enough objects for a slow list.
async fn fill(cluster: &Cluster, at: SocketAddr) -> anyhow::Result<String> {
    cluster.namespace("many").await?;
    let collection = "/api/v1/namespaces/many/configmaps";
    let text = "x".repeat(BYTES);
    let mut connection = cluster.admin.connect(at).await?;
    for number in 0..OBJECTS {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("many-{number}")},
            "data": {"text": text},
        });
        let body = Some(("application/json", &object));
        let made = connection.send(http::Method::POST, collection, body).await?;
        ensure!(matches!(made.status.as_u16(), 201 | 409), "{made}");
    }
    Ok(collection.to_owned())
}

/// The clients that keep the server busy; their results are not counted.
async fn list_on(client: Client, to: SocketAddr, path: String) -> anyhow::Result<Tally> {
    let since = Instant::now();
    let list = async || {
        while goes_on(since) {
            if client.get(to, &path).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        }
    };
    join_all((0..LISTERS).map(|_| list())).await;
    Ok(Tally::default())
}
