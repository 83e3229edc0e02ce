//! Many watches of many changes. kube-apiserver ends a watch whose client reads too slowly; as many
//! must survive through the gateway as directly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use testkit::process::until;
use tokio::sync::oneshot;

use super::attack;
use super::others::sum;
use crate::client::{Client, Http2};
use crate::cluster::Cluster;
use crate::sockets::connections_to;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            full Mixed,
            "attacks/watches",
            watches,
            "watches of many changes: as many survive as directly"
        ),
        case!(
            full Mixed,
            "attacks/spread-of-watches",
            watches_by_connections,
            "the same on few and on many client connections"
        ),
    ]
}

const NAMESPACE: &str = "watched";

/// Watches, and what happens while they are open.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// The number of client connections, and of watches on each.
    connections: usize,
    streams: usize,
    /// The objects that change at once, repeatedly, and their size.
    writers: usize,
    bytes: usize,
    /// How often each of them changes.
    changes: usize,
}

/// The limit of a direct kube-apiserver on two cores. It buffers ten events per watch: larger
/// bursts must be read as fast as they come, which allows fewer watches per connection.
const LOAD: Load = Load { connections: 50, streams: 4, writers: 24, bytes: 4_000, changes: 12 };
/// The rounds, alternating, so that other work on the machine affects both.
const ROUNDS: usize = 3;

/// The results.
struct Outcome {
    watches: usize,
    /// Watches that the server ended before all was over.
    ended: usize,
    /// The watches that kube-apiserver ended because their clients were too slow.
    terminated: f64,
    events: usize,
    /// The upstream connections of the watches.
    connections: usize,
    seconds: f64,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { watches, ended, terminated, events, connections, seconds } = self;
        write!(
            f,
            "{ended} of {watches} watches ended early (kube-apiserver: {terminated} unresponsive), \
             {events} events in {seconds:.1} s, {connections} connections to it"
        )
    }
}

async fn watches(cluster: &mut Cluster) -> anyhow::Result<String> {
    let server = cluster.server("a")?;
    let (to, behind) = (server.through(), server.direct());
    let (mut directly, mut through) = (Vec::new(), Vec::new());
    // A warm-up round: both ways perform worse just after a start.
    for at in [behind, to] {
        carry(cluster, at, behind, LOAD).await?;
    }
    for _ in 0..ROUNDS {
        directly.push(carry(cluster, behind, behind, LOAD).await?);
        through.push(carry(cluster, to, behind, LOAD).await?);
    }
    let ended = |outcomes: &[Outcome]| outcomes.iter().map(|one| one.ended).sum::<usize>();
    let all = |outcomes: &[Outcome]| {
        let all: Vec<String> = outcomes.iter().map(Outcome::to_string).collect();
        all.join(", ")
    };
    let figures = format!("directly {}; through mvp {}", all(&directly), all(&through));
    let most = ended(&directly) + ROUNDS * LOAD.connections * LOAD.streams / 10;
    ensure!(ended(&through) <= most, "{figures}");
    Ok(figures)
}

/// The same watches on many and on few client connections, with increasing changes: for the figures
/// only.
async fn watches_by_connections(cluster: &mut Cluster) -> anyhow::Result<String> {
    let server = cluster.server("a")?;
    let (to, behind) = (server.through(), server.direct());
    let mut figures = Vec::new();
    for (connections, streams) in [(200, 1), (50, 4), (8, 25), (2, 100)] {
        for (way, at) in [("directly", behind), ("through mvp", to)] {
            let mut line = format!("{connections} × {streams} {way}, at once:");
            for writers in [4, 8, 12, 16, 24] {
                let load = Load { connections, streams, writers, ..LOAD };
                let outcome = carry(cluster, at, behind, load).await?;
                line += &format!(" {writers}: {} ended", outcome.ended);
            }
            eprintln!("      {line}");
            figures.push(line);
        }
    }
    Ok(figures.join("; "))
}

