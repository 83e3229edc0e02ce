//! A load balancer that does not look at requests: it copies bytes, each connection to the next
//! target that accepts it, and optionally only to ready targets. Entry item: [`Relay::start`].

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::client::{Client, plain};

const HEALTH_INTERVAL: Duration = Duration::from_millis(100);
const READYZ_INTERVAL: Duration = Duration::from_secs(1);

/// A running load balancer.
pub(crate) struct Relay {
    address: SocketAddr,
    targets: watch::Sender<Targets>,
    tasks: Vec<JoinHandle<()>>,
}

/// The targets.
#[derive(Clone)]
struct Targets {
    all: Vec<SocketAddr>,
    /// Changes when open connections are to be cut.
    generation: u32,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Relay {
    pub(crate) async fn start(at: IpAddr, targets: &[SocketAddr]) -> anyhow::Result<Relay> {
        Relay::start_at(SocketAddr::new(at, 0), targets).await
    }

    /// The same, on a port for clients that is known before.
    pub(crate) async fn start_at(at: SocketAddr, targets: &[SocketAddr]) -> anyhow::Result<Relay> {
        let listener = TcpListener::bind(at).await;
        let listener = listener.with_context(|| format!("cannot listen on {at}"))?;
        let address = listener.local_addr()?;
        let targets = Targets { all: targets.to_vec(), generation: 0 };
        let (targets, receiver) = watch::channel(targets);
        Ok(Relay { address, targets, tasks: vec![tokio::spawn(serve(listener, receiver))] })
    }

    /// The address for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the targets. Open connections are cut, as when an address moves to another host.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.targets.send_modify(|targets| {
            targets.all = vec![target];
            targets.generation += 1;
        });
    }

    /// Sends new connections only to targets that are ready, according to plain HTTP at the other
    /// address of each.
    pub(crate) fn ask_whether_ready(&mut self, targets: Vec<(SocketAddr, SocketAddr)>) {
        let leads = self.targets.clone();
        self.tasks.push(tokio::spawn(async move {
            loop {
                let mut ready = Vec::new();
                for (target, admin) in &targets {
                    let said = timeout(Duration::from_secs(1), plain(*admin, "/readyz")).await;
                    if said.is_ok_and(|said| said.is_ok_and(|said| said.status == 200)) {
                        ready.push(*target);
                    }
                }
                leads.send_modify(|leads| leads.all = ready);
                sleep(HEALTH_INTERVAL).await;
            }
        }));
    }

    /// Sends new connections only to healthy targets, as load balancers before kube-apiservers do:
    /// `/readyz` over HTTPS every second, unhealthy after two failures in a row.
    pub(crate) fn check_readyz(&mut self, client: &Client, targets: &[SocketAddr]) {
        let (leads, client) = (self.targets.clone(), client.clone());
        let mut targets: Vec<(SocketAddr, u32)> = targets.iter().map(|to| (*to, 0)).collect();
        self.tasks.push(tokio::spawn(async move {
            loop {
                let checks = targets.iter_mut().map(async |(target, failures)| {
                    let answer = timeout(READYZ_INTERVAL, client.get(*target, "/readyz")).await;
                    let ready = matches!(answer, Ok(Ok(answer)) if answer.status == 200);
                    *failures = if ready { 0 } else { *failures + 1 };
                    (*failures < 2).then_some(*target)
                });
                let healthy = join_all(checks).await.into_iter().flatten().collect();
                leads.send_modify(|leads| leads.all = healthy);
                sleep(READYZ_INTERVAL).await;
            }
        }));
    }
}

async fn serve(listener: TcpListener, targets: watch::Receiver<Targets>) {
    let mut turn = 0;
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(pass(client, turn, targets.clone()));
        turn += 1;
    }
}

/// Copies bytes until one side ends, the targets change, or the relay is dropped.
async fn pass(mut client: TcpStream, turn: usize, mut targets: watch::Receiver<Targets>) {
    let Targets { all, generation } = targets.borrow().clone();
    let connected = async {
        for target in all.iter().cycle().skip(turn % all.len().max(1)).take(all.len()) {
            if let Ok(server) = TcpStream::connect(target).await {
                return Some(server);
            }
        }
        None
    };
    let passed = async {
        if let Some(mut server) = connected.await {
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    };
    tokio::select! {
        () = passed => {}
        _ = targets.wait_for(|now| now.generation != generation) => {}
    }
}
