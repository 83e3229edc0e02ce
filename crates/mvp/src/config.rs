//! The configuration of `mvp serve`, checked: every file read, every flag held against the others.
//!
//! [`ServeConfig::check`] is the second stage of `raw → checked → run`: past it, nothing of what the
//! operator wrote can be wrong, only the world can (a port in use, a server that does not answer).
//! The first mistake found is told, in the order of the help page.

mod address;
mod etcd;
mod limits;
pub(crate) mod peers_file;
pub(crate) mod pem;
mod server_id;
mod service;

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use http::HeaderName;

pub(crate) use crate::cli::{MembershipSource, Peer, ServerUrl};
pub(crate) use etcd::EtcdConfig;
pub(crate) use limits::ClientLimits;
pub(crate) use peers_file::PeersFile;
pub(crate) use pem::{CertificateFile, KeyPair};

use crate::cli::{self, FeatureGate, Origins, ServeArgs};
use crate::files;
use crate::logging::{LogFilter, LogFormat};
use crate::mistake::Mistake;

/// All that `mvp serve` runs on.
#[derive(Debug, Clone)]
pub(crate) struct ServeConfig {
    /// Where to listen; port 0 for any free one.
    pub listen: SocketAddr,
    /// Whether another process may listen there too.
    pub share_port: bool,
    /// How long all is served after the signal to end.
    pub shutdown_delay: Duration,
    /// How long requests may go on after that.
    pub shutdown_grace: Duration,
    /// What to serve with.
    pub serving: KeyPair,
    /// Where peers reach us, if it can be known; its port is 0 where that of `listen` is.
    pub advertise: Option<SocketAddr>,
    /// The server we stand beside; a load balancer stands beside none.
    pub local: Option<LocalServer>,
    /// The other members.
    pub peers: Peers,
    /// CAs of client certificates.
    pub client_ca: Option<CertificateFile>,
    /// Whose headers are believed, and which.
    pub request_header: RequestHeader,
    /// What proves us to the local server and to peers.
    pub proxy_client: Option<KeyPair>,
    /// How often every member is asked what it serves.
    pub refresh_interval: Duration,
    /// The gate `UnknownVersionInteroperabilityProxy`; off makes a plain reverse proxy.
    pub interoperability: bool,
    /// Where the admin endpoint listens.
    pub admin: SocketAddr,
    /// How many threads serve.
    pub workers: usize,
    /// How logs are written.
    pub log_format: LogFormat,
    /// What is logged.
    pub log_filter: LogFilter,
    /// Whether requests that stay local are logged too.
    pub log_local_requests: bool,
    /// How much clients may use.
    pub client_limits: ClientLimits,
    /// What is no mistake but should be known; one sentence each, for the log.
    pub warnings: Vec<String>,
    /// Where the settings came from, to name them when a file goes bad later.
    pub origins: Origins,
}

/// The server we stand beside.
#[derive(Debug, Clone)]
pub(crate) struct LocalServer {
    /// Its member ID, and so ours.
    pub id: String,
    /// Where it is reached.
    pub url: ServerUrl,
    /// The CAs to verify it with.
    pub ca: CertificateFile,
}

/// The other members, and how they are known.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    /// The CAs to verify them with; without any, nothing is merged or proxied.
    pub ca: Option<CertificateFile>,
    /// Where members come from; nowhere, where nothing is sent to peers.
    pub membership: Vec<MembershipSource>,
    /// The servers that a load balancer stands before.
    pub servers: Vec<ServerUrl>,
    /// Where one is asked for them, if none of them is named.
    pub seed: Option<ServerUrl>,
    /// Those that flags name; IDs differ from each other and from ours.
    pub named: Vec<Peer>,
    /// Those that a file names, which may change.
    pub file: Option<PeersFile>,
    /// How long one that left is remembered.
    pub forget_after: Duration,
    /// The cluster's etcd.
    pub etcd: Option<EtcdConfig>,
}

/// Whose headers say who the user is, and which headers. The names matter even where nobody is
/// believed: they are what is removed.
#[derive(Debug, Clone)]
pub(crate) struct RequestHeader {
    /// CAs of trusted proxies and peers; without any, nobody is believed.
    pub ca: Option<CertificateFile>,
    /// Common names that their certificates may have; empty for any.
    pub allowed_names: Vec<String>,
    /// Headers with the user name.
    pub username: Vec<HeaderName>,
    /// Headers with groups.
    pub group: Vec<HeaderName>,
    /// Headers with the UID.
    pub uid: Vec<HeaderName>,
    /// Prefixes of headers with extra attributes.
    pub extra_prefix: Vec<HeaderName>,
}

