//! The validated configuration of `mvp serve`. Entry: [`ServeConfig::check`].
//!
//! This is the second stage of `raw → validated → running`. Every file is read and every flag is
//! checked against the others. After it only the environment can fail: a port in use, a server that
//! does not answer.

mod address;
pub(crate) mod balance;
mod check;
pub(crate) mod egress;
mod etcd;
mod limits;
pub(crate) mod listener;
pub(crate) mod peers_file;
pub(crate) mod pem;
mod server_id;
mod service;
mod steer;
mod tracing;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use mvp_net::TlsPolicy;
use mvp_proxy::RemoteHeaders;

pub(crate) use self::tracing::TracingConfig;
pub(crate) use crate::cli::{MembershipSource, Peer, ServerUrl};
pub(crate) use egress::EgressFile;
pub(crate) use etcd::EtcdConfig;
pub(crate) use limits::ClientLimits;
pub(crate) use listener::SniPair;
pub(crate) use peers_file::PeersFile;
pub(crate) use pem::{CertificateFile, KeyPair};

use crate::cli::Origins;
use crate::logging::{LogFilter, LogFormat};
use crate::members::CachePath;
use crate::mistake::Mistake;

/// The configuration of `mvp serve`.
#[derive(Debug, Clone)]
pub(crate) struct ServeConfig {
    /// The address to serve the API on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether another process may listen on the same addresses.
    pub share_port: bool,
    /// How connections are steered to this process, if they are.
    pub steer: Option<SteerConfig>,
    /// The time from SIGTERM to the start of the drain.
    pub shutdown_delay: Duration,
    /// The longest time of the drain.
    pub shutdown_grace: Duration,
    /// The serving certificate and its key.
    pub serving: KeyPair,
    /// Serving certificates for some server names.
    pub sni: Vec<SniPair>,
    /// The TLS versions and cipher suites of the listener.
    pub tls_policy: TlsPolicy,
    /// The address that peers are told, if it is known; its port is 0 where that of `listen` is.
    pub advertise: Option<SocketAddr>,
    /// The API server beside this gateway; none for a load balancer.
    pub local: Option<LocalServer>,
    /// The other members, and where they come from.
    pub peers: Peers,
    /// The CAs of client certificates.
    pub client_ca: Option<CertificateFile>,
    /// The trusted front proxies and their headers.
    pub request_header: RequestHeader,
    /// The client certificate for the local server and for peers.
    pub proxy_client: Option<KeyPair>,
    /// The interval at which the discovery of every member is fetched.
    pub refresh_interval: Duration,
    /// The gate `UnknownVersionInteroperabilityProxy`; a plain reverse proxy if it is off.
    pub interoperability: bool,
    /// The address of the admin endpoint.
    pub admin: SocketAddr,
    /// The host names under which it can be reached.
    pub admin_hosts: Vec<String>,
    /// Its Unix socket.
    pub admin_socket: AdminSocketPath,
    /// Where the dashboard is served to other hosts.
    pub dashboard: Option<DashboardConfig>,
    /// Whether the dashboard shows which requests go where.
    pub dashboard_flow: bool,
    /// The number of threads that serve requests.
    pub workers: usize,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The log level, and levels for single targets.
    pub log_filter: LogFilter,
    /// Whether requests that the local server answers are logged.
    pub log_local_requests: bool,
    /// Whether the callers of the last hour are recorded.
    pub record_callers: bool,
    /// Where traces of requests go; none without a collector.
    pub tracing: Option<TracingConfig>,
    /// The limits for clients.
    pub client_limits: ClientLimits,
    /// Warnings for the log, one sentence each.
    pub warnings: Vec<String>,
    /// The origin of each setting, for errors of a later reload.
    pub origins: Origins,
}

/// The dashboard for other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DashboardConfig {
    /// Its address.
    pub address: SocketAddr,
    /// The groups whose client certificates may see it.
    pub groups: Vec<String>,
}

/// The Unix socket of the admin endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdminSocketPath {
    /// The default path, if a socket can be created there.
    Default,
    /// This path.
    At(PathBuf),
    /// None.
    Off,
}

impl AdminSocketPath {
    /// By the flag: an empty path switches it off.
    fn of_flag(path: Option<&Path>) -> AdminSocketPath {
        match path {
            None => AdminSocketPath::Default,
            Some(path) if path.as_os_str().is_empty() => AdminSocketPath::Off,
            Some(path) => AdminSocketPath::At(path.to_owned()),
        }
    }
}

