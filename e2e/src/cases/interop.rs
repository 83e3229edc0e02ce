//! Together with Kubernetes' own proxy, which is on in every server. It knows `a` by the address of
//! its gateway; `b` has no gateway; `c` has a gateway that it does not know. Each serves an API
//! that no other serves. Audit logs show which servers got a request: it makes one hop, to one
//! capable server. All are 1.36: a 1.34 takes everything that a 1.36 lists, also of its peers, for
//! that server's own, and its requests end in a 404, with or without `mvp`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use serde_json::Value;
use testkit::process::until;

use super::objects::{self, Kind};
use super::routing::life;
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Interop,
            "interop/bare-peer",
            bare_peer,
            "a kube-apiserver with the Kubernetes proxy is a bare peer of a gateway"
        ),
        case!(
            Interop,
            "interop/their-peer",
            their_peer,
            "a gateway is the peer of the Kubernetes proxy"
        ),
        case!(Interop, "interop/both", both, "both proxies are on: no loop, one hop"),
    ]
}

const NAMESPACE: &str = "interop";
/// Kubernetes' own proxy needs some seconds to discover its peers.
const HEARD: Duration = Duration::from_secs(90);

/// The APIs that only `a`, `b` and `c` serve.
fn kinds(name: &str) -> [(&'static str, Kind); 3] {
    [
        ("a", objects::job(NAMESPACE, name)),
        ("b", objects::disruption_budget(NAMESPACE, name)),
        ("c", objects::autoscaler(NAMESPACE, name)),
    ]
}

/// `mvp` forwards to a bare server and to a gateway.
async fn bare_peer(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace(NAMESPACE).await?;
    let mut requests = 0;
    for (through, wanted) in [("a", "b"), ("a", "c"), ("c", "a"), ("c", "b")] {
        let to = cluster.server(through)?.through();
        let kind = only(wanted)?;
        let what = format!("{} through {through}", kind.name);
        requests += life(&cluster.admin, to, &kind).await.with_context(|| what.clone())?;
        let asked = ask(cluster, to, &kind).await.with_context(|| what.clone())?;
        ensure!(asked == [(wanted, 1)].into(), "{what}: servers that were asked: {asked:?}");
    }
    Ok(format!("{requests} requests of a and c as directly; each reached the one capable server"))
}

/// Kubernetes' own proxy forwards to a gateway.
async fn their_peer(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace(NAMESPACE).await?;
    // It looks at its peers when they come, and not again: gateways have to be there before.
    for name in ["b", "c"] {
        cluster.server_mut(name)?.process()?.kill();
    }
    cluster.heal().await?;
    let job = only("a")?;
    for source in ["b", "c"] {
        let to = cluster.server(source)?.direct();
        until(&format!("the proxy of {source} knows of a"), HEARD, async || {
            cluster.admin.get(to, &job.collection).await?.expect(200).map(Some)
        })
        .await?;
        let before = served_locally(cluster).await?;
        let asked = ask(cluster, to, &job).await?;
        let after = served_locally(cluster).await?;
        ensure!(after == before + 1, "the gateway of a was asked {} times", after - before);
        ensure!(one_hop(&asked, source, "a"), "{source}: servers that were asked: {asked:?}");
        life(&cluster.admin, to, &job).await.with_context(|| format!("from {source}"))?;
    }
    // What a's gateway lists for the whole cluster must not be taken for what a serves.
    let budget = only("b")?;
    let to = cluster.server("c")?.direct();
    until("the proxy of c knows of b", HEARD, async || {
        cluster.admin.get(to, &budget.collection).await?.expect(200).map(Some)
    })
    .await?;
    for round in 0..20 {
        let asked = ask(cluster, to, &budget).await.with_context(|| format!("round {round}"))?;
        ensure!(one_hop(&asked, "c", "b"), "servers that were asked: {asked:?}");
    }
    Ok("jobs of a from b and c by way of a's gateway, one hop; 20 reads of c went to b alone"
        .to_owned())
}

/// Both at once: a request that one forwards, the other does not forward again.
async fn both(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace(NAMESPACE).await?;
    let mut ways: Vec<(&str, SocketAddr)> = Vec::new();
    for name in ["a", "c"] {
        ways.push((name, cluster.server(name)?.through()));
    }
    for name in ["a", "b", "c"] {
        ways.push((name, cluster.server(name)?.direct()));
    }
    for (_, to) in &ways {
        for (wanted, kind) in kinds("none") {
            until(&format!("{to} knows of {wanted}"), HEARD, async || {
                cluster.admin.get(*to, &kind.collection).await?.expect(200).map(Some)
            })
            .await?;
        }
    }
    let all = ways.iter().flat_map(|(source, to)| {
        kinds("none").into_iter().map(move |(wanted, kind)| (*source, *to, wanted, kind))
    });
    let cluster_ref = &*cluster;
    let asked = try_join_all(all.map(async |(source, to, wanted, kind)| {
        let asked = ask(cluster_ref, to, &kind).await?;
        let right = one_hop(&asked, source, wanted);
        ensure!(right, "{} at {source}, {to}: servers that were asked: {asked:?}", kind.name);
        anyhow::Ok(())
    }))
    .await?
    .len();

    // What nobody has is asked of nobody else, and what says that it was passed on makes one hop.
    let nowhere = Kind { collection: "/apis/batch/v9/things".to_owned(), ..only("a")? };
    let marked = cluster.admin.with_header("x-kubernetes-peer-proxied", "true")?;
    for name in ["a", "c"] {
        let server = cluster.server(name)?;
        let (path, marker) = marked_path(&nowhere);
        cluster.admin.get(server.through(), &path).await?.expect(404)?;
        let asked = arrived(cluster, &marker)?;
        let elsewhere = asked.keys().any(|other| *other != name);
        ensure!(!elsewhere, "what nobody has, through {name}: {asked:?}");
        // We do not pass it on; Kubernetes' own may, to which we do not say what was not proved.
        let (path, marker) = marked_path(&only("b")?);
        let answer = marked.get(server.through(), &path).await?;
        ensure!(matches!(answer.status.as_u16(), 200 | 503), "marked, through {name}: {answer}");
        let asked = arrived(cluster, &marker)?;
        let once = asked.iter().all(|(n, count)| (*n == name || *n == "b") && *count == 1);
        ensure!(once, "marked, through {name}: {asked:?}");
    }
    Ok(format!(
        "{asked} requests at 5 addresses at once: each at its one server, none forwarded twice"
    ))
}

fn only(name: &str) -> anyhow::Result<Kind> {
    let kind = kinds("one").into_iter().find(|(owner, _)| *owner == name);
    kind.map(|(_, kind)| kind).context("no such server")
}

/// A path with a marker that audit logs show.
fn marked_path(kind: &Kind) -> (String, String) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let marker = format!("pretty=interop-{}-", NEXT.fetch_add(1, Ordering::Relaxed));
    (format!("{}?{marker}", kind.collection), marker)
}