impl ServeConfig {
    /// Checks what was asked for. Reads every file that it names.
    pub(crate) fn check(
        args: ServeArgs,
        origins: &Origins,
        now: SystemTime,
    ) -> Result<Self, Mistake> {
        let client_limits = ClientLimits::new(&args);
        let mut files = pem::Files::new(origins, now, &files::read);
        let listen = SocketAddr::new(args.bind_address, args.secure_port);
        let serving = files
            .pair(
                ("tls-cert-file", args.tls_cert_file),
                ("tls-private-key-file", args.tls_private_key_file),
            )?
            .ok_or_else(|| {
                required(
                    "tls-cert-file",
                    "the certificate to serve with, and --tls-private-key-file",
                )
            })?;
        let beside = (args.local_server.as_ref(), "local-server");
        let before = args.servers.iter().map(|url| (Some(url), "servers"));
        for (url, key) in std::iter::once(beside).chain(before) {
            if let Some(url) = url.filter(|url| address::is_own_listener(url, listen)) {
                let sentence = format!(
                    "{url} is where mvp itself listens; move one of them with --bind-address or \
                     --secure-port"
                );
                return Err(Mistake::usage(origins.name(key), sentence));
            }
        }
        let peer_ca = files.authorities("peer-ca-file", args.peer_ca_file)?;
        let local_ca = files.authorities("local-ca-file", args.local_ca_file)?;
        let finds_servers = args.membership.contains(&MembershipSource::Endpoints);
        let mut seed = None;
        let local = match (args.local_server, args.servers.is_empty()) {
            (Some(_), false) => {
                let sentence = "given with --local-server; stand beside one server, or before all";
                return Err(Mistake::usage(origins.name("servers"), sentence));
            }
            (None, true) if !finds_servers => {
                let what = "the API server to stand beside, as https://HOST:PORT, or --servers to \
                            stand before";
                return Err(required("local-server", what));
            }
            (None, _) if peer_ca.is_none() => {
                return Err(required("peer-ca-file", "the CAs to verify the servers with"));
            }
            (None, true) => {
                let found = service::of_environment(&|name| std::env::var(name).ok());
                seed = Some(found.map_err(|missing| {
                    let what = format!("a server by which the others are found: {missing}");
                    required("servers", &what)
                })?);
                None
            }
            (Some(url), true) => {
                let ca = local_ca.or_else(|| peer_ca.clone()).ok_or_else(|| {
                    required("local-ca-file", "the CAs to verify the local server with")
                })?;
                let id = args.server_id.map_or_else(server_id::of_this_host, Ok)?;
                Some(LocalServer { id, url, ca })
            }
            (None, false) => None,
        };
        let id = local.as_ref().map_or_else(String::new, |local| local.id.clone());
        distinct(&id, &args.peer, origins)?;
        let peers_file = match args.peers_file {
            Some(path) => {
                let bytes = files::read(&path);
                Some(PeersFile::check(path, bytes, &id, &args.peer, origins)?)
            }
            None => None,
        };
        let client_ca = files.authorities("client-ca-file", args.client_ca_file)?;
        let request_header = RequestHeader {
            ca: files
                .authorities("requestheader-client-ca-file", args.requestheader_client_ca_file)?,
            allowed_names: not_blank(args.requestheader_allowed_names),
            username: args.requestheader_username_headers,
            group: args.requestheader_group_headers,
            uid: args.requestheader_uid_headers,
            extra_prefix: args.requestheader_extra_headers_prefix,
        };
        not_everyone(client_ca.as_ref(), &request_header, origins)?;
        let proxy_client = files.pair(
            ("proxy-client-cert-file", args.proxy_client_cert_file),
            ("proxy-client-key-file", args.proxy_client_key_file),
        )?;
        let interoperability = args.feature_gates.last().is_none_or(|gate| {
            let FeatureGate::UnknownVersionInteroperabilityProxy(on) = gate;
            *on
        });
        let etcd = EtcdConfig::check(
            &mut files,
            args.etcd_servers,
            args.etcd_cafile,
            (args.etcd_certfile, args.etcd_keyfile),
            args.etcd_prefix,
            origins,
        )?;
        let named = !args.peer.is_empty() || peers_file.is_some() || local.is_none();
        let membership = match (&*args.membership, interoperability && peer_ca.is_some()) {
            (_, false) => Vec::new(),
            ([], true) if named && etcd.is_some() => {
                vec![MembershipSource::Static, MembershipSource::Etcd]
            }
            ([], true) if named => vec![MembershipSource::Static],
            ([], true) if etcd.is_some() => vec![MembershipSource::Etcd],
            ([], true) => vec![MembershipSource::Leases],
            (sources, true) => sources.to_vec(),
        };
        if membership.contains(&MembershipSource::Etcd) && etcd.is_none() {
            let sentence = "etcd needs --etcd-servers; give them as kube-apiserver has them";
            return Err(Mistake::usage(origins.name("membership"), sentence));
        }
        let advertise = address::advertised(
            args.peer_advertise_ip.or(args.advertise_address),
            args.peer_advertise_port,
            listen,
        );
        let announces = [MembershipSource::Leases, MembershipSource::Etcd];
        if announces.iter().any(|source| membership.contains(source)) {
            if local.is_none() {
                let sentence = "who stands before all servers is no member, and announces itself \
                                nowhere; use static, endpoints or both";
                let key = if args.membership.is_empty() { "etcd-servers" } else { "membership" };
                return Err(Mistake::usage(origins.name(key), sentence));
            }
            let given = args.peer_advertise_ip.is_some() || args.advertise_address.is_some();
            address::announced(advertise, given, origins)?;
        }
        let mut config = Self {
            listen,
            share_port: args.permit_port_sharing,
            shutdown_delay: args.shutdown_delay_duration,
            shutdown_grace: args.shutdown_grace_period,
            serving,
            advertise,
            local,
            peers: Peers {
                ca: peer_ca,
                membership,
                servers: args.servers,
                seed,
                named: args.peer,
                file: peers_file,
                forget_after: args.forget_after,
                etcd,
            },
            client_ca,
            request_header,
            proxy_client,
            refresh_interval: args.refresh_interval,
            interoperability,
            admin: args.admin_bind_address,
            workers: args.workers.unwrap_or_else(cores),
            log_format: args.log_format,
            log_filter: args.log_level,
            log_local_requests: args.log_local_requests,
            client_limits,
            warnings: files.into_warnings(),
            origins: origins.clone(),
        };
        if config.local.is_none() && !config.interoperability {
            let sentence = "off, but there is no --local-server to be a plain reverse proxy of";
            return Err(Mistake::usage(origins.name("feature-gates"), sentence));
        }
        config.needs_identity()?;
        config.warn();
        Ok(config)
    }

