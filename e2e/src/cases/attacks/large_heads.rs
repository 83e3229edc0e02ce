//! Large heads: requests with one header of up to a megabyte, of nobody and of a user without rights.
//! Whoever sends one gets an answer; others notice nothing.

use std::net::SocketAddr;

use anyhow::ensure;
use http::{HeaderValue, Method};

use super::others::{NAMESPACE, Others, Subject, metric};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::tally::Tally;

const SIZES: [usize; 4] = [1_040_000, 600_000, 200_000, 100_000];
/// What a head is made of, by how many bits HPACK's Huffman code gives each byte.
const FILLERS: [(&str, u8); 3] = [("5 bits", b'a'), ("19 bits", b'\\'), ("26 bits", 0xff)];

pub(in crate::cases) async fn large_heads(cluster: &mut Cluster) -> anyhow::Result<String> {
    let to = cluster.server("a")?.through();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    run(cluster, to, &path, vec![Subject::local()]).await
}

/// Of an API that only peers have.
pub(in crate::cases) async fn large_heads_through_hop(
    cluster: &mut Cluster,
) -> anyhow::Result<String> {
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
    let before = trouble(cluster).await?;
    for size in SIZES {
        for (filler, byte) in FILLERS {
            let value = HeaderValue::from_bytes(&vec![byte; size])?;
            for (who, client) in &senders {
                let client = client.with_value("x-large", value.clone())?;
                let outcomes = [("HTTP/2", http2(&client, to, path).await), {
                    ("HTTP/1.1", client.get(to, path).await)
                }];
                for (protocol, outcome) in outcomes {
                    let key = Tally::key(&outcome);
                    if std::env::var_os("MVP_E2E_VERBOSE").is_some() || outcome.is_err() {
                        eprintln!("      {protocol}, {who}, {size} of {filler}: {key}");
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
    ensure!(trouble < 0.5, "{figures}");
    ensure!(told.of(Tally::NO_ANSWER) + told.of(Tally::CUT_OFF) == 0, "{figures}");
    told.only(&["200", "401", "403", "431"])?;
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
