//! A load balancer that knows nothing of versions: it passes bytes on, each connection to the next
//! target that takes it. Entry item: [`Relay::start`].

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A load balancer that is running.
pub(crate) struct Relay {
    address: SocketAddr,
    targets: watch::Sender<Vec<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    pub(crate) async fn start(at: IpAddr, targets: &[SocketAddr]) -> anyhow::Result<Relay> {
        let listener = TcpListener::bind((at, 0)).await.context("cannot listen")?;
        let address = listener.local_addr()?;
        let (sender, receiver) = watch::channel(targets.to_vec());
        Ok(Relay { address, targets: sender, task: tokio::spawn(serve(listener, receiver)) })
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads elsewhere from now on. What is open is cut, as when an address moves to another host.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.targets.send_replace(vec![target]);
    }
}

async fn serve(listener: TcpListener, targets: watch::Receiver<Vec<SocketAddr>>) {
    let mut turn = 0;
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(pass(client, turn, targets.clone()));
        turn += 1;
    }
}

/// Passes bytes on until one side ends, the targets change, or the relay is gone.
async fn pass(mut client: TcpStream, turn: usize, mut targets: watch::Receiver<Vec<SocketAddr>>) {
    let all = targets.borrow_and_update().clone();
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
        _ = targets.changed() => {}
    }
}
