//! Members that find each other: gateways beside the servers of a cluster, with nothing written down.

mod etcd;
mod flood;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::objects;
use crate::client::plain;
use crate::cluster::Cluster;
use crate::process::{Process, until};

pub(super) use etcd::{auth as etcd_auth, compaction as etcd_compaction};
pub(super) use etcd::{outages as etcd, tls as etcd_tls};
pub(super) use flood::flood;

/// What is waited for comes within seconds; a machine with other work takes longer.
const SOON: Duration = Duration::from_secs(60);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// A gateway of the case's own, beside a server of the cluster.
struct Finder {
    name: &'static str,
    through: SocketAddr,
    admin: SocketAddr,
    process: Process,
}

impl Finder {
    /// Starts it on that port, with these flags.
    fn start(
        cluster: &Cluster,
        name: &'static str,
        port: u16,
        flags: &[String],
    ) -> anyhow::Result<Finder> {
        let through = SocketAddr::new(cluster.server(name)?.through().ip(), port);
        Finder::start_at(cluster, name, through, flags)
    }

    /// One beside each server.
    fn three(cluster: &Cluster, port: u16, flags: &[String]) -> anyhow::Result<[Finder; 3]> {
        let start = |name| Finder::start(cluster, name, port, flags);
        Ok([start("a")?, start("b")?, start("c")?])
    }