/// Reads a collection; gives who was asked for it, and how often.
async fn ask(
    cluster: &Cluster,
    to: SocketAddr,
    kind: &Kind,
) -> anyhow::Result<BTreeMap<&'static str, usize>> {
    let (path, marker) = marked_path(kind);
    cluster.admin.get(to, &path).await?.expect(200)?;
    // Logs are written after the answer, at the source last.
    until("a server logs the request", Duration::from_secs(10), async || {
        let asked = arrived(cluster, &marker)?;
        let source = cluster.servers.iter().find(|server| server.direct() == to);
        let complete = !asked.is_empty() && source.is_none_or(|s| asked.contains_key(s.name()));
        Ok(complete.then_some(asked))
    })
    .await
}

/// The number of times that each server got the request.
fn arrived(cluster: &Cluster, marker: &str) -> anyhow::Result<BTreeMap<&'static str, usize>> {
    let mut counts = BTreeMap::new();
    for server in &cluster.servers {
        let is_it = |entry: &&Value| {
            let uri = entry.get("requestURI").and_then(Value::as_str);
            uri.is_some_and(|uri| uri.contains(marker))
        };
        let count = server.audit()?.iter().filter(is_it).count();
        if count > 0 {
            counts.insert(server.name(), count);
        }
    }
    Ok(counts)
}

/// Whether it came to the server that can serve it once, and to nobody else but the server that it
/// was sent to.
fn one_hop(asked: &BTreeMap<&'static str, usize>, source: &str, wanted: &str) -> bool {
    asked.get(wanted) == Some(&1)
        && asked.iter().all(|(name, count)| (*name == source || *name == wanted) && *count == 1)
}

/// How many requests a's gateway gave to a.
async fn served_locally(cluster: &Cluster) -> anyhow::Result<u64> {
    let to = cluster.server("a")?.gateway_admin();
    let metrics = crate::client::plain(to, "/metrics").await?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let counts = text.lines().filter(|line| {
        line.starts_with("mvp_requests_total{") && line.contains("reason=\"served-locally\"")
    });
    counts.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?)).sum()
}
