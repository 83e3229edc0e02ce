//! A server that no gateway is told of, and the StorageVersions that it writes: what they record for
//! it is not 404 elsewhere.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use super::objects;
use crate::client::{Answer, plain};
use crate::cluster::Cluster;
use crate::process::until;

const SOON: Duration = Duration::from_secs(60);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const RECORDS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const VERSION: &str = "/apis/scheduling.k8s.io/v1alpha2";
const NOWHERE: &str = "/apis/example.org/v1/nothings";

/// A gateway beside `a` that finds members by Leases; `b` is in them, without an address.
pub(super) async fn storage_versions(cluster: &mut Cluster) -> anyhow::Result<String> {
    let (a, b) = (cluster.server("a")?.direct(), cluster.server("b")?.direct());
    let admin = cluster.admin.clone();
    let workloads = objects::workload("default", "x").collection;
    let groups = format!("{VERSION}/namespaces/default/podgroups");
    for path in [&workloads, &groups] {
        admin.get(b, path).await?.expect(200)?;
        ensure!(admin.get(a, path).await?.status == 404, "{path}: the old server has it, too");
    }
    let (own, stranger) = (identity(cluster, "a").await?, identity(cluster, "b").await?);
    let (through, inside) = (SocketAddr::new(a.ip(), 7443), SocketAddr::new(a.ip(), 7480));

    // Without the right to list them, nothing is known of them, and the log says so.
    let kubectl = cluster.kubectl(a)?;
    let rights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac.yaml");
    let apply = ["apply".to_owned(), "-f".to_owned(), rights.display().to_string()];
    kubectl.run(&apply, None).await?;
    kubectl.run(["delete", "clusterrolebinding", "mixed-version-proxy"], None).await?;
    let (mut gateway, _) = cluster.another_gateway("a", |arguments| {
        arguments.retain(|flag| !flag.starts_with("--peer=") && !flag.starts_with("--server-id="));
        arguments.extend([
            "--membership=leases".to_owned(),
            format!("--server-id={own}"),
            format!("--peer-advertise-ip={}", a.ip()),
        ]);
    })?;
    until("the gateway is ready", SOON, async || {
        gateway.check()?;
        let answer = plain(inside, "/readyz").await?;
        ensure!(answer.status.is_success(), "{answer}");
        Ok(Some(()))
    })
    .await?;
    until("it says what it may not", SOON, async || {
        let log = std::fs::read_to_string(gateway.log())?;
        Ok(log.contains("listing StorageVersions is forbidden").then_some(()))
    })
    .await?;
    ensure!(admin.get(through, &workloads).await?.status == 404, "though it knows nothing");
    kubectl.run(&apply, None).await?;

    let asked = async |path: &str| {
        // What nobody has is missing all the while.
        let nowhere = admin.get(through, NOWHERE).await?;
        ensure!(nowhere.status == 404, "{NOWHERE}: {nowhere}");
        admin.get(through, path).await
    };
    let begun = Instant::now();
    until("what is recorded is not missing", SOON, async || {
        Ok((asked(&workloads).await?.status == 503).then_some(()))
    })
    .await?;
    let told = begun.elapsed();
    for path in [&*workloads, &*groups, VERSION] {
        is_refusal(&asked(path).await?, &stranger)?;
    }
    asked("/api/v1/nodes").await?.expect(200)?;
    let beta = "/apis/scheduling.k8s.io/v1beta1/workloads";
    ensure!(asked(beta).await?.status == 404, "a version that nobody serves");
    // A gateway that is told of it lets it answer.
    let known = cluster.server("a")?.through();
    admin.get(known, &workloads).await?.expect(200)?;

    // It restarts, as for its upgrade; it takes its Lease away meanwhile.
    let (mut held, mut left) = (0, false);
    let server = cluster.server_mut("b")?.process()?;
    server.signal(Signal::TERM)?;
    let ended = Instant::now();
    while server.check().is_ok() {
        ensure!(ended.elapsed() < SOON, "it does not end");
        is_refusal(&asked(&workloads).await?, &stranger)?;
        held += 1;
    }
    cluster.start_server(cluster.index("b")?)?;
    let started = Instant::now();
    loop {
        ensure!(started.elapsed() < 2 * SOON, "it is not back");
        is_refusal(&asked(&workloads).await?, &stranger)?;
        held += 1;
        let present = member(inside, &stranger).await?.pointer("/present").cloned();
        left |= present == Some(json!(false));
        let ready = admin.get(b, "/readyz").await.is_ok_and(|answer| answer.status == 200);
        if ready && present == Some(json!(true)) {
            break;
        }
    }
    ensure!(left, "its Lease was there all the while: the test shows less than it says");

    // A record that somebody deletes counts no more; the others do.
    admin.delete(a, &format!("{RECORDS}/scheduling.k8s.io.podgroups")).await?.expect(200)?;
    let begun = Instant::now();
    until("a record that is gone holds nothing up", SOON, async || {
        Ok((asked(&groups).await?.status == 404).then_some(()))
    })
    .await?;
    let deleted = begun.elapsed();
    is_refusal(&asked(&workloads).await?, &stranger)?;

    // Nobody deletes the records of the dead here, and they do not count.
    cluster.server_mut("b")?.kill();
    admin.delete(a, &format!("{LEASES}/{stranger}")).await?.expect(200)?;
    until("it has left", SOON, async || {
        let left = member(inside, &stranger).await?.pointer("/present") == Some(&json!(false));
        Ok(left.then_some(()))
    })
    .await?;
    is_refusal(&asked(&workloads).await?, &stranger)?;
    let forget = ["forget", &stranger, &format!("--admin-address={inside}")];
    let forgot = Command::new(&cluster.programs.mvp).args(forget).output().await?;
    ensure!(forgot.status.success(), "{}", String::from_utf8_lossy(&forgot.stderr));
    until("who is forgotten holds nothing up", SOON, async || {
        Ok((asked(&workloads).await?.status == 404).then_some(()))
    })
    .await?;
    admin.get(a, &format!("{RECORDS}/scheduling.k8s.io.workloads")).await?.expect(200)?;
    Ok(format!(
        "404 from 1.34 itself, 503 through its gateway, for what only a 1.36 without an address \
         has; {:.1} s after the right to know, {held} requests through its restart; 404 {:.1} s \
         after a record is deleted, and for what is recorded of the dead once forgotten",
        told.as_secs_f64(),
        deleted.as_secs_f64()
    ))
}

