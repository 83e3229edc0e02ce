//! Each server lacks an API of another: through its gateway the API works.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};

use super::objects::{self, Kind};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "routing/every-verb",
            every_verb,
            "every verb works through a server that does not serve the API"
        ),
        case!(
            Mixed,
            "routing/newer-api",
            newer_api,
            "an API of 1.36 works through 1.34, which has no proxy of its own"
        ),
        case!(
            Mixed,
            "routing/kubectl",
            kubectl,
            "kubectl works through a server that does not serve the API"
        ),
    ]
}

async fn every_verb(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("routing").await?;
    let lacking = [
        ("a", objects::autoscaler("routing", "one")),
        ("b", objects::job("routing", "one")),
        ("c", objects::disruption_budget("routing", "one")),
    ];
    let mut verbs = 0;
    for (name, kind) in lacking {
        let server = cluster.server(name)?;
        let context = format!("{} through {name}", kind.name);
        not_routed(&cluster.admin, server.direct(), &kind).await.context(context.clone())?;
        verbs += life(&cluster.admin, server.through(), &kind).await.context(context)?;
    }
    Ok(format!("3 kinds, each through the server without it: {verbs} requests as directly"))
}

async fn newer_api(cluster: &mut Cluster) -> anyhow::Result<String> {
    let kind = objects::mutating_policy("e2e-newer-api");
    let old = cluster.server("b")?;
    not_routed(&cluster.admin, old.direct(), &kind).await?;
    let verbs = life(&cluster.admin, old.through(), &kind).await?;
    Ok(format!("{} through 1.34: {verbs} requests as directly", kind.name))
}

/// Asserts that there is an unrouted 404 without `mvp`.
pub(super) async fn not_routed(
    client: &Client,
    direct: SocketAddr,
    kind: &Kind,
) -> anyhow::Result<()> {
    let answer = client.get(direct, &kind.collection).await?;
    let text = String::from_utf8_lossy(&answer.body);
    let of_routing = text.contains("404 page not found")
        || text.contains("the server could not find the requested resource");
    ensure!(answer.status == 404 && of_routing, "it should lack {}: {answer}", kind.name);
    Ok(())
}

/// Creates, changes and deletes an object, with a watch that sees all of it. Returns the number of
/// requests.
pub(super) async fn life(client: &Client, to: SocketAddr, kind: &Kind) -> anyhow::Result<usize> {
    let path = &kind.collection;
    let name = kind.object.pointer("/metadata/name").and_then(Value::as_str).context("no name")?;
    let one = format!("{path}/{name}");
    let patch = async |content_type: &str, query: &str, patch: Value| {
        let path = format!("{one}{query}");
        let answer = client.send(to, Method::PATCH, &path, Some((content_type, &patch))).await?;
        answer.expect(200).with_context(|| format!("PATCH with {content_type}"))
    };
    let label = |object: &Value, name: &str| {
        let value = object.pointer(&format!("/metadata/labels/{name}")).and_then(Value::as_str);
        value.map(str::to_owned)
    };

    let list = client.get(to, path).await?.expect(200).context("list")?;
    let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let version = version.context("a list without resourceVersion")?;
    let mut watch = client.watch(to, &format!("{path}?watch=1&resourceVersion={version}")).await?;

    client.create(to, path, &kind.object).await?.expect(201).context("create")?;
    let change = watch.next_change().await?;
    ensure!(change == format!("ADDED {name}"), "the watch says {change}");
    let again = client.create(to, path, &kind.object).await?.expect(409).context("create again")?;
    ensure!(again.pointer("/reason") == Some(&json!("AlreadyExists")), "{again}");

    let object = client.get(to, &one).await?.expect(200).context("get")?;
    let listed = client.get(to, path).await?.expect(200).context("list")?;
    let mut items = listed.pointer("/items").and_then(Value::as_array).into_iter().flatten();
    let is_listed = items.any(|item| item.pointer("/metadata/name") == Some(&json!(name)));
    ensure!(is_listed, "it is not in the list: {listed}");

    let merge = json!({"metadata": {"labels": {"merged": "yes"}}});
    let patched = patch("application/merge-patch+json", "", merge).await?;
    ensure!(label(&patched, "merged").as_deref() == Some("yes"), "not patched: {patched}");
    ensure!(watch.next_change().await? == format!("MODIFIED {name}"), "no MODIFIED");

    let type_meta = (object.get("apiVersion"), object.get("kind"));
    let apply = json!({
        "apiVersion": type_meta.0, "kind": type_meta.1,
        "metadata": {"name": name, "labels": {"applied": "yes"}},
    });
    let query = "?fieldManager=e2e&force=true";
    let applied = patch("application/apply-patch+yaml", query, apply).await?;
    ensure!(label(&applied, "applied").as_deref() == Some("yes"), "not applied: {applied}");
    ensure!(label(&applied, "merged").as_deref() == Some("yes"), "apply took more: {applied}");
    ensure!(watch.next_change().await? == format!("MODIFIED {name}"), "no MODIFIED");

    let mut update = applied.clone();
    if let Some(labels) = update.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.insert("updated".to_owned(), json!("yes"));
    }
    let updated = client.send(to, Method::PUT, &one, Some(("application/json", &update))).await?;
    let updated = updated.expect(200).context("update")?;
    ensure!(label(&updated, "updated").as_deref() == Some("yes"), "not updated: {updated}");
    ensure!(watch.next_change().await? == format!("MODIFIED {name}"), "no MODIFIED");
    // One that is not the latest is refused by the server, as directly.
    let stale = client.send(to, Method::PUT, &one, Some(("application/json", &update))).await?;
    stale.expect(409).context("update of a stale object")?;

    // Without a word on dependents, a Job would wait for the garbage collector.
    let delete = format!("{one}?propagationPolicy=Background");
    client.delete(to, &delete).await?.expect(200).context("delete")?;
    let change = watch.next_change().await?;
    ensure!(change == format!("DELETED {name}"), "the watch says {change}");
    let missing = client.get(to, &one).await?.expect(404).context("get of what is gone")?;
    ensure!(missing.pointer("/details/name") == Some(&json!(name)), "no true 404: {missing}");
    Ok(12)
}

