//! Members by an etcd of the case's own: of three members that are killed, with TLS, with users and
//! their rights, and with a past that it forgets.

mod servers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::kubernetes::file_flag;
use testkit::pki::PairFiles;
use testkit::process::{Signal, until};

use super::super::objects;
use super::{Finder, SOON, found, has_left, is_present};
use crate::client::{plain, plain_post};
use crate::cluster::Cluster;
use crate::relay::Relay;
use crate::suite::Case;
use servers::{Etcds, Secure};

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "membership/etcd",
            outages,
            "membership in an etcd of three: one member is killed, then all"
        ),
        case!(
            Mixed,
            "membership/tls-of-etcd",
            tls,
            "etcd with client certificates: errors are logged, new files fix them"
        ),
        case!(
            Mixed,
            "membership/rights-in-etcd",
            auth,
            "an etcd user without permissions: logged, nobody lost, fixed by a grant"
        ),
        case!(
            Mixed,
            "membership/past-of-etcd",
            compaction,
            "changes survive an etcd compaction; a deleted key is written again"
        ),
    ]
}

/// Where gateways keep their keys.
const FOLDER: &str = "/registry/mixed-version-proxy/";
const SERVERS: &str = "/registry/peerserverleases/";

async fn outages(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut members = Etcds::start(cluster)?;
    let flags =
        ["--membership=etcd".to_owned(), format!("--etcd-servers={}", members.urls().join(","))];
    let mut all = Finder::three(cluster, 16743, &flags)?;
    found(cluster, &mut all).await?;
    let [a, b, mut c] = all;

    // One of three is killed; whoever was with it goes on with another.
    members.kill(0);
    c.process.signal(Signal::TERM)?;
    let left = b.until("left", "finder-c", has_left).await?;
    c.process.exited(Duration::from_secs(30)).await?;
    let mut c = Finder::start(cluster, "c", 16743, &flags)?;
    c.ready().await?;
    let back = b.until("present", "finder-c", is_present).await?;
    let mut all = [a, b, c];
    found(cluster, &mut all).await?;
    let [a, mut b, mut c] = all;

    // Nothing is left of it: what was known last stays, for longer than any lease lasts.
    (0..3).for_each(|index| members.kill(index));
    let job = objects::job("default", "x");
    let gone = Instant::now();
    let mut reads = 0;
    while gone.elapsed() < Duration::from_secs(20) {
        cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
        reads += 1;
    }
    for finder in [&a, &b, &c] {
        for other in ["a", "b", "c"] {
            let known = finder.knows(&format!("finder-{other}")).await?.unwrap_or_default();
            ensure!(is_present(&known), "{} of {other}: {known}", finder.name);
        }
    }
    (0..3).try_for_each(|index| members.run(cluster, index))?;
    // Who is killed now is seen to go, by a lease that ends.
    b.ready().await?;
    c.process.kill();
    let ended = b.until("left", "finder-c", has_left).await?;
    Ok(format!(
        "one member of etcd killed: a leave known after {:.1} s, a return after {:.1} s; all three \
         killed for 20 s: {reads} reads, all 200, nobody lost; then a kill -9 known after {:.0} s",
        left.as_secs_f64(),
        back.as_secs_f64(),
        ended.as_secs_f64()
    ))
}

/// How a gateway is called that uses it, by a pair of the file system.
fn flags(at: SocketAddr, ca: &std::path::Path, pair: Option<&PairFiles>) -> Vec<String> {
    let mut flags = vec![
        "--membership=etcd".to_owned(),
        format!("--etcd-servers=https://{at}"),
        file_flag("etcd-cafile", ca),
    ];
    flags.extend(pair.iter().flat_map(|pair| {
        [file_flag("etcd-certfile", &pair.certificate), file_flag("etcd-keyfile", &pair.key)]
    }));
    flags
}