    /// Whether discovery is merged and requests go to peers.
    pub(crate) fn serves_peers(&self) -> bool {
        self.interoperability && self.peers.ca.is_some()
    }

    /// Users that we know by certificate or header, and all that goes to peers, ride on the proxy's
    /// own certificate.
    fn needs_identity(&self) -> Result<(), Mistake> {
        if self.proxy_client.is_some() {
            return Ok(());
        }
        let purpose = if self.serves_peers() {
            "--peer-ca-file needs it, to ask the local server and peers what they serve"
        } else if self.client_ca.is_some() {
            "--client-ca-file needs it to tell the local server who the user is"
        } else if self.request_header.ca.is_some() {
            "--requestheader-client-ca-file needs it to tell the local server who the user is"
        } else {
            return Ok(());
        };
        let sentence = format!(
            "missing, but {purpose}; give it with --proxy-client-key-file, signed by the \
             request-header CA of the servers"
        );
        Err(Mistake::usage("--proxy-client-cert-file", sentence))
    }

    fn warn(&mut self) {
        if !self.interoperability {
            self.warnings.push(
                "feature gate UnknownVersionInteroperabilityProxy is off: a plain reverse proxy of \
                 the local server, nothing is merged or sent to peers"
                    .to_owned(),
            );
        } else if self.peers.ca.is_none() {
            let ignored = match (self.peers.named.len(), &self.peers.file) {
                (0, None) => String::new(),
                (count, None) => format!(", {count} named by --peer ignored"),
                (_, Some(file)) => format!(", {} ignored", file.path.display()),
            };
            self.warnings.push(format!(
                "no --peer-ca-file: the local server's APIs only, nothing is merged or sent to \
                 peers{ignored}"
            ));
        }
        if self.peers.etcd.is_some() && !self.peers.membership.contains(&MembershipSource::Etcd) {
            self.warnings.push(
                "--etcd-servers is not used: add etcd to --membership, or leave it out".to_owned(),
            );
        }
        if !self.admin.ip().is_loopback() {
            self.warnings.push(format!(
                "--admin-bind-address {} is open to others than this host, in plain HTTP and \
                 without authentication",
                self.admin
            ));
        }
    }
}

fn required(key: &str, what: &str) -> Mistake {
    Mistake::usage(format!("--{key}"), format!("missing; give {what}"))
}

fn distinct(own: &str, peers: &[Peer], origins: &Origins) -> Result<(), Mistake> {
    for (index, Peer { id, .. }) in peers.iter().enumerate() {
        let sentence = if id == own {
            format!("{id} is this server's own ID; name only the others, or set --server-id")
        } else if peers.iter().take(index).any(|earlier| earlier.id == *id) {
            format!("{id} is named twice; give each peer its own ID")
        } else {
            continue;
        };
        return Err(Mistake::usage(origins.name("peer"), sentence));
    }
    Ok(())
}

/// With a certificate in both bundles and no allowed names, every user could pose as any other.
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
        "blank, but {} and {} share a certificate, so that any client could pose as any user; name \
         the proxies, or use a CA of their own",
        proxies.path.display(),
        clients.path.display()
    );
    Err(Mistake::usage(origins.name("requestheader-allowed-names"), sentence))
}

fn not_blank(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(cli::MAX_WORKERS)
}

#[cfg(test)]
mod tests;