async fn kubectl(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("kubectl").await?;
    let old = cluster.server("b")?;
    let directly = cluster.kubectl(old.direct())?;
    let said = directly.try_run(&["-n", "kubectl", "get", "jobs"], None).await?;
    ensure!(!said.ok && said.errors.contains("doesn't have a resource type"), "{said:?}");

    let mut commands = 0;
    let kinds = [
        ("a", "hpa", objects::autoscaler("kubectl", "one")),
        ("b", "job", objects::job("kubectl", "one")),
        ("c", "pdb", objects::disruption_budget("kubectl", "one")),
        ("b", "mutatingadmissionpolicy", objects::mutating_policy("e2e-kubectl")),
    ];
    for (name, short, kind) in kinds {
        let kubectl = cluster.kubectl(cluster.server(name)?.through())?;
        let object = kind.object.to_string();
        let named = kind.object.pointer("/metadata/name").and_then(Value::as_str);
        let named = named.context("no name")?;
        let mut run = async |arguments: &[&str], input: Option<&str>| {
            commands += 1;
            let arguments = ["-n", "kubectl"].iter().chain(arguments).copied();
            kubectl.run(arguments, input).await.with_context(|| format!("through {name}"))
        };
        run(&["create", "-f", "-"], Some(&object)).await?;
        let got = run(&["get", short, "-o", "name"], None).await?;
        ensure!(got.trim().ends_with(&format!("/{named}")), "get printed {got}");
        let applied = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        run(&applied, Some(&object)).await?;
        run(&["label", short, named, "by=kubectl"], None).await?;
        let labelled = run(&["get", short, "-l", "by=kubectl", "-o", "name"], None).await?;
        ensure!(labelled.trim().ends_with(&format!("/{named}")), "get -l printed {labelled}");
        // Waits with a watch until it is gone.
        run(&["delete", short, named], None).await?;
        let left = run(&["get", short, "-o", "name"], None).await?;
        ensure!(!left.contains(&format!("/{named}")), "still there: {left}");
    }
    let kubectl = cluster.kubectl(old.through())?;
    let resources = kubectl.run(["api-resources", "-o", "name"], None).await?;
    for resource in ["jobs.batch", "mutatingadmissionpolicies.admissionregistration.k8s.io"] {
        ensure!(resources.lines().any(|line| line == resource), "no {resource}: {resources}");
    }
    let count = resources.lines().count();
    Ok(format!("{commands} commands on 4 kinds; api-resources through 1.34 lists {count}"))
}
