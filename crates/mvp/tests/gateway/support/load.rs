//! A continuous load that records every unexpected response.

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::StatusCode;
use tokio::task::JoinSet;

use super::client::Client;
use super::{eventually, soon};

/// A running load.
pub(crate) struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    answered: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

impl Load {
    /// Requests these paths in turn, over one connection and over new ones.
    pub(crate) fn start(
        address: SocketAddr,
        config: &Arc<rustls::ClientConfig>,
        paths: &[&'static str],
    ) -> Load {
        let mut load = Load { shared: Arc::default(), tasks: JoinSet::new() };
        for keeps in [true, false] {
            load.tasks.spawn(ask(
                Arc::clone(&load.shared),
                address,
                Arc::clone(config),
                paths.to_vec(),
                keeps,
            ));
        }
        load
    }

    /// The same, with a new connection for each request.
    pub(crate) fn of_new_connections(
        address: SocketAddr,
        config: &Arc<rustls::ClientConfig>,
        paths: &[&'static str],
        clients: usize,
    ) -> Load {
        let mut load = Load { shared: Arc::default(), tasks: JoinSet::new() };
        for _ in 0..clients {
            let (shared, config) = (Arc::clone(&load.shared), Arc::clone(config));
            load.tasks.spawn(ask(shared, address, config, paths.to_vec(), false));
        }
        load
    }

    /// Waits for this many further responses.
    pub(crate) async fn goes_on(&self, more: usize) {
        let enough = self.shared.answered.load(Ordering::SeqCst) + more;
        eventually("the load is answered", async || {
            let answered = self.shared.answered.load(Ordering::SeqCst);
            if answered >= enough { Ok(()) } else { Err(self.failures()) }
        })
        .await;
    }

    /// Ends the load and asserts that nothing failed.
    pub(crate) async fn was_answered(mut self) {
        self.goes_on(20).await;
        self.shared.over.store(true, Ordering::SeqCst);
        while let Some(ended) = soon(self.tasks.join_next()).await {
            ended.unwrap();
        }
        let (failures, answered) = (self.failures(), self.shared.answered.load(Ordering::SeqCst));
        assert!(failures.is_empty(), "{} failed, {answered} not: {failures:#?}", failures.len());
    }

    fn failures(&self) -> Vec<String> {
        self.shared.failures.lock().unwrap().clone()
    }
}

async fn ask(
    shared: Arc<Shared>,
    address: SocketAddr,
    config: Arc<rustls::ClientConfig>,
    paths: Vec<&'static str>,
    keeps: bool,
) {
    let failed = |what: String| shared.failures.lock().unwrap().push(what);
    let mut kept: Option<Client> = None;
    for path in paths.into_iter().cycle() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let client = match kept.take() {
            Some(client) => client,
            None => match Client::with(address, Arc::clone(&config)).await {
                Ok((client, _)) => client,
                Err(error) => {
                    failed(format!("no connection: {error:?}"));
                    continue;
                }
            },
        };
        match client.try_get(path).await {
            Ok(StatusCode::OK) => drop(shared.answered.fetch_add(1, Ordering::SeqCst)),
            Ok(code) => failed(format!("{path}: {code}")),
            Err(error) if is_unprocessed(&error) => continue,
            Err(error) => failed(format!("{path}: {error:?}")),
        }
        kept = keeps.then_some(client);
    }
}

/// Whether the server closed the connection without processing the request: every client retries
/// then.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_remote() && cause.is_go_away() && cause.reason() == Some(h2::Reason::NO_ERROR)
    })
}