async fn tls(cluster: &mut Cluster) -> anyhow::Result<String> {
    let etcd = Secure::start(cluster, "tls")?;
    let (pki, folder) = (&cluster.pki, cluster.folder());
    let good = pki.user("finder", &[])?;
    let (ca, pair) = (
        folder.join("etcd-ca.crt"),
        PairFiles { certificate: folder.join("etcd.crt"), key: folder.join("etcd.key") },
    );
    let put = |from: &PathBuf, to: &PathBuf| {
        let beside = to.with_extension("next");
        std::fs::copy(from, &beside)?;
        anyhow::Ok(std::fs::rename(&beside, to)?)
    };
    // The wrong authority of etcd, and then the wrong one of ours.
    let stranger = pki.untrusted_user("finder", &[])?;
    put(&pki.files().front_proxy_ca(), &ca)?;
    put(&stranger.certificate, &pair.certificate)?;
    put(&stranger.key, &pair.key)?;
    let mut b = Finder::start(cluster, "b", 17143, &flags(etcd.address(), &ca, Some(&pair)))?;
    b.fails("etcd's certificate cannot be verified").await?;
    put(&pki.files().ca(), &ca)?;
    b.fails("etcd rejects the client certificate").await?;
    put(&good.certificate, &pair.certificate)?;
    put(&good.key, &pair.key)?;
    b.ready().await?;
    // None at all.
    let mut c = Finder::start(cluster, "c", 17143, &flags(etcd.address(), &ca, None))?;
    c.fails("etcd requires a client certificate; set --etcd-certfile").await?;
    c.process.kill();
    let with = flags(etcd.address(), &ca, Some(&pair));
    let c = Finder::start(cluster, "c", 17143, &with)?;
    let a = Finder::start(cluster, "a", 17143, &with)?;
    let mut all = [a, b, c];
    found(cluster, &mut all).await?;
    // A new certificate, and nobody is lost.
    let next = pki.user("finder", &[])?;
    put(&next.certificate, &pair.certificate)?;
    put(&next.key, &pair.key)?;
    for finder in &all {
        until(&format!("{} uses the new certificate", finder.name), SOON, async || {
            let metrics = plain(finder.admin, "/metrics").await?;
            let text = String::from_utf8_lossy(&metrics.body).into_owned();
            let is = |line: &str| {
                line.starts_with("mvp_reload_total{")
                    && line.contains("flag=\"etcd-certfile\"")
                    && line.contains("result=\"ok\"")
            };
            let reloads = text.lines().find(|line| is(line)).unwrap_or_default();
            let times: f64 = reloads.rsplit(' ').next().unwrap_or_default().parse().unwrap_or(0.0);
            // The first gateway had a wrong one before.
            ensure!(times >= if finder.name == "b" { 2.0 } else { 1.0 }, "{reloads:?}");
            Ok(Some(()))
        })
        .await?;
    }
    let [a, b, c] = all;
    c.process.signal(Signal::TERM)?;
    let left = b.until("left", "finder-c", has_left).await?;
    ensure!(is_present(&b.knows("finder-a").await?.unwrap_or_default()), "a is lost");
    drop(a);
    Ok(format!(
        "a wrong CA, a certificate of a wrong CA and none are told in log and /readyz; mended by new \
         files; after the next certificate a leave is known after {:.1} s",
        left.as_secs_f64()
    ))
}

