//! Invalid tokens: kube-apiserver closes a connection after each 401. Eight attackers send invalid
//! tokens as fast as they can, while others use valid ones.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use tokio::time::{sleep, timeout};

use super::others::{NAMESPACE, Others, Subject};
use super::{attack, goes_on};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::sockets::Counter;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "attacks/junk-tokens",
            junk_tokens,
            "eight clients send invalid tokens over HTTP/2 and HTTP/1.1"
        ),
        case!(
            full Mixed,
            "attacks/junk-tokens-directly",
            junk_tokens_directly,
            "comparison: the same at kube-apiserver"
        ),
    ]
}

const ATTACKERS: usize = 8;
/// The concurrent requests of an attacker on an HTTP/2 connection.
const STREAMS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(10);

async fn junk_tokens(cluster: &mut Cluster) -> anyhow::Result<String> {
    super::fresh(cluster, &["a", "b"]).await?;
    let server = cluster.server("a")?;
    let local = run(cluster, server.through(), server.direct()).await;
    let server = cluster.server("b")?;
    let path = super::super::objects::job(NAMESPACE, "none").collection;
    let hop = run_one(cluster, server.through(), server.direct(), true, &path).await;
    both(("local", local), ("through the hop", hop))
}

/// Comparison: the effect on others at kube-apiserver.
async fn junk_tokens_directly(cluster: &mut Cluster) -> anyhow::Result<String> {
    let to = cluster.server("a")?.direct();
    run(cluster, to, to).await
}

/// Over both protocols, so that the figures of both are known.
async fn run(cluster: &Cluster, to: SocketAddr, server: SocketAddr) -> anyhow::Result<String> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let http2 = run_one(cluster, to, server, true, &path).await;
    let http1 = run_one(cluster, to, server, false, &path).await;
    both(("HTTP/2", http2), ("HTTP/1.1", http1))
}

/// The figures of both; an error with the figures of both where either failed.
fn both(
    (first, one): (&str, anyhow::Result<String>),
    (second, other): (&str, anyhow::Result<String>),
) -> anyhow::Result<String> {
    let failed = one.is_err() || other.is_err();
    let said =
        |outcome: anyhow::Result<String>| outcome.unwrap_or_else(|error| format!("{error:#}"));
    let figures = format!("{first}: {}; {second}: {}", said(one), said(other));
    anyhow::ensure!(!failed, "{figures}");
    Ok(figures)
}

async fn run_one(
    cluster: &Cluster,
    to: SocketAddr,
    server: SocketAddr,
    http2: bool,
    path: &str,
) -> anyhow::Result<String> {
    let nobody = cluster.nobody()?;
    let subjects = match path.contains("/batch/") {
        true => vec![Subject::local(), Subject::of_peers()],
        false => vec![Subject::local()],
    };
    let mut others = Others::start(cluster, to, subjects).await?;
    others.more_tokens(cluster).await?;
    let counter = Counter::start(server);
    let attacks = (0..ATTACKERS).map(|number| {
        let (nobody, path) = (nobody.clone(), path.to_owned());
        attack(move || {
            Box::pin(async move {
                match http2 {
                    true => junk_http2(&nobody, to, &path, number).await,
                    false => junk_http1(&nobody, to, &path, number).await,
                }
            })
        })
    });
    let told = super::together(attacks.collect()).await?;
    let (opened, most) = counter.figures();
    let harm = others.end(cluster.server("c")?.direct()).await?;
    anyhow::ensure!(told.of("401") > 200, "hardly an attack: {told}");
    let figures =
        format!("{told}; {opened} connections opened by gateways, {most} at once to the server");
    harm.none().map_err(|error| error.context(figures.clone()))?;
    Ok(format!("{figures}; {harm}"))
}

/// Never the same token twice.
fn junk(nobody: &Client, attacker: usize, number: usize) -> anyhow::Result<Client> {
    nobody.with_token(&format!("junk-{attacker}-{number}"))
}

async fn junk_http2(
    nobody: &Client,
    to: SocketAddr,
    path: &str,
    attacker: usize,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let since = Instant::now();
    for number in 0.. {
        if !goes_on(since) {
            break;
        }
        let Ok(connection) = junk(nobody, attacker, number)?.connect_http2(to).await else {
            tally.one("no connection".to_owned());
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        while goes_on(since) && !connection.is_over() {
            let asked = (0..STREAMS).map(|_| connection.send(Method::GET, path, None));
            let Ok(answers) = timeout(PATIENCE, join_all(asked)).await else { break };
            answers.iter().for_each(|answer| tally.count(answer));
            if answers.iter().any(Result::is_err) {
                break;
            }
        }
    }
    Ok(tally)
}

async fn junk_http1(
    nobody: &Client,
    to: SocketAddr,
    path: &str,
    attacker: usize,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let since = Instant::now();
    for number in 0.. {
        if !goes_on(since) {
            break;
        }
        let connected = timeout(PATIENCE, junk(nobody, attacker, number)?.connect(to)).await;
        let Ok(Ok(mut connection)) = connected else {
            tally.one("no connection".to_owned());
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        while goes_on(since) {
            let asked = connection.send(Method::GET, path, None);
            let Ok(Ok(answer)) = timeout(PATIENCE, asked).await else { break };
            tally.count(&Ok(answer));
        }
    }
    Ok(tally)
}
