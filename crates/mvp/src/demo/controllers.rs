//! The controllers of the demo, as clients of one address at a time. Entry: [`Address`].

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use mvp_apiserver::controllers::{Client, GarbageCollector, NamespaceController};
use tokio::time::{Instant, sleep};

use super::certificates::Certificates;
use super::client::{self, Line};

/// How often the namespace controller looks for work.
const SYNC: Duration = Duration::from_millis(500);
/// How often the garbage collector does: it lists every object.
const SWEEP: Duration = Duration::from_secs(3);
/// How often the garbage collector asks which kinds there are, as in kube-controller-manager.
const REFRESH: Duration = Duration::from_secs(30);

/// The address that controllers use. It leads to one server, until it is moved.
#[derive(Clone)]
pub(super) struct Address(Arc<Inner>);

struct Inner {
    line: Line,
    server: Mutex<SocketAddr>,
}

impl Address {
    pub(super) fn new(certificates: &Certificates, server: SocketAddr) -> anyhow::Result<Address> {
        let line = Line::new(client::Client::controller(certificates)?);
        Ok(Address(Arc::new(Inner { line, server: Mutex::new(server) })))
    }

    /// Leads to another server from now on, as a load balancer does.
    pub(super) fn move_to(&self, server: SocketAddr) {
        *self.0.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    fn server(&self) -> SocketAddr {
        *self.0.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client for Address {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let answer = self.0.line.send(self.server(), request).await;
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        let mut response = Response::new(answer.body);
        *response.status_mut() = answer.status;
        Ok(response)
    }
}

/// Runs both controllers through one address, forever. What fails is tried again.
pub(super) async fn run(address: Address) {
    let namespaces = NamespaceController::new(address.clone());
    let mut collector = GarbageCollector::new(address);
    let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at.elapsed() >= every);
    let (mut refreshed, mut swept): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        if is_due(refreshed, REFRESH) && collector.refresh().await.is_ok() {
            refreshed = Some(Instant::now());
        }
        // What fails is tried again.
        let _ = namespaces.sync().await;
        if is_due(swept, SWEEP) {
            collector.sweep().await;
            swept = Some(Instant::now());
        }
        sleep(SYNC).await;
    }
}