/// The ID of a server, by its Lease.
async fn identity(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let server = cluster.server(name)?;
    let list = format!("{LEASES}?labelSelector=kubernetes.io/hostname={name}");
    let leases = cluster.admin.get(server.direct(), &list).await?.expect(200)?;
    let id = leases.pointer("/items/0/metadata/name").and_then(Value::as_str);
    let address = "/items/0/metadata/annotations/kubernetes.io~1peer-advertise-address";
    ensure!(leases.pointer(address).is_none(), "{name} says where it is");
    Ok(id.with_context(|| format!("{name} has no Lease"))?.to_owned())
}

/// What the gateway knows of a member.
async fn member(inside: SocketAddr, id: &str) -> anyhow::Result<Value> {
    let snapshot = plain(inside, "/debug/snapshot").await?.json();
    let members = snapshot.get("members").and_then(Value::as_array).context("no members")?;
    let known = members.iter().find(|member| member.get("id") == Some(&json!(id)));
    Ok(known.cloned().unwrap_or_default())
}

fn is_refusal(answer: &Answer, of: &str) -> anyhow::Result<()> {
    let status = answer.expect(503)?;
    let message = status.get("message").and_then(Value::as_str).unwrap_or_default();
    let named = message.contains("StorageVersion") && message.contains(of);
    ensure!(named, "another reason: {answer}");
    Ok(())
}