/// The API server beside this gateway.
#[derive(Debug, Clone)]
pub(crate) struct LocalServer {
    /// Its member ID, which is also the ID of this gateway.
    pub id: String,
    /// Its URL.
    pub url: ServerUrl,
    /// The CAs to verify it with.
    pub ca: CertificateFile,
}

/// New connections of the local server's port are handed to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SteerConfig {
    /// The way to a server that does not listen on loopback. Connections from loopback are never
    /// steered; without this, they would come back to us.
    pub around: Option<Around>,
}

/// The way around the steering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Around {
    /// The loopback address to connect from.
    pub source: IpAddr,
    /// The address of the server, at which it connects to itself.
    pub server: SocketAddr,
}

/// The other members, and where they come from.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    /// The CAs to verify them with; without it, no discovery is merged and nothing is proxied.
    pub ca: Option<CertificateFile>,
    /// The sources of members; empty if nothing is sent to peers.
    pub membership: Vec<MembershipSource>,
    /// The servers behind a load balancer.
    pub servers: Vec<ServerUrl>,
    /// Whether EndpointSlices are a source by default, not by a flag: then `servers` are enough if they
    /// cannot be read.
    pub endpoints_optional: bool,
    /// The file of the last known members of EndpointSlices.
    pub cache: CachePath,
    /// The address through which a load balancer without `servers` finds them.
    pub seed: Option<ServerUrl>,
    /// The peers of `--peer`; their IDs differ from each other and from the local one.
    pub named: Vec<Peer>,
    /// The peers file, which may change.
    pub file: Option<PeersFile>,
    /// The egress selector file, which may change.
    pub egress: Option<EgressFile>,
    /// The time for which a member that left is remembered.
    pub forget_after: Duration,
    /// The cluster's etcd, if it is configured.
    pub etcd: Option<EtcdConfig>,
}

/// The trusted front proxies, and the headers in which they name the user.
///
/// The header names are needed without a trusted proxy, too: they are removed from requests.
#[derive(Debug, Clone)]
pub(crate) struct RequestHeader {
    /// The CAs of trusted proxies and peers; without it, no header is trusted.
    pub ca: Option<CertificateFile>,
    /// The common names that their certificates may have; empty for any.
    pub allowed_names: Vec<String>,
    /// The headers with the user name.
    pub username: Vec<HeaderName>,
    /// The headers with groups.
    pub group: Vec<HeaderName>,
    /// The headers with the UID.
    pub uid: Vec<HeaderName>,
    /// The prefixes of headers with extra attributes.
    pub extra_prefix: Vec<HeaderName>,
}

impl RequestHeader {
    /// The names of the headers, for the data path.
    pub(crate) fn remote_headers(&self) -> RemoteHeaders {
        RemoteHeaders {
            username: self.username.clone(),
            group: self.group.clone(),
            uid: self.uid.clone(),
            extra_prefix: self.extra_prefix.iter().map(|p| p.as_str().to_owned()).collect(),
        }
    }
}

impl ServeConfig {
    /// The way around the steering, if the local server needs one.
    pub(crate) fn around(&self) -> Option<Around> {
        self.steer.as_ref()?.around
    }

    /// The way around the steering to the address that others use for the local server.
    pub(crate) fn advertised(&self) -> Option<Around> {
        self.steer.as_ref()?;
        let port = self.local.as_ref()?.url.port;
        Around::of(SocketAddr::new(self.advertise?.ip(), port))
    }

    /// Whether discovery is merged and requests are proxied to peers.
    pub(crate) fn serves_peers(&self) -> bool {
        self.interoperability && self.peers.ca.is_some()
    }
}

/// Refuses a CA that is in both bundles while any common name is allowed: every client could then
/// act as any user.
pub(crate) fn not_everyone(
    client_ca: Option<&CertificateFile>,
    request_header: &RequestHeader,
    origins: &Origins,
) -> Result<(), Mistake> {
    let (Some(clients), Some(proxies)) = (client_ca, &request_header.ca) else { return Ok(()) };
    let shared = proxies.certificates.iter().any(|ca| clients.certificates.contains(ca));
    if !shared || !request_header.allowed_names.is_empty() {
        return Ok(());
    }
    let sentence = format!(
        "empty, but {} and {} share a certificate, so that any client could act as any user; list \
         the names of the proxies, or use a separate CA for them",
        proxies.path.display(),
        clients.path.display()
    );
    Err(Mistake::usage(origins.name("requestheader-allowed-names"), sentence))
}

#[cfg(test)]
mod tests;
