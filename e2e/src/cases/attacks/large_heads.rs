//! Requests with one header of up to a megabyte, anonymous and by a user without permissions. The
//! sender gets a response; others notice nothing.

use std::net::SocketAddr;

use anyhow::ensure;
use http::{HeaderValue, Method};

use super::others::{NAMESPACE, Others, Subject, metric};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "attacks/large-heads",
            large_heads,
            "request heads of up to 1 MB, anonymous and by a user without permissions"
        ),
        case!(
            Mixed,
            "attacks/large-heads-hop",
            large_heads_through_hop,
            "the same for an API that only peers serve"
        ),
    ]
}

const SIZES: [usize; 4] = [1_040_000, 600_000, 200_000, 100_000];
/// The bytes of a head, by the length of their Huffman code in HPACK.
const FILLERS: [(usize, u8); 3] = [(5, b'a'), (19, b'\\'), (26, 0xff)];
/// Above this size on the wire, a sender may lose its own connection.
const ON_THE_WIRE: usize = 1 << 20;

async fn large_heads(cluster: &mut Cluster) -> anyhow::Result<String> {
    super::fresh(cluster, &["a"]).await?;
    let to = cluster.server("a")?.through();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    run(cluster, to, &path, vec![Subject::local()]).await
}

/// For an API that only peers serve.
async fn large_heads_through_hop(cluster: &mut Cluster) -> anyhow::Result<String> {
    super::fresh(cluster, &["a", "b", "c"]).await?;
    let to = cluster.server("b")?.through();
    let subjects = vec![Subject::local(), Subject::of_peers()];
    let path = Subject::of_peers().collection;
    run(cluster, to, &path, subjects).await
}

async fn run(
    cluster: &Cluster,
    to: SocketAddr,
    path: &str,
    subjects: Vec<Subject>,
) -> anyhow::Result<String> {
    let senders = [("nobody", cluster.nobody()?), ("mallory", cluster.user("mallory", &[])?)];
    let others = Others::start(cluster, to, subjects).await?;
    let mut told = Tally::default();
    let mut wrong = Vec::new();
    let before = trouble(cluster).await?;
    for size in SIZES {
        for (bits, byte) in FILLERS {
            let value = HeaderValue::from_bytes(&vec![byte; size])?;
            for (who, client) in &senders {
                let client = client.with_value("x-large", value.clone())?;
                let outcomes = [
                    ("HTTP/2", size * bits / 8, http2(&client, to, path).await),
                    ("HTTP/1.1", size, client.get(to, path).await),
                ];
                for (protocol, wire, outcome) in outcomes {
                    let key = match outcome.is_err() && wire > ON_THE_WIRE {
                        true => "closed".to_owned(),
                        false => Tally::key(&outcome),
                    };
                    if !["401", "403", "431", "closed"].contains(&key.as_str()) {
                        wrong.push(format!("{protocol}, {who}, {size} of {bits} bits: {key}"));
                    }
                    told.one(key);
                }
            }
        }
    }
    let trouble = trouble(cluster).await? - before;
    let harm = others.end(cluster.server("c")?.direct()).await?;
    let figures = format!("senders: {told}; {trouble} ejections and failovers");
    harm.none().map_err(|error| error.context(figures.clone()))?;
    ensure!(wrong.is_empty(), "{figures}; {}", wrong.join("; "));
    ensure!(trouble < 0.5, "{figures}");
    Ok(format!("{figures}; {harm}"))
}

async fn http2(
    client: &Client,
    to: SocketAddr,
    path: &str,
) -> anyhow::Result<crate::client::Answer> {
    client.connect_http2(to).await?.send(Method::GET, path, None).await
}

/// Ejections and failovers of all gateways.
async fn trouble(cluster: &Cluster) -> anyhow::Result<f64> {
    let mut all = 0.0;
    for server in &cluster.servers {
        for name in ["mvp_ejections_total", "mvp_failovers_total"] {
            all += metric(server.gateway_admin(), name).await?;
        }
    }
    Ok(all)
}
