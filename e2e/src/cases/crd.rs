//! A custom resource is served by all members once it is established anywhere.

mod pipeline;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use http::Method;
use serde_json::{Value, json};
use testkit::process::until;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "crd/established",
            established,
            "once a CRD is established, no other member returns 404 for it"
        ),
        case!(
            Mixed,
            "crd/deleted",
            deleted,
            "once a CRD is deleted, every member returns 404 for it"
        ),
        case!(
            Mixed,
            "crd/pipeline",
            pipeline::short,
            "kubectl apply of a CRD, wait, and apply of its object work at every address, 10 times"
        ),
        case!(
            full Mixed,
            "crd/pipeline-50",
            pipeline::long,
            "the same, 50 times"
        ),
    ]
}

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(plural: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{plural}.example.com")},
        "spec": {
            "group": format!("{plural}.example.com"), "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": plural, "listKind": format!("{plural}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

fn collection(plural: &str) -> String {
    format!("/apis/{plural}.example.com/v1/namespaces/default/{plural}")
}

/// Creates a custom resource at a server and waits until it is established there.
async fn establish(cluster: &Cluster, at: &str, plural: &str) -> anyhow::Result<()> {
    let to = cluster.server(at)?.direct();
    let mut connection = cluster.admin.connect(to).await?;
    let body = definition(plural);
    let made =
        connection.send(Method::POST, DEFINITIONS, Some(("application/json", &body))).await?;
    made.expect(201)?;
    let path = format!("{DEFINITIONS}/{plural}.{plural}.example.com");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let definition = connection.send(Method::GET, &path, None).await?.expect(200)?;
        let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
        let established = conditions.into_iter().flatten().any(|condition| {
            condition.get("type") == Some(&json!("Established"))
                && condition.get("status") == Some(&json!("True"))
        });
        if established {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not established within 20 s");
    }
}

/// Sends requests without a pause for a while, over one connection.
async fn hammer(
    client: &Client,
    to: std::net::SocketAddr,
    path: &str,
    lasts: Duration,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let mut connection = client.connect(to).await?;
    let started = Instant::now();
    while started.elapsed() < lasts {
        tally.count(&connection.send(Method::GET, path, None).await);
    }
    Ok(tally)
}

async fn established(cluster: &mut Cluster) -> anyhow::Result<String> {
    let admin = &cluster.admin;
    let mut seen = Tally::default();
    let mut without = Tally::default();
    // Created at each server in turn; the others get the requests.
    for (round, at) in ["a", "b", "c", "a", "b", "c"].into_iter().enumerate() {
        let plural = format!("gadgets{round}");
        let path = collection(&plural);
        let others: Vec<_> = cluster.servers.iter().filter(|server| server.name() != at).collect();
        establish(cluster, at, &plural).await?;
        let lasts = Duration::from_millis(1500);
        let through = others.iter().map(|server| hammer(admin, server.through(), &path, lasts));
        let direct = others.iter().map(|server| hammer(admin, server.direct(), &path, lasts));
        // Every other round is without mvp, so that the two do not affect each other.
        let tallies = match round % 2 {
            0 => try_join_all(through).await?,
            _ => try_join_all(direct).await?,
        };
        for tally in tallies {
            if round % 2 == 0 { seen.add(&tally) } else { without.add(&tally) }
        }
    }
    ensure!(seen.total() > 100, "only {} requests", seen.total());
    // 429: the server asks to wait until its storage is set up.
    seen.only(&["200", "429"])?;

    let kind = json!({
        "apiVersion": "gadgets0.example.com/v1", "kind": "gadgets0", "metadata": {"name": "one"},
    });
    let path = collection("gadgets0");
    let to = cluster.server("c")?.through();
    admin.create(to, &path, &kind).await?.expect(201)?;
    admin.get(cluster.server("b")?.through(), &format!("{path}/one")).await?.expect(200)?;
    Ok(format!("through mvp {seen}; directly {without}"))
}

async fn deleted(cluster: &mut Cluster) -> anyhow::Result<String> {
    let plural = "widgets";
    let path = collection(plural);
    establish(cluster, "c", plural).await?;
    for server in &cluster.servers {
        until("it is served", Duration::from_secs(10), async || {
            cluster.admin.get(server.through(), &path).await?.expect(200).map(Some)
        })
        .await?;
    }
    // Every member lists it, and the tag is not that of the document without it.
    let mut listed_as = Vec::new();
    for server in &cluster.servers {
        let tag = until("discovery lists it", Duration::from_secs(15), async || {
            let answer = cluster.admin.get_as(server.through(), "/apis", V2).await?;
            let lists = answer.expect(200)?.to_string().contains("widgets.example.com");
            Ok(lists.then(|| answer.headers.get(http::header::ETAG).cloned()))
        })
        .await
        .with_context(|| format!("through {}", server.name()))?;
        listed_as.push(tag.context("no ETag")?);
    }
    let definition = format!("{DEFINITIONS}/{plural}.{plural}.example.com");
    cluster.admin.delete(cluster.server("a")?.direct(), &definition).await?.expect(200)?;
    let started = Instant::now();
    let mut tally = Tally::default();
    for server in &cluster.servers {
        until("it is gone", Duration::from_secs(15), async || {
            let answer = cluster.admin.get(server.through(), &path).await;
            tally.count(&answer);
            let answer = answer?;
            if answer.status == 404 { Ok(Some(())) } else { Ok(None) }
        })
        .await
        .with_context(|| format!("through {}", server.name()))?;
    }
    let gone = started.elapsed().as_secs_f64();
    tally.only(&["200", "404", "429", "503"])?;
    for server in &cluster.servers {
        until("no group is left in discovery", Duration::from_secs(15), async || {
            let answer = cluster.admin.get(server.through(), "/apis/widgets.example.com").await?;
            Ok((answer.status == 404).then_some(()))
        })
        .await?;
        let answer = cluster.admin.get_as(server.through(), "/apis", V2).await?;
        let tag = answer.headers.get(http::header::ETAG).context("no ETag")?;
        ensure!(!listed_as.contains(tag), "the ETag is that of the document with it");
        let lists = answer.expect(200)?.to_string().contains("widgets.example.com");
        ensure!(!lists, "{} still lists it", server.name());
    }
    Ok(format!("404 through every member after {gone:.1} s; meanwhile {tally}"))
}
