//! Forged Leases, written by someone with the right to write Leases and nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use testkit::certificates::{Pair, SERVER_NAME};
use tokio::io::AsyncReadExt;

use super::super::objects;
use super::{Finder, LEASES, allow, found};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "membership/forged",
        forged,
        "a forged Lease receives no request and cannot block 404s for long"
    )]
}

async fn forged(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let flags = ["--membership=leases".to_owned()];
    let mut all = Finder::three(cluster, 16643, &flags)?;
    found(cluster, &mut all).await?;
    let [_a, b, _c] = all;
    let nowhere = "/apis/example.org/v1/nothings";
    let answer = cluster.admin.get(b.through, nowhere).await?;
    ensure!(answer.status == 404, "before: {answer}");

    // An attacker who may write Leases, and has a server with an untrusted certificate.
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
    // A forged Lease for an existing ID must look alive.
    let renewal = json!({"spec": {"renewTime": "2099-01-01T00:00:01.000000Z"}});
    let body = Some(("application/merge-patch+json", &renewal));
    let path = format!("{LEASES}/mvp-forged-1");
    cluster.admin.send(at, http::Method::PATCH, &path, body).await?.expect(200)?;
    let begun = Instant::now();
    let job = objects::job("default", "x");
    let (mut reads, mut truth) = (0, None);
    while truth.is_none() {
        ensure!(begun.elapsed() < Duration::from_secs(120), "404s stay 503");
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
    ensure!(let_in == 0, "{let_in} requests went to the address in a forged Lease");
    for name in ["mvp-forged-1", "mvp-forged-2"] {
        cluster.admin.delete(at, &format!("{LEASES}/{name}")).await?.expect(200)?;
    }
    Ok(format!(
        "a forged ID and a forged member: {tried} connections, none past the handshake; {reads} \
         reads of the real member's API, all 200; 404s withheld for {:.0} s",
        truth.unwrap_or_default().as_secs_f64()
    ))
}

/// A TLS server with an untrusted certificate, which must get no request.
struct Thief {
    address: SocketAddr,
    counts: Arc<(AtomicUsize, AtomicUsize)>,
}

impl Thief {
    fn start(cluster: &Cluster) -> anyhow::Result<Thief> {
        let pair = Pair::self_signed(&[SERVER_NAME]);
        let trust = mvp_net::ClientTrust::new(None, None, Vec::new())?;
        let tls = mvp_net::ServerTls::new(pair.pem().0, pair.pem().1, trust)?;
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

    /// The number of connections, and of those that sent anything.
    fn counted(&self) -> (usize, usize) {
        (self.counts.0.load(Ordering::SeqCst), self.counts.1.load(Ordering::SeqCst))
    }
}
