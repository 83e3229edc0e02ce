//! Rapid reset: streams that are opened and reset, repeatedly, by a user without permissions.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use http::Method;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::others::{NAMESPACE, Others, Subject, metric};
use super::{attack, goes_on};
use crate::client::{Client, Http2};
use crate::cluster::Cluster;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "attacks/rapid-reset",
            rapid_reset,
            "a user without permissions opens and resets streams"
        ),
        case!(
            Mixed,
            "attacks/rapid-reset-hop",
            rapid_reset_through_hop,
            "the same for an API that only peers serve"
        ),
        case!(
            full Mixed,
            "attacks/rapid-reset-directly",
            rapid_reset_directly,
            "comparison: the same at kube-apiserver"
        ),
    ]
}

/// The number of concurrent streams, and how long they are open.
const STREAMS: usize = 60;
const OPEN: Duration = Duration::from_millis(4);

/// The path of the requests.
struct Target {
    to: SocketAddr,
    path: String,
    body: Bytes,
}

async fn rapid_reset(cluster: &mut Cluster) -> anyhow::Result<String> {
    super::fresh(cluster, &["a"]).await?;
    run(cluster, review(cluster.server("a")?.through()), &["a"], true).await
}

/// Comparison: the effect on kube-apiserver.
async fn rapid_reset_directly(cluster: &mut Cluster) -> anyhow::Result<String> {
    run(cluster, review(cluster.server("a")?.direct()), &[], true).await
}

/// For an API that only peers serve: the hop is shared with others, and with the control loop.
async fn rapid_reset_through_hop(cluster: &mut Cluster) -> anyhow::Result<String> {
    super::fresh(cluster, &["a", "b", "c"]).await?;
    let job = super::super::objects::job(NAMESPACE, "never-made");
    let body = Bytes::from(job.object.to_string());
    let to = cluster.server("b")?.through();
    run(cluster, Target { to, path: job.collection, body }, &["a", "b", "c"], false).await
}

/// Every user may query its own permissions.
fn review(to: SocketAddr) -> Target {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": NAMESPACE},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews".to_owned();
    Target { to, path, body: Bytes::from(review.to_string()) }
}

async fn run(
    cluster: &Cluster,
    target: Target,
    gateways: &[&str],
    local: bool,
) -> anyhow::Result<String> {
    let subjects =
        if local { vec![Subject::local()] } else { vec![Subject::local(), Subject::of_peers()] };
    let mallory = cluster.user("mallory", &[])?;
    let others = Others::start(cluster, target.to, subjects).await?;
    let before = ejections(cluster, gateways).await?;
    let did = super::together(vec![attack(move || Box::pin(reset(mallory, target)))]).await?;
    let harm = others.end(cluster.server("c")?.direct()).await?;
    let ejected = ejections(cluster, gateways).await? - before;
    anyhow::ensure!(did.of("reset") > 1000, "hardly an attack: {did}");
    harm.none().map_err(|error| error.context(format!("{did}; {ejected} ejections")))?;
    anyhow::ensure!(ejected < 0.5, "{ejected} ejections");
    Ok(format!("{did}; {harm}"))
}

async fn ejections(cluster: &Cluster, gateways: &[&str]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for name in gateways {
        sum += metric(cluster.server(name)?.gateway_admin(), "mvp_ejections_total").await?;
    }
    Ok(sum)
}

/// Opens and resets streams, and reconnects when the server closes the connection.
async fn reset(client: Client, target: Target) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let since = Instant::now();
    while goes_on(since) {
        let Ok(connection) = client.connect_http2(target.to).await else {
            tally.one("no connection".to_owned());
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        tally.one("connections".to_owned());
        while goes_on(since) && round(&connection, &target, &mut tally).await.is_ok() {}
    }
    Ok(tally)
}

async fn round(connection: &Http2, target: &Target, tally: &mut Tally) -> anyhow::Result<()> {
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let started = connection.start(Method::POST, &target.path, Some(&target.body));
        open.push(timeout(Duration::from_secs(5), started).await??);
    }
    sleep(OPEN).await;
    for (_response, mut stream) in open {
        stream.send_reset(Reason::CANCEL);
        tally.one("reset".to_owned());
    }
    Ok(())
}
