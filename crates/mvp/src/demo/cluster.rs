//! The demo's cluster: three API servers with one storage, each with the layer inside. Entry:
//! [`Cluster::start`].

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use http::Request;
use mvp_apiserver::{ApiServer, Caller, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_core::Snapshot;
use mvp_core::discovery::Part;
use mvp_core::member::MemberKind;
use mvp_net::{ClientTrust, Limits, ReloadableTls, ServerTls, bind};
use mvp_proxy::control::{MemberRecord, SnapshotReader, StaticMembership};
use mvp_proxy::{Body, Identity, Member, OutboundTls};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower_layer::Layer;

use super::certificates::Certificates;

/// The servers, which all know each other.
pub(super) struct Cluster {
    pub(super) servers: Vec<Server>,
}

/// A server of the demo.
pub(super) struct Server {
    pub(super) id: String,
    pub(super) version: &'static str,
    pub(super) address: SocketAddr,
    /// The resources that it serves itself.
    pub(super) own: Vec<String>,
    reader: SnapshotReader,
}

impl Server {
    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Cluster {
    /// Starts the servers, and waits until each has fetched the discovery of the others.
    pub(super) async fn start(
        certificates: &Certificates,
        port_base: u16,
        stop: &CancellationToken,
    ) -> anyhow::Result<Cluster> {
        let specs = specs();
        let mut listeners = Vec::new();
        for place in 0..specs.len() {
            let place = u16::try_from(place).unwrap_or(u16::MAX);
            let port = if port_base == 0 { 0 } else { port_base.saturating_add(place) };
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let listener = bind(address, false).with_context(|| {
                format!("cannot listen on {address}; choose other ports with --port-base")
            })?;
            listeners.push(TcpListener::from_std(listener)?);
        }
        let members: Vec<MemberRecord> = specs
            .iter()
            .zip(&listeners)
            .map(|(spec, listener)| {
                Ok(MemberRecord {
                    name: spec.id.as_str().into(),
                    address: Some(listener.local_addr()?.to_string().into()),
                    kind: MemberKind::Mvp,
                    heard: None,
                })
            })
            .collect::<std::io::Result<_>>()?;
        let storage = Storage::new();
        let mut servers = Vec::new();
        for ((spec, version), listener) in specs.into_iter().zip(VERSIONS).zip(listeners) {
            let server =
                start_server(certificates, spec, version, &storage, &members, listener, stop);
            servers.push(server?);
        }
        for server in &servers {
            let everyone = |snapshot: &Snapshot| {
                let seen = |part| snapshot.members().all(|m| m.view.part(part).is_some());
                snapshot.members().count() == members.len() && Part::ALL.into_iter().all(seen)
            };
            timeout(Duration::from_secs(20), server.reader.wait_for(everyone)).await.with_context(
                || format!("{} did not fetch the discovery of the others within 20 s", server.id),
            )?;
        }
        Ok(Cluster { servers })
    }
}

fn start_server(
    certificates: &Certificates,
    spec: ServerSpec,
    version: &'static str,
    storage: &Storage,
    members: &[MemberRecord],
    listener: TcpListener,
    stop: &CancellationToken,
) -> anyhow::Result<Server> {
    let (id, own) = (spec.id.clone(), own(&spec));
    let others = members.iter().filter(|member| *member.name.label() != *id).cloned().collect();
    let proxy = (certificates.proxy.certificate.as_bytes(), certificates.proxy.key.as_bytes());
    let outbound = OutboundTls::new(certificates.ca.as_bytes(), Some(proxy))?;
    let member = Member::builder(&id, outbound).build();
    let layer = member.start(StaticMembership::new(others), stop.clone()).layer();

    // Outermost first: authenticate the caller, then the layer, then the API server.
    let api_server = ApiServer::new(spec, storage.clone()).map_request(with_caller);
    let service = member.authenticate().layer(layer.layer(api_server));

    let trust = ClientTrust::new(
        Some(certificates.ca.as_bytes()),
        Some(certificates.front_proxy_ca.as_bytes()),
        vec!["front-proxy-client".to_owned()],
    )?;
    let pair = &certificates.server;
    let tls = ServerTls::new(pair.certificate.as_bytes(), pair.key.as_bytes(), trust)?;
    let server = Server {
        id,
        version,
        address: listener.local_addr()?,
        own,
        reader: member.reader().clone(),
    };
    let tls = ReloadableTls::new(tls);
    tokio::spawn(mvp_net::serve(listener, tls, Limits::default(), service, stop.clone()));
    Ok(server)
}

/// Puts the caller into the request, for the API server.
fn with_caller(mut request: Request<Body>) -> Request<Body> {
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let caller = match request.extensions().get::<Identity>() {
        Some(Identity::User(user)) => Caller {
            name: user.name.as_ref().map(text).unwrap_or_default(),
            groups: user.groups.iter().map(text).collect(),
        },
        Some(Identity::System) => {
            Caller { name: "system:apiserver".to_owned(), groups: Vec::new() }
        }
        Some(Identity::Token | Identity::Anonymous) | None => Caller::anonymous(),
    };
    request.extensions_mut().insert(caller);
    request
}

const VERSIONS: [&str; 3] = ["v1.34.0", "v1.35.0", "v1.36.0"];

/// An old, a middle and a new server: each lacks an API that another has.
fn specs() -> Vec<ServerSpec> {
    let core = || {
        GroupSpec::new("").version(
            "v1",
            [
                ResourceSpec::cluster("namespaces", "Namespace").with_short_name("ns"),
                ResourceSpec::namespaced("configmaps", "ConfigMap").with_short_name("cm"),
            ],
        )
    };
    let apps = || {
        let deployments = ResourceSpec::namespaced("deployments", "Deployment").with_status();
        GroupSpec::new("apps").version("v1", [deployments.with_short_name("deploy")])
    };
    let batch = GroupSpec::new("batch")
        .version("v1", [ResourceSpec::namespaced("jobs", "Job").with_status()]);
    let scheduling = GroupSpec::new("scheduling.k8s.io")
        .version("v1alpha2", [ResourceSpec::namespaced("podgroups", "PodGroup")]);
    let who = GroupSpec::new("authentication.k8s.io")
        .version("v1", [ResourceSpec::self_subject_reviews()]);
    let groups = [vec![core(), apps()], vec![core(), apps(), batch], vec![core(), who, scheduling]];
    let spec = |(groups, version): (Vec<GroupSpec>, &str)| ServerSpec {
        id: format!(
            "server-{}",
            version.trim_start_matches('v').trim_end_matches(".0").replace('.', "-")
        ),
        git_version: version.to_owned(),
        groups,
        ..ServerSpec::default()
    };
    groups.into_iter().zip(VERSIONS).map(spec).collect()
}

fn own(spec: &ServerSpec) -> Vec<String> {
    let mut own = Vec::new();
    for group in &spec.groups {
        for version in &group.versions {
            own.extend(version.resources.iter().map(|resource| {
                let group =
                    if group.name.is_empty() { String::new() } else { format!(".{}", group.name) };
                format!("{}.{}{group}", resource.plural, version.version)
            }));
        }
    }
    own
}
