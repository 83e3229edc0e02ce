//! One server of the demo: the API server, the layer and the listener. Entry: [`Server::start`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::{Request, Response};
use hyper::body::Incoming;
use mvp_apiserver::{Access, Announcement, ApiServer, ServerSpec, Storage, TokenFile};
use mvp_core::Snapshot;
use mvp_core::discovery::Part;
use mvp_net::{ClientTrust, Drained, Limits, ReloadableTls, ServerTls};
use mvp_proxy::control::{MemberRecord, SnapshotReader, StaticMembership};
use mvp_proxy::{Body, Member, OutboundTls};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;
use tower::Service;
use tower_layer::Layer;

use super::access;
use super::certificates::Certificates;
use super::cluster::Mode;
use super::flow::{self, Arrivals};
use super::plan::ServerPlan;
use super::watched::Watched;

/// What the servers of a cluster share.
pub(super) struct Parts {
    pub(super) certificates: Arc<Certificates>,
    pub(super) storage: Storage,
    pub(super) tokens: Arc<TokenFile>,
    pub(super) members: Vec<MemberRecord>,
    pub(super) mode: Mode,
    pub(super) stop: CancellationToken,
    pub(super) watched: Watched,
}

/// A server of the demo.
pub(super) struct Server {
    pub(super) plan: ServerPlan,
    pub(super) address: SocketAddr,
    pub(super) api: ApiServer,
    announcement: Announcement,
    arrivals: Arrivals,
    /// The snapshots of the layer; `None` without it.
    reader: Option<SnapshotReader>,
    stop: CancellationToken,
    ended: Option<JoinHandle<Drained>>,
    watched: Watched,
}

/// How often a server renews its Lease, as kube-apiserver does.
const RENEW: Duration = Duration::from_secs(10);
/// The time for a server to know the others.
const READY: Duration = Duration::from_secs(20);
/// The time for requests in flight when a server ends. Watches never end by themselves.
const GRACE: Duration = Duration::from_millis(300);

impl Server {
    /// Starts a server on a listener.
    pub(super) fn start(
        parts: &Parts,
        plan: ServerPlan,
        listener: TcpListener,
    ) -> anyhow::Result<Server> {
        let api = ApiServer::new(plan.spec()?, parts.storage.clone());
        let api = api.with_access(Access::FixedGroups);
        let known = access::known(api.clone(), Arc::clone(&parts.tokens));
        let stop = parts.stop.child_token();
        let address = listener.local_addr()?;
        let arrivals = Arrivals::default();

        let others = parts.members.iter().filter(|member| *member.name.label() != *plan.id);
        let others = others.cloned().collect();
        let proxy = &parts.certificates.proxy;
        let proxy = (proxy.certificate.as_bytes(), proxy.key.as_bytes());
        let outbound = OutboundTls::new(parts.certificates.ca.as_bytes(), Some(proxy))?;
        let builder = Member::builder(plan.id, outbound);
        // Outermost first: authenticate the caller, then the layer, then the API server.
        let (reader, ended) = match parts.mode {
            Mode::Alone => {
                let authenticate = builder.build().authenticate();
                let service = authenticate.layer(access::plain(known));
                (None, serve(parts, listener, service, &stop)?)
            }
            Mode::Proxied | Mode::NoPeerCa => {
                let builder = match parts.mode {
                    Mode::NoPeerCa => builder.peer_tls(None),
                    _ => builder,
                };
                let member = builder.record_callers(true).record_flow(true).build();
                parts.watched.add(plan.id, &member, &stop);
                let layer = member.start(StaticMembership::new(others), stop.clone()).layer();
                let service = layer.layer(known);
                let tokens = Arc::clone(&parts.tokens);
                let service = flow::named(plan.id, tokens, arrivals.clone(), service);
                let service = member.authenticate().layer(service);
                (Some(member.reader().clone()), serve(parts, listener, service, &stop)?)
            }
        };
        let announcement = Announcement::new(api.clone(), plan.id);
        let ended = Some(ended);
        let watched = parts.watched.clone();
        Ok(Server { plan, address, api, announcement, arrivals, reader, stop, ended, watched })
    }

    /// Announces the server to the cluster, now and from now on.
    pub(super) async fn announce(&self) {
        self.announcement.renew().await;
        self.announcement.record().await;
        let announcement = self.announcement.clone();
        let renew = async move {
            let mut ticks = interval(RENEW);
            loop {
                ticks.tick().await;
                announcement.renew().await;
            }
        };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(renew));
    }

    /// Waits until the layer has fetched the discovery of all `members`.
    pub(super) async fn is_ready(&self, members: usize) -> anyhow::Result<()> {
        let Some(reader) = &self.reader else { return Ok(()) };
        let everyone = |snapshot: &Snapshot| {
            let seen = |part| snapshot.members().all(|member| member.view.part(part).is_some());
            snapshot.members().count() >= members && Part::ALL.into_iter().all(seen)
        };
        timeout(READY, reader.wait_for(everyone)).await.with_context(|| {
            format!("{} did not fetch the discovery of the others within 20 s", self.plan.id)
        })?;
        Ok(())
    }

    /// Ends the server. Its requests in flight end first.
    pub(super) async fn end(&mut self) {
        self.watched.remove(self.plan.id);
        self.stop.cancel();
        if let Some(ended) = self.ended.take() {
            // A server that panicked has ended, too.
            let _ = ended.await;
        }
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Its version, as in `/version`.
    pub(super) fn version(&self) -> &str {
        &self.api.spec().git_version
    }

    /// The name of its Lease, and of its entries in StorageVersions.
    pub(super) fn identity(&self) -> &str {
        self.announcement.identity()
    }

    /// The latest requests for a path that arrived here: whether each came from a peer.
    pub(super) fn arrivals(&self, path: &str) -> Vec<bool> {
        self.arrivals.of(path)
    }

    /// The resources that it serves itself, as `jobs.v1.batch`.
    pub(super) fn own(&self) -> Vec<String> {
        own(self.api.spec())
    }
}

fn serve<S>(
    parts: &Parts,
    listener: TcpListener,
    service: S,
    stop: &CancellationToken,
) -> anyhow::Result<JoinHandle<Drained>>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let certificates = &parts.certificates;
    let trust = ClientTrust::new(
        Some(certificates.ca.as_bytes()),
        Some(certificates.front_proxy_ca.as_bytes()),
        vec!["front-proxy-client".to_owned()],
    )?;
    let pair = &certificates.server;
    let tls = ServerTls::new(pair.certificate.as_bytes(), pair.key.as_bytes(), trust)?;
    let tls = ReloadableTls::new(tls);
    let limits = Limits { grace: GRACE, ..Limits::default() };
    Ok(tokio::spawn(mvp_net::serve(listener, tls, limits, service, stop.clone())))
}

fn own(spec: &ServerSpec) -> Vec<String> {
    let mut own = Vec::new();
    for group in &spec.groups {
        for version in &group.versions {
            let suffix = match group.name.as_str() {
                "" => String::new(),
                name => format!(".{name}"),
            };
            let resources = version.resources.iter();
            own.extend(
                resources.map(|entry| format!("{}.{}{suffix}", entry.plural, version.version)),
            );
        }
    }
    own
}
