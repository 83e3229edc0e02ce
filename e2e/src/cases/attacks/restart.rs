//! A gateway restarts in front of many clients with tokens, each of which reopens its watch: no
//! attack, and nobody may be refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use testkit::process::until;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::others::{NAMESPACE, tokens};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "attacks/restart",
            restart,
            "a gateway restarts while 300 clients with tokens reopen their watches"
        ),
        case!(
            full Mixed,
            "attacks/restart-of-many",
            restart_of_many,
            "the same with 2,000 clients"
        ),
        case!(
            full Mixed,
            "attacks/restart-directly",
            begin_directly,
            "comparison: 2,000 clients open watches at kube-apiserver"
        ),
    ]
}

/// The header that API Priority and Fairness sets on each response.
const FAIRNESS: &str = "x-kubernetes-pf-flowschema-uid";

/// All that clients share.
#[derive(Default)]
struct Shared {
    open: AtomicUsize,
    /// Refusals of API Priority and Fairness, which also happen directly.
    queued: AtomicUsize,
    /// Other refusals, and broken connections.
    refused: Mutex<Tally>,
}

async fn restart(cluster: &mut Cluster) -> anyhow::Result<String> {
    restart_of(cluster, 300).await
}

async fn restart_of_many(cluster: &mut Cluster) -> anyhow::Result<String> {
    restart_of(cluster, 2_000).await
}

/// Comparison: as many clients start at kube-apiserver.
async fn begin_directly(cluster: &mut Cluster) -> anyhow::Result<String> {
    let (count, to) = (2_000, cluster.server("a")?.direct());
    let clients = clients(cluster).await?;
    let shared = Arc::new(Shared::default());
    let _all = Watchers::start(&clients, to, count, &shared);
    let took = shared.opened(count).await?;
    Ok(format!("{count} watches after {took:.1} s; {}", shared.told()))
}

async fn restart_of(cluster: &mut Cluster, count: usize) -> anyhow::Result<String> {
    let index = cluster.index("a")?;
    let to = cluster.server("a")?.through();
    let clients = clients(cluster).await?;
    let shared = Arc::new(Shared::default());
    let all = Watchers::start(&clients, to, count, &shared);
    shared.opened(count).await?;
    let first = shared.told();

    cluster.server_mut("a")?.gateway()?.kill();
    until("every client notices", Duration::from_secs(30), async || {
        Ok((shared.open.load(Ordering::Relaxed) == 0).then_some(()))
    })
    .await?;
    cluster.start_gateway(index)?;
    let took = shared.opened(count).await?;
    drop(all);
    ensure!(shared.refusals() == 0, "at first: {first}; with the restart: {}", shared.told());
    let told = shared.told();
    Ok(format!("{count} watches again {took:.1} s after the start of the gateway: {told}"))
}

async fn clients(cluster: &Cluster) -> anyhow::Result<Vec<Client>> {
    cluster.namespace(NAMESPACE).await?;
    // Fairness has a queue for each user.
    let names = ["robin", "marian", "tuck", "john", "much", "alan", "david", "gilbert"];
    tokens(cluster, &names).await
}

impl Shared {
    /// Waits until this many watches are open, and returns the seconds.
    async fn opened(&self, count: usize) -> anyhow::Result<f64> {
        let started = Instant::now();
        let opened = until("every client has a watch", Duration::from_secs(120), async || {
            Ok((self.open.load(Ordering::Relaxed) == count).then_some(()))
        });
        opened.await.map_err(|error| error.context(self.told()))?;
        Ok(started.elapsed().as_secs_f64())
    }

    fn refuse(&self, what: String) {
        if let Ok(mut refused) = self.refused.lock() {
            refused.one(what);
        }
    }

    fn refusals(&self) -> usize {
        self.refused.lock().map_or(0, |refused| refused.total())
    }

    fn told(&self) -> String {
        let open = self.open.load(Ordering::Relaxed);
        let refused = self.refused.lock().map(|refused| refused.to_string());
        let queued = self.queued.load(Ordering::Relaxed);
        let refused = refused.unwrap_or_default();
        format!("{open} open, refused: {queued} by kube-apiserver's fairness, others: {refused}")
    }
}

/// Clients, each on a connection of its own.
struct Watchers(Vec<JoinHandle<()>>);

impl Drop for Watchers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Watchers {
    fn start(clients: &[Client], to: SocketAddr, count: usize, shared: &Arc<Shared>) -> Watchers {
        let clients = clients.iter().cycle().take(count);
        let start = |client: &Client| tokio::spawn(watch(client.clone(), to, Arc::clone(shared)));
        Watchers(clients.map(start).collect())
    }
}

/// Watches, and reopens the watch when it ends.
async fn watch(client: Client, to: SocketAddr, shared: Arc<Shared>) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?watch=1");
    loop {
        // Connections fail while the gateway starts.
        let Ok(connection) = client.connect_http2(to).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        match connection.watch(&path).await {
            Ok(Ok(mut watch)) => {
                shared.open.fetch_add(1, Ordering::Relaxed);
                while let Ok(Some(_)) = watch.next().await {}
                shared.open.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(Err(answer)) if answer.headers.contains_key(FAIRNESS) => {
                shared.queued.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_secs(1)).await;
            }
            Ok(Err(answer)) => shared.refuse(answer.to_string()),
            Err(error) => shared.refuse(format!("{error:#}")),
        }
    }
}