/// Opens the watches at one address, changes objects at the other, and counts what ended early.
async fn carry(
    cluster: &Cluster,
    to: SocketAddr,
    behind: SocketAddr,
    load: Load,
) -> anyhow::Result<Outcome> {
    cluster.namespace(NAMESPACE).await?;
    let admin = cluster.admin.clone();
    let writer = admin.connect_http2(behind).await?;
    change(&writer, load, 0).await.context("the first objects")?;
    let before = (connections_to(behind), terminated(&admin, behind).await?);
    let watched = Arc::new(Watched::default());
    let reading = read(&admin, to, load, &watched);
    let watches = load.connections * load.streams;
    until("every watch is open", Duration::from_secs(60), async || {
        Ok((watched.open.load(Ordering::Relaxed) == watches).then_some(()))
    })
    .await?;
    let connections = connections_to(behind).saturating_sub(before.0);
    // The initial events of a watch are not counted.
    let first = settled(&watched).await?;
    let started = Instant::now();
    for number in 1..=load.changes {
        change(&writer, load, number).await?;
    }
    let last = settled(&watched).await?;
    let seconds = started.elapsed().as_secs_f64();
    watched.over.store(true, Ordering::Relaxed);
    let ended = watched.ended.load(Ordering::Relaxed);
    drop(reading);
    let terminated = terminated(&admin, behind).await? - before.1;
    Ok(Outcome { watches, ended, terminated, events: last - first, connections, seconds })
}

/// Waits until no more events come.
async fn settled(watched: &Watched) -> anyhow::Result<usize> {
    let mut last = (watched.events.load(Ordering::Relaxed), Instant::now());
    until("events have come", Duration::from_secs(60), async || {
        let now = watched.events.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
        Ok((last.1.elapsed() > Duration::from_secs(1)).then_some(now))
    })
    .await
}

/// Changes every object, all at the same time.
async fn change(writer: &Http2, load: Load, number: usize) -> anyhow::Result<()> {
    let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let changes = (0..load.writers).map(|index| {
        let name = format!("changing-{index}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"number": number.to_string(), "text": "x".repeat(load.bytes)},
        });
        let (one, collection) = (format!("{collection}/{name}"), collection.clone());
        async move {
            let body = Bytes::from(object.to_string());
            let mut answer = writer.send(Method::PUT, &one, Some(&body)).await?;
            if answer.status == 404 {
                answer = writer.send(Method::POST, &collection, Some(&body)).await?;
            }
            ensure!(answer.status.is_success(), "{answer}");
            Ok(())
        }
    });
    join_all(changes).await.into_iter().collect()
}

/// Shared with those who read.
#[derive(Default)]
struct Watched {
    open: AtomicUsize,
    ended: AtomicUsize,
    events: AtomicUsize,
    over: AtomicBool,
}

/// Reads, on a thread of its own, until it is dropped.
fn read(
    client: &Client,
    to: SocketAddr,
    load: Load,
    watched: &Arc<Watched>,
) -> oneshot::Sender<()> {
    let (stop, stopped) = oneshot::channel();
    let (client, watched) = (client.clone(), Arc::clone(watched));
    drop(attack(move || {
        Box::pin(async move {
            let all = (0..load.connections).map(|_| {
                let (client, watched) = (client.clone(), Arc::clone(&watched));
                async move {
                    let outcome = read_connection(&client, to, load.streams, &watched).await;
                    outcome.inspect_err(|error| eprintln!("      a connection failed: {error:#}"))
                }
            });
            tokio::select! {
                _ = stopped => {}
                outcomes = join_all(all) => drop(outcomes),
            }
            Ok(Tally::default())
        })
    }));
    stop
}

async fn read_connection(
    client: &Client,
    to: SocketAddr,
    streams: usize,
    watched: &Watched,
) -> anyhow::Result<()> {
    let connection = client.connect_http2(to).await?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?watch=1");
    let mut open = Vec::new();
    for _ in 0..streams {
        match connection.watch(&path).await? {
            Ok(watch) => open.push(watch),
            Err(answer) => bail!("a watch was refused: {answer}"),
        }
        watched.open.fetch_add(1, Ordering::Relaxed);
    }
    let followed = open.into_iter().map(|mut watch| async move {
        while let Ok(Some(data)) = watch.next().await {
            let events = data.iter().filter(|byte| **byte == b'\n').count();
            watched.events.fetch_add(events, Ordering::Relaxed);
        }
        if !watched.over.load(Ordering::Relaxed) {
            watched.ended.fetch_add(1, Ordering::Relaxed);
        }
    });
    join_all(followed).await;
    Ok(())
}

/// The number of watches that kube-apiserver has ended because their clients were too slow.
async fn terminated(admin: &Client, server: SocketAddr) -> anyhow::Result<f64> {
    let metrics = admin.get(server, "/metrics").await?;
    ensure!(metrics.status == 200, "{metrics}");
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    Ok(sum(&text, "apiserver_terminated_watchers_total"))
}
