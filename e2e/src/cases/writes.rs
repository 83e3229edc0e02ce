//! Writes of an object with a field that only the newer release knows: what `mvp` guarantees, and
//! what not (docs/upgrade.md).

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};

use super::objects;
use crate::client::{Answer, Client};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "writes/newest-first",
            newest_first,
            "a write goes to the newest capable server: no field is lost"
        ),
        case!(
            Mixed,
            "writes/local-down",
            local_down,
            "an older server does not accept writes for a newer one that is down"
        ),
        case!(
            Mixed,
            "writes/not-promised",
            not_promised,
            "known limit: a write at an older server that serves the kind loses a field"
        ),
        case!(
            Emulated,
            "emulated/newest-first",
            newest_first,
            "a server that emulates an older version counts as that version"
        ),
    ]
}

const DRIVER_FIELD: &str = "/spec/serviceAccountTokenInSecrets";
const AUTOSCALER_FIELD: &str = "/spec/behavior/scaleUp/tolerance";

/// If the local server lacks the API, the newest capable server gets the write.
async fn newest_first(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("writes").await?;
    let admin = &cluster.admin;
    let make = async |name: &str, to| {
        let mut kind = objects::autoscaler("writes", name);
        // Off by default in 1.34, where the field is dropped.
        let behavior = json!({"scaleUp": {"tolerance": "50m"}});
        let spec = kind.object.pointer_mut("/spec").and_then(Value::as_object_mut);
        spec.context("no spec")?.insert("behavior".to_owned(), behavior);
        let made = admin.create(to, &kind.collection, &kind.object).await?.expect(201)?;
        anyhow::Ok(made.pointer(AUTOSCALER_FIELD).is_some())
    };
    let older = cluster.server("b")?.direct();
    ensure!(!make("by-1.34", older).await?, "1.34 keeps the field: it shows nothing any more");
    // `a` lacks autoscaling/v2; `b` of 1.34, or of 1.36 in place of 1.34, and `c` of 1.36 have it.
    let through = cluster.server("a")?.through();
    let rounds = 20;
    for round in 0..rounds {
        let kept = make(&format!("by-the-newest-{round}"), through).await?;
        ensure!(kept, "write {round} lost the field: 1.34 got it");
    }
    Ok(format!(
        "{rounds} writes, each by 1.36, although 1.34 serves it; directly at 1.34 the field is lost"
    ))
}

/// While the local server is down, no older server gets its writes.
async fn local_down(cluster: &mut Cluster) -> anyhow::Result<String> {
    let admin = cluster.admin.clone();
    let driver = objects::csi_driver("writes.example.com");
    let path = format!("{}/writes.example.com", driver.collection);
    let (a, c) = (cluster.server("a")?.direct(), cluster.server("c")?.direct());
    let through = cluster.server("c")?.through();
    admin.create(a, &driver.collection, &driver.object).await?.expect(201)?;

    // `a` of 1.36 and `b` of 1.34 are left: `a` gets every write.
    cluster.server_mut("c")?.process()?.kill();
    let rounds = 10;
    for round in 0..rounds {
        let written = label(&admin, through, &path, round).await?;
        let written = written.expect(200).with_context(|| format!("write {round}"))?;
        ensure!(written.pointer(DRIVER_FIELD).is_some(), "write {round} lost the field");
    }
    // `b` alone is left: it may read, and not write.
    cluster.server_mut("a")?.kill();
    let refused = label(&admin, through, &path, rounds).await?;
    let status = refused.expect(503).context("a write that only 1.34 could do")?;
    let message = status.pointer("/message").and_then(Value::as_str).unwrap_or_default();
    ensure!(!message.contains("server-b"), "1.34 was tried: {message}");
    admin.get(through, &path).await?.expect(200).context("a read that 1.34 can do")?;

    cluster.heal().await?;
    let after = admin.get(c, &path).await?.expect(200)?;
    ensure!(after.pointer(DRIVER_FIELD).is_some(), "the field is gone: {after}");
    ensure!(after.pointer("/metadata/labels/round") == Some(&json!("9")), "{after}");
    Ok(format!("{rounds} writes by 1.36 in place of the local 1.36; with 1.34 alone: 503"))
}

/// Not guaranteed: a server that serves the resource itself gets the write, however old it is.
async fn not_promised(cluster: &mut Cluster) -> anyhow::Result<String> {
    let admin = &cluster.admin;
    let driver = objects::csi_driver("older.example.com");
    let path = format!("{}/older.example.com", driver.collection);
    let (a, older) = (cluster.server("a")?.direct(), cluster.server("b")?);
    for (how, to) in [("directly", older.direct()), ("through its gateway", older.through())] {
        let made = admin.create(a, &driver.collection, &driver.object).await?.expect(201)?;
        ensure!(made.pointer(DRIVER_FIELD).is_some(), "1.36 lost it: {made}");
        label(admin, to, &path, 0).await?.expect(200)?;
        let after = admin.get(a, &path).await?.expect(200)?;
        ensure!(after.pointer(DRIVER_FIELD).is_none(), "{how} it is kept now: mend the docs");
        admin.delete(a, &path).await?.expect(200)?;
    }
    Ok("a label through the address of 1.34, which serves the kind, costs the field: \
        with mvp as without"
        .to_owned())
}

async fn label(
    client: &Client,
    to: std::net::SocketAddr,
    path: &str,
    round: usize,
) -> anyhow::Result<Answer> {
    let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
    let body = Some(("application/merge-patch+json", &patch));
    client.send(to, Method::PATCH, path, body).await
}
