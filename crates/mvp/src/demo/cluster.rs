//! The demo's cluster: API servers with one storage, each on a port of its own. Entry:
//! [`Cluster::start`].

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use mvp_apiserver::{ApiServer, Caller, Storage, TokenFile};
use mvp_core::member::MemberKind;
use mvp_net::bind;
use mvp_proxy::control::MemberRecord;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::access::TOKENS;
use super::certificates::Certificates;
use super::extension;
use super::plan::ServerPlan;
use super::server::{Parts, Server};
use super::watched::Watched;

/// The servers of a cluster. Whatever happens to it, its servers end with `stop`.
pub(super) struct Cluster {
    pub(super) servers: Vec<Server>,
    parts: Parts,
}

/// How the servers work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// With the layer, and with peers.
    Proxied,
    /// With the layer, but without a CA of peers.
    NoPeerCa,
    /// Without the layer.
    Alone,
}

/// The namespaces of a new cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// The time for a restarted server to get its port back.
const REBIND: Duration = Duration::from_secs(5);

impl Cluster {
    /// Starts the servers on free ports.
    pub(super) async fn start(
        certificates: &Arc<Certificates>,
        plans: Vec<ServerPlan>,
        mode: Mode,
        stop: &CancellationToken,
    ) -> anyhow::Result<Cluster> {
        let listeners = listen(0, plans.len())?;
        Cluster::start_on(certificates, plans, mode, listeners, stop).await
    }

    /// Starts the servers, and waits until each has fetched the discovery of the others.
    pub(super) async fn start_on(
        certificates: &Arc<Certificates>,
        plans: Vec<ServerPlan>,
        mode: Mode,
        listeners: Vec<TcpListener>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Cluster> {
        let member = |(plan, listener): (&ServerPlan, &TcpListener)| {
            Ok(MemberRecord {
                name: plan.id.into(),
                address: Some(listener.local_addr()?.to_string().into()),
                kind: MemberKind::Mvp,
                heard: None,
            })
        };
        let members: std::io::Result<_> = plans.iter().zip(&listeners).map(member).collect();
        let parts = Parts {
            certificates: Arc::clone(certificates),
            storage: Storage::new(),
            tokens: Arc::new(TokenFile::parse(TOKENS)?),
            members: members?,
            mode,
            stop: stop.clone(),
            watched: Watched::default(),
        };
        let mut cluster = Cluster { servers: Vec::new(), parts };
        for (place, (plan, listener)) in plans.into_iter().zip(listeners).enumerate() {
            let server = Server::start(&cluster.parts, plan, listener)?;
            if place == 0 {
                furnish(&server.api).await?;
            }
            server.announce().await;
            cluster.servers.push(server);
        }
        for server in &cluster.servers {
            server.is_ready(cluster.servers.len()).await?;
        }
        Ok(cluster)
    }

    /// Ends one server. Its requests in flight end first.
    pub(super) async fn end(&mut self, place: usize) -> anyhow::Result<()> {
        self.at_mut(place)?.end().await;
        Ok(())
    }

    /// Starts a server again at the address of one that has ended. `started` is called when it
    /// listens, before it knows the others.
    pub(super) async fn restart(
        &mut self,
        place: usize,
        plan: ServerPlan,
        started: impl FnOnce(&Server),
    ) -> anyhow::Result<()> {
        let address = self.at_mut(place)?.address;
        let deadline = Instant::now() + REBIND;
        let listener = loop {
            match bind(address, false) {
                Ok(listener) => break TcpListener::from_std(listener)?,
                Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(10)).await,
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot listen on {address} again"));
                }
            }
        };
        let server = Server::start(&self.parts, plan, listener)?;
        started(&server);
        server.announce().await;
        server.is_ready(self.servers.len()).await?;
        *self.at_mut(place)? = server;
        Ok(())
    }

    /// The servers that run, for the dashboard.
    pub(super) fn watched(&self) -> &Watched {
        &self.parts.watched
    }

    /// The server at a place.
    pub(super) fn at(&self, place: usize) -> anyhow::Result<&Server> {
        self.servers.get(place).context("there is no such server")
    }

    fn at_mut(&mut self, place: usize) -> anyhow::Result<&mut Server> {
        self.servers.get_mut(place).context("there is no such server")
    }
}

/// Listens on ports in a row from `base`, or on free ones if it is 0.
pub(super) fn listen(base: u16, count: usize) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for place in 0..count {
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        let port = if base == 0 { 0 } else { base.saturating_add(place) };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = bind(address, false).with_context(|| {
            format!("cannot listen on {address}; choose other ports with --port-base")
        })?;
        listeners.push(TcpListener::from_std(listener)?);
    }
    Ok(listeners)
}

/// Creates what every cluster has.
async fn furnish(server: &ApiServer) -> anyhow::Result<()> {
    for name in NAMESPACES {
        create(server, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
    }
    create(server, extension::API_SERVICES, &extension::api_service()).await
}

/// Creates an object in the name of the cluster.
async fn create(server: &ApiServer, path: &str, object: &Value) -> anyhow::Result<()> {
    let body: Full<Bytes> = Full::from(object.to_string());
    let mut request = Request::builder().method(Method::POST).uri(path).body(body)?;
    request.extensions_mut().insert(Caller {
        name: "system:apiserver".to_owned(),
        groups: vec!["system:masters".to_owned()],
    });
    let response = server.clone().oneshot(request).await?;
    anyhow::ensure!(response.status().is_success(), "cannot create {path}: {}", response.status());
    Ok(())
}
