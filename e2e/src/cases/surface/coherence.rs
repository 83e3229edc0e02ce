//! Every verb of every resource that the merged discovery documents list is requested.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use super::{V2, items, same, text};
use crate::client::{Client, Connection, whole};
use crate::cluster::Cluster;

/// A verb of discovery as a request that changes nothing.
fn request(verb: &str, one: &str, all: &str) -> Option<(Method, String, Option<&'static str>)> {
    let json = Some("application/json");
    Some(match verb {
        "get" => (Method::GET, one.to_owned(), None),
        "list" => (Method::GET, format!("{all}?limit=1"), None),
        "watch" => (Method::GET, format!("{all}?watch=true&timeoutSeconds=1"), None),
        "create" => (Method::POST, format!("{all}?dryRun=All"), json),
        "update" => (Method::PUT, format!("{one}?dryRun=All"), json),
        "patch" => {
            (Method::PATCH, format!("{one}?dryRun=All"), Some("application/merge-patch+json"))
        }
        "delete" => (Method::DELETE, format!("{one}?dryRun=All"), json),
        "deletecollection" => {
            (Method::DELETE, format!("{all}?dryRun=All&labelSelector=no%3Dsuch"), json)
        }
        _ => return None,
    })
}

/// What a document promises: how to ask for it, and what to call it.
struct Promise {
    method: Method,
    path: String,
    content_type: Option<&'static str>,
}

/// All that a document in the aggregated form promises.
fn promises(document: &Value) -> Vec<Promise> {
    let mut promises = Vec::new();
    for group in items(document, "/items") {
        let name = text(group, "/metadata/name");
        for version in items(group, "/versions") {
            let prefix = match name {
                "" => format!("/api/{}", text(version, "/version")),
                name => format!("/apis/{name}/{}", text(version, "/version")),
            };
            for resource in items(version, "/resources") {
                let namespace = match text(resource, "/scope") {
                    "Namespaced" => "/namespaces/default",
                    _ => "",
                };
                let all = format!("{prefix}{namespace}/{}", text(resource, "/resource"));
                let one = format!("{all}/no-such-object");
                add(&mut promises, resource, &one, &all);
                for subresource in items(resource, "/subresources") {
                    let one = format!("{one}/{}", text(subresource, "/subresource"));
                    add(&mut promises, subresource, &one, &one);
                }
            }
        }
    }
    promises
}

fn add(promises: &mut Vec<Promise>, of: &Value, one: &str, all: &str) {
    for verb in items(of, "/verbs").filter_map(Value::as_str) {
        if let Some((method, path, content_type)) = request(verb, one, all) {
            promises.push(Promise { method, path, content_type });
        }
    }
}

pub(super) async fn coherence(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut promised = Vec::new();
    for path in ["/api", "/apis"] {
        promised.extend(promises(&same(cluster, path, V2).await?.json()));
    }
    // The harm: what the merged document promises, asked of each server alone.
    let mut broken = 0;
    for server in &cluster.servers {
        broken += kept(&cluster.admin, server.direct(), &promised).await?.len();
    }
    ensure!(broken > 0, "every server serves all: nothing is shown");
    for server in &cluster.servers {
        let broken = kept(&cluster.admin, server.through(), &promised).await?;
        ensure!(
            broken.is_empty(),
            "through {}: {} promises are broken, such as {:?}",
            server.name(),
            broken.len(),
            broken.first()
        );
    }
    Ok(format!(
        "{} promises (resource, subresource, verb) × 3 members, none answered 404 by routing; directly {broken} are",
        promised.len()
    ))
}

/// Asks for all that was promised; gives what was answered with a 404 of routing, or a 503.
async fn kept(
    client: &Client,
    to: SocketAddr,
    promised: &[Promise],
) -> anyhow::Result<Vec<String>> {
    let size = promised.len().div_ceil(8).max(1);
    let workers = promised.chunks(size).map(|chunk| async move {
        let mut connection: Option<Connection> = None;
        let mut broken = Vec::new();
        for Promise { method, path, content_type } in chunk {
            let mut at = match connection.take() {
                Some(connection) => connection,
                None => client.connect(to).await?,
            };
            let object = json!({});
            let body = content_type.map(|content_type| (content_type, &object));
            let head = at.start(method.clone(), path, body).await;
            let head = head.with_context(|| format!("{method} {path} at {to}"))?;
            // A watch that began was routed; nobody waits for its end.
            if head.status() == 200 {
                let whole = !path.contains("watch=true") && whole(head).await.is_ok();
                connection = whole.then_some(at);
                continue;
            }
            let answer = whole(head).await?;
            let routed = !String::from_utf8_lossy(&answer.body)
                .contains("the server could not find the requested resource")
                && !answer.body.starts_with(b"404 page not found");
            // A refusal is no 404, but no promise kept either.
            if (answer.status == 404 && !routed) || answer.status == 503 {
                broken.push(format!("{method} {path}: {answer}"));
            }
            let closes = answer.headers.get("connection").is_some_and(|value| value == "close");
            connection = (!closes).then_some(at);
        }
        anyhow::Ok(broken)
    });
    Ok(try_join_all(workers).await?.concat())
}