async fn auth(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut etcd = Secure::start(cluster, "auth")?;
    let user = cluster.pki.user("finder", &[])?;
    let with = flags(etcd.address(), &cluster.pki.files().ca(), Some(&user));
    let mut all = Finder::three(cluster, 17243, &with)?;
    found(cluster, &mut all).await?;
    // Rights come to count, and the user has none. Watches that there are go on: etcd restarts.
    etcd.enable_auth().await?;
    etcd.kill();
    etcd.run(cluster)?;
    for finder in &mut all {
        finder.fails("etcd denies access").await?;
    }
    let job = objects::job("default", "x");
    let (begun, mut reads) = (Instant::now(), 0);
    let [_, b, _] = &all;
    // Longer than any lease lasts.
    while begun.elapsed() < Duration::from_secs(18) {
        cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
        reads += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for finder in &all {
        for other in ["a", "b", "c"] {
            let known = finder.knows(&format!("finder-{other}")).await?.unwrap_or_default();
            ensure!(is_present(&known), "{} of {other}: {known}", finder.name);
        }
    }
    etcd.log_in().await?;
    etcd.grant(FOLDER, "READWRITE").await?;
    etcd.grant(SERVERS, "READ").await?;
    for finder in &mut all {
        finder.ready().await?;
    }
    let [a, b, c] = all;
    c.process.signal(Signal::TERM)?;
    let left = b.until("left", "finder-c", has_left).await?;
    drop(a);
    Ok(format!(
        "a user without rights: told in log and /readyz, {reads} reads meanwhile all 200, nobody lost; \
         ready after the grant, a leave known after {:.1} s",
        left.as_secs_f64()
    ))
}

async fn compaction(cluster: &mut Cluster) -> anyhow::Result<String> {
    let etcd = Secure::start(cluster, "compaction")?;
    let user = cluster.pki.user("finder", &[])?;
    let relay = Relay::start(cluster.spare_address(), &[etcd.address()]).await?;
    let ca = cluster.pki.files().ca();
    let (directly, by_relay) =
        (flags(etcd.address(), &ca, Some(&user)), flags(relay.address(), &ca, Some(&user)));
    let a = Finder::start(cluster, "a", 17343, &directly)?;
    let b = Finder::start(cluster, "b", 17343, &by_relay)?;
    let c = Finder::start(cluster, "c", 17343, &directly)?;
    let mut all = [a, b, c];
    found(cluster, &mut all).await?;
    let [a, mut b, c] = all;

    // While b hears nothing, c leaves, much else happens, and etcd forgets all of it.
    relay.lead_to(SocketAddr::new(cluster.client_address(), 9));
    c.process.signal(Signal::TERM)?;
    a.until("left", "finder-c", has_left).await?;
    let mut revision = Value::Null;
    for number in 0..200 {
        let (key, value) =
            (BASE64.encode(format!("{FOLDER}none-{}", number % 3)), BASE64.encode("{"));
        let put = etcd.ask("/v3/kv/put", json!({"key": key, "value": value})).await?;
        revision = put.pointer("/header/revision").cloned().context("no revision")?;
    }
    etcd.ask("/v3/kv/compaction", json!({"revision": revision, "physical": true})).await?;
    etcd.ask("/v3/maintenance/defragment", json!({})).await?;
    ensure!(is_present(&b.knows("finder-c").await?.unwrap_or_default()), "b heard of it");
    relay.lead_to(etcd.address());
    let saw = b.until("left", "finder-c", has_left).await?;
    b.ready().await?;

    // Somebody deletes a key.
    let key = format!("{FOLDER}finder-a@{}", a.through);
    let before = etcd.created(&key).await?.context("a has no key")?;
    etcd.ask("/v3/kv/deleterange", json!({"key": BASE64.encode(&key)})).await?;
    let deleted = Instant::now();
    until("the key is back", SOON, async || {
        let now = etcd.created(&key).await?;
        Ok(now.filter(|now| *now != before))
    })
    .await?;
    let mended = deleted.elapsed();
    b.until("present", "finder-a", is_present).await?;
    let job = objects::job("default", "x");
    cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
    Ok(format!(
        "cut off while a member left and etcd was compacted: seen {:.1} s after the cable was mended; a \
         key that somebody deletes is back after {:.1} s",
        saw.as_secs_f64(),
        mended.as_secs_f64()
    ))
}

/// How many keys of kube-apiservers there are in the cluster's own etcd, all of them protobuf.
pub(super) async fn stored_as_protobuf(cluster: &Cluster) -> anyhow::Result<usize> {
    let etcd: SocketAddr = cluster.etcd_url().trim_start_matches("http://").parse()?;
    let (key, end) = (BASE64.encode(SERVERS), BASE64.encode("/registry/peerserverleases0"));
    let range = json!({"key": key, "range_end": end});
    let there = plain_post(etcd, "/v3/kv/range", None, &range).await?.expect(200)?;
    let keys = there.get("kvs").and_then(Value::as_array).context("no keys")?;
    for kv in keys {
        let value = kv.get("value").and_then(Value::as_str).unwrap_or_default();
        let value = BASE64.decode(value)?;
        ensure!(value.starts_with(b"k8s\0"), "{kv} is not protobuf");
    }
    ensure!(!keys.is_empty(), "nobody keeps a key");
    Ok(keys.len())
}