    /// The same at another address.
    fn start_at(
        cluster: &Cluster,
        name: &'static str,
        through: SocketAddr,
        flags: &[String],
    ) -> anyhow::Result<Finder> {
        let server = cluster.server(name)?;
        let port = through.port();
        let admin = SocketAddr::new(through.ip(), port + 1000);
        let mut arguments = vec![
            "serve".to_owned(),
            format!("--bind-address={}", through.ip()),
            format!("--secure-port={port}"),
            // All members are on this host.
            format!("--peer-advertise-ip={}", through.ip()),
            format!("--admin-bind-address={admin}"),
            format!("--local-server=https://{}", server.direct()),
            format!("--server-id=finder-{name}"),
            "--workers=1".to_owned(),
        ];
        arguments.extend(cluster.pki.gateway_flags());
        arguments.extend_from_slice(flags);
        let log = cluster.folder().join(format!("finder-{name}.mvp.log"));
        let title = format!("finder-{name}");
        let process = Process::start(&title, &log, &cluster.programs.mvp, arguments)?;
        Ok(Finder { name, through, admin, process })
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        until(&format!("the gateway of {} is ready", self.name), SOON, async || {
            self.process.check()?;
            let answer = plain(self.admin, "/readyz").await?;
            ensure!(answer.status.is_success(), "{answer}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until it says that it is not ready, for this reason.
    async fn fails(&mut self, why: &str) -> anyhow::Result<()> {
        until(&format!("{} says: {why}", self.name), SOON, async || {
            self.process.check()?;
            let said = plain(self.admin, "/readyz").await?;
            let said = String::from_utf8_lossy(&said.body).into_owned();
            ensure!(said.contains(&format!("[-]membership failed: {why}")), "{said}");
            Ok(Some(()))
        })
        .await?;
        let log = std::fs::read_to_string(self.process.log())?;
        let logged = log.lines().any(|line| line.contains(" WARN ") && line.contains(why));
        ensure!(logged, "{} does not log: {why}", self.name);
        Ok(())
    }

    /// What it knows of a member; nothing where it knows none of that ID.
    async fn knows(&self, id: &str) -> anyhow::Result<Option<Value>> {
        let snapshot = plain(self.admin, "/debug/snapshot").await?.json();
        let members = snapshot.get("members").and_then(Value::as_array).context("no members")?;
        Ok(members.iter().find(|member| member.get("id") == Some(&json!(id))).cloned())
    }

    /// Waits until a member is known so.
    async fn until(
        &self,
        what: &str,
        id: &str,
        is: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Duration> {
        let started = Instant::now();
        until(&format!("{} knows {id}: {what}", self.name), SOON, async || {
            let known = self.knows(id).await?.unwrap_or_default();
            ensure!(is(&known), "{known}");
            Ok(Some(()))
        })
        .await?;
        Ok(started.elapsed())
    }
}

fn is_present(member: &Value) -> bool {
    member.get("present") == Some(&json!(true)) && member.get("view") == Some(&json!("Fresh"))
}

fn has_left(member: &Value) -> bool {
    member.get("present") == Some(&json!(false))
}

/// Three gateways that know each other, and serve what any of their servers does.
async fn found(cluster: &Cluster, finders: &mut [Finder]) -> anyhow::Result<()> {
    for finder in finders.iter_mut() {
        finder.ready().await?;
    }
    for finder in finders.iter() {
        for other in finders.iter().filter(|other| other.name != finder.name) {
            finder.until("present", &format!("finder-{}", other.name), is_present).await?;
        }
    }
    for (finder, kind) in finders.iter().zip([
        objects::autoscaler("default", "x"),
        objects::job("default", "x"),
        objects::disruption_budget("default", "x"),
    ]) {
        let answer = cluster.admin.get(finder.through, &kind.collection).await?;
        answer.expect(200).with_context(|| format!("{} through {}", kind.name, finder.name))?;
    }
    Ok(())
}

fn rbac() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac.yaml").display().to_string()
}

/// Lets gateways keep and read Leases.
pub(super) async fn allow(cluster: &Cluster) -> anyhow::Result<()> {
    let kubectl = cluster.kubectl(cluster.server("a")?.direct())?;
    kubectl.run(["apply", "-f", &rbac()], None).await.map(drop)
}

pub(super) async fn leases(cluster: &mut Cluster) -> anyhow::Result<String> {
    let kubectl = cluster.kubectl(cluster.server("a")?.direct())?;
    kubectl.run(["delete", "--ignore-not-found", "-f", &rbac()], None).await?;
    let flags = ["--membership=leases".to_owned()];
    let mut b = Finder::start(cluster, "b", 16443, &flags)?;
    b.fails("the API server denies permission").await?;
    allow(cluster).await?;
    b.ready().await?;

    let a = Finder::start(cluster, "a", 16443, &flags)?;
    let c = Finder::start(cluster, "c", 16443, &flags)?;
    let mut all = [a, b, c];
    let started = Instant::now();
    found(cluster, &mut all).await?;
    let together = started.elapsed().as_secs_f64();
    let [mut a, b, mut c] = all;
    let list = cluster.admin.get(cluster.server("a")?.direct(), LEASES).await?.expect(200)?;
    let items = list.get("items").and_then(Value::as_array).context("no Leases")?;
    let text = |item: &Value, pointer: &str| {
        item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let ours = items.iter().filter(|item| text(item, "/metadata/name").starts_with("mvp-"));
    let identity = "/metadata/labels/apiserver.kubernetes.io~1identity";
    let ours: Vec<&Value> = ours.collect();
    ensure!(ours.len() == 3, "{} Leases of ours", ours.len());
    ensure!(ours.iter().all(|item| text(item, identity).is_empty()), "taken for kube-apiservers");

    // Who leaves says so.
    c.process.signal(Signal::TERM)?;
    let left = b.until("left", "finder-c", has_left).await?;
    c.process.ended(Duration::from_secs(30)).await?;
    // And is forgotten when somebody says so.
    let admin = format!("--admin-address={}", b.admin);
    let forgot = Command::new(&cluster.programs.mvp).args(["forget", "finder-c", &admin]).output();
    let forgot = forgot.await?;
    ensure!(forgot.status.success(), "{}", String::from_utf8_lossy(&forgot.stderr));
    b.until("nothing", "finder-c", Value::is_null).await?;
    let again = Command::new(&cluster.programs.mvp).args(["forget", "finder-c", &admin]).output();
    ensure!(again.await?.status.code() == Some(1), "who is not there cannot be forgotten");

    // Who is killed and comes back at another address is known there.
    a.process.kill();
    let mut a = Finder::start(cluster, "a", 16543, &flags)?;
    a.ready().await?;
    let address = json!(a.through.to_string());
    let moved = |member: &Value| is_present(member) && member.get("address") == Some(&address);
    let moved = b.until("at its new address", "finder-a", moved).await?;
    let job = objects::job("default", "x");
    cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
    Ok(format!(
        "denied access is told; three gateways together after {together:.1} s; a leave known after \
         {:.1} s, an ID at another address {:.0} s after it is ready",
        left.as_secs_f64(),
        moved.as_secs_f64()
    ))
}

pub(super) async fn forged(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let flags = ["--membership=leases".to_owned()];
    let mut all = Finder::three(cluster, 16643, &flags)?;
    found(cluster, &mut all).await?;
    let [_a, b, _c] = all;
    let nowhere = "/apis/example.org/v1/nothings";
    let answer = cluster.admin.get(b.through, nowhere).await?;
    ensure!(answer.status == 404, "before: {answer}");

    // Somebody who may write Leases, and has a server whose certificate is nobody's.
    let (thief, other_thief) = (Thief::start(cluster)?, Thief::start(cluster)?);
    let at = cluster.server("a")?.direct();
    for (name, id, thief) in
        [("mvp-forged-1", "finder-a", &thief), ("mvp-forged-2", "someone-else", &other_thief)]
    {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": "kube-system",
                "labels": {"mixed-version-proxy/member": "true"},
                "annotations": {
                    "mixed-version-proxy/id": id,
                    "mixed-version-proxy/address": thief.address.to_string(),
                },
            },
            "spec": {"holderIdentity": id, "renewTime": "2099-01-01T00:00:00.000000Z"},
        });
        cluster.admin.create(at, LEASES, &lease).await?.expect(201)?;
    }
    b.until("somebody else", "someone-else", |member| !member.is_null()).await?;
    // Who claims an ID that another has must seem to be alive.
    let renewal = json!({"spec": {"renewTime": "2099-01-01T00:00:01.000000Z"}});
    let body = Some(("application/merge-patch+json", &renewal));
    let path = format!("{LEASES}/mvp-forged-1");
    cluster.admin.send(at, http::Method::PATCH, &path, body).await?.expect(200)?;
    let begun = Instant::now();
    let job = objects::job("default", "x");
    let (mut reads, mut truth) = (0, None);
    while truth.is_none() {
        ensure!(begun.elapsed() < Duration::from_secs(120), "404s are held up for good");
        cluster.admin.get(b.through, &job.collection).await?.expect(200).context("a read")?;
        reads += 1;
        let answer = cluster.admin.get(b.through, nowhere).await?;
        match answer.status.as_u16() {
            404 => truth = Some(begun.elapsed()),
            503 => {}
            _ => anyhow::bail!("{answer}"),
        }
    }
    let log = std::fs::read_to_string(b.process.log())?;
    ensure!(log.contains("two members use the ID finder-a"), "nobody was told");
    let (mut tried, mut let_in) = (0, 0);
    for (connected, spoken_to) in [thief.counted(), other_thief.counted()] {
        ensure!(connected > 0, "nobody even looked at it: the test shows nothing");
        (tried, let_in) = (tried + connected, let_in + spoken_to);
    }
    ensure!(let_in == 0, "{let_in} requests went to whoever wrote a Lease");
    for name in ["mvp-forged-1", "mvp-forged-2"] {
        cluster.admin.delete(at, &format!("{LEASES}/{name}")).await?.expect(200)?;
    }
    Ok(format!(
        "a forged ID and a forged member: {tried} connections, none past the handshake; {reads} \
         reads of the true one's API, all 200; 404s held up for {:.0} s",
        truth.unwrap_or_default().as_secs_f64()
    ))
}

/// A TLS server by whose certificate nobody is to be fooled.
struct Thief {
    address: SocketAddr,
    counts: Arc<(AtomicUsize, AtomicUsize)>,
}

impl Thief {
    fn start(cluster: &Cluster) -> anyhow::Result<Thief> {
        let key = rcgen::KeyPair::generate()?;
        let names = vec!["kubernetes.default.svc".to_owned()];
        let certificate = rcgen::CertificateParams::new(names)?.self_signed(&key)?;
        let trust = mvp_net::ClientTrust::new(None, None, Vec::new())?;
        let tls = mvp_net::ServerTls::new(
            certificate.pem().as_bytes(),
            key.serialize_pem().as_bytes(),
            trust,
        )?;
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(tls.config()));
        let listener = std::net::TcpListener::bind((cluster.client_address(), 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let counts: Arc<(AtomicUsize, AtomicUsize)> = Arc::default();
        let counting = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counting.0.fetch_add(1, Ordering::SeqCst);
                // Over TLS 1.3 a server is done before its client looked at its certificate: only
                // what the client then says counts.
                if let Ok(mut stream) = acceptor.accept(stream).await
                    && stream.read_u8().await.is_ok()
                {
                    counting.1.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Ok(Thief { address, counts })
    }

    /// How many connected, and how many said anything.
    fn counted(&self) -> (usize, usize) {
        (self.counts.0.load(Ordering::SeqCst), self.counts.1.load(Ordering::SeqCst))
    }
}

/// Servers with Kubernetes' own proxy are members with no gateway before them.
pub(super) async fn bare(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let etcd = format!("--etcd-servers={}", cluster.etcd_url());
    let mut figures = Vec::new();
    for (port, flags) in [
        (16843, vec!["--membership=leases".to_owned()]),
        (16943, vec!["--membership=etcd".to_owned(), etcd]),
    ] {
        let mut b = Finder::start(cluster, "b", port, &flags)?;
        b.ready().await?;
        let snapshot = plain(b.admin, "/debug/snapshot").await?.json();
        let members = snapshot.get("members").and_then(Value::as_array).context("no members")?;
        let bare: Vec<&Value> =
            members.iter().filter(|member| member.get("kind") == Some(&json!("bare"))).collect();
        let known = |name: &str| {
            let address = cluster.server(name).map(|server| json!(server.direct().to_string()));
            let address = address.unwrap_or_default();
            bare.iter().any(|member| member.get("address") == Some(&address))
        };
        ensure!(!known("b"), "its own server is nobody's peer: {snapshot}");
        ensure!(known("a") && known("c"), "{flags:?}: {snapshot}");
        let job = objects::job("default", "x");
        cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
        figures.push(flags.first().cloned().unwrap_or_default());
    }
    let stored = etcd::stored_as_protobuf(cluster).await?;
    Ok(format!(
        "a and c are known by {}, {stored} keys stored as protobuf; b reaches batch/v1 through them",
        figures.join(" and ")
    ))
}

/// From now on servers keep EndpointSlices, on addresses that those accept.
pub(super) async fn keep_endpoints(cluster: &mut Cluster) -> anyhow::Result<()> {
    let (admin, flag) = (cluster.admin.clone(), "--endpoint-reconciler-type=lease".to_owned());
    for index in 0..cluster.servers.len() {
        let server = cluster.servers.get_mut(index).context("no such server")?;
        if server.spec.flags.contains(&flag) {
            continue;
        }
        server.spec.flags.push(flag.clone());
        server.process()?.kill();
        cluster.start_server(index)?;
        let server = cluster.servers.get_mut(index).context("no such server")?;
        server.ready(&admin, Duration::from_secs(120)).await?;
    }
    allow(cluster).await
}

/// Servers whose own EndpointSlices say where they are.
pub(super) async fn endpoints(cluster: &mut Cluster) -> anyhow::Result<String> {
    keep_endpoints(cluster).await?;
    let admin = cluster.admin.clone();
    let mut b = Finder::start(cluster, "b", 17043, &["--membership=endpoints".to_owned()])?;
    b.ready().await?;
    let at = |name: &str| anyhow::Ok(cluster.server(name)?.direct().to_string());
    let (a, c, own) = (at("a")?, at("c")?, at("b")?);
    for address in [&a, &c] {
        b.until("present", address, is_present).await?;
    }
    ensure!(b.knows(&own).await?.is_none(), "its own server is nobody's peer");
    let job = objects::job("default", "x");
    admin.get(b.through, &job.collection).await?.expect(200)?;
    // Who is gone is taken out by the others, when its own lease ended.
    cluster.server_mut("a")?.process()?.kill();
    let gone = b.until("left", &a, has_left).await?;
    admin.get(b.through, &job.collection).await?.expect(200)?;
    Ok(format!(
        "a and c are known by their EndpointSlices; a kill -9 after {:.0} s",
        gone.as_secs_f64()
    ))
}

/// Gateways that tell each other addresses of IPv6.
pub(super) async fn by_ipv6(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let flags = ["--membership=leases".to_owned()];
    let mut all = Vec::new();
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        let address = SocketAddr::new(cluster.second_address(index), 18043);
        // In the network of the suite's own, on whose other end the last server is.
        let add = ["-6", "address", "replace", &format!("{}/128", address.ip()), "dev", "lo"];
        let added = Command::new("ip").args(add).output().await?;
        ensure!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        all.push(Finder::start_at(cluster, name, address, &flags)?);
    }
    let mut all: [Finder; 3] = all.try_into().ok().context("three gateways")?;
    found(cluster, &mut all).await?;
    let [a, b, c] = all;
    let known = b.knows("finder-a").await?.unwrap_or_default();
    ensure!(a.through.is_ipv6(), "{}", a.through);
    ensure!(known.get("address") == Some(&json!(a.through.to_string())), "{known}");
    // What b lacks, a and c have: it came from the one or the other.
    let job = objects::job("default", "x");
    a.process.signal(Signal::TERM)?;
    let left = b.until("left", "finder-a", has_left).await?;
    cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
    drop(c);
    Ok(format!(
        "three gateways at fd00:77::/64 by Leases, each kind through the one that lacks it; a leave \
         known after {:.1} s",
        left.as_secs_f64()
    ))
}
