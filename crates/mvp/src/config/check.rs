//! The checks of a configuration, by theme and in the order of the help page. Entry:
//! [`ServeConfig::check`].

use std::net::SocketAddr;
use std::time::SystemTime;

use super::{
    AdminSocketPath, CertificateFile, ClientLimits, DashboardConfig, EgressFile, EtcdConfig,
    KeyPair, LocalServer, MembershipSource, Peer, Peers, PeersFile, RequestHeader, ServeConfig,
    ServerUrl, SniPair, SteerConfig, TracingConfig, address, listener, not_everyone, pem,
    server_id, service,
};
use crate::cli::{self, FeatureGate, Origins, ServeArgs};
use crate::files;
use crate::members::CachePath;
use crate::mistake::Mistake;

impl ServeConfig {
    /// Checks the flags against each other, and reads every file that they name.
    ///
    /// Reports the first mistake, in the order of the help page.
    pub(crate) fn check(
        args: ServeArgs,
        origins: &Origins,
        now: SystemTime,
    ) -> Result<Self, Mistake> {
        not_pass_through(&args, origins)?;
        let mut check = Check {
            args: &args,
            origins,
            files: pem::Files::new(origins, now, &files::read),
            listen: SocketAddr::new(args.bind_address, args.secure_port),
        };
        let client_limits = ClientLimits::check(&args, origins)?;
        let serving = check.serving()?;
        let sni = SniPair::check(&mut check.files, &args)?;
        let tls_policy = listener::policy(&mut check.files, &args, origins)?;
        check.not_own_listener()?;
        let peer_ca = check.files.authorities("peer-ca-file", args.peer_ca_file.clone())?;
        let (local, seed) = check.servers(peer_ca.as_ref())?;
        let steer = SteerConfig::check(&args, local.as_ref(), origins)?;
        let peers_file = check.peers_file(local.as_ref())?;
        let egress = check.egress()?;
        let client_ca = check.files.authorities("client-ca-file", args.client_ca_file.clone())?;
        let request_header = check.request_header()?;
        not_everyone(client_ca.as_ref(), &request_header, origins)?;
        let proxy_client = check.files.pair(
            ("proxy-client-cert-file", args.proxy_client_cert_file.clone()),
            ("proxy-client-key-file", args.proxy_client_key_file.clone()),
        )?;
        let etcd = EtcdConfig::check(&mut check.files, &args, origins)?;
        let static_peers = !args.peer.is_empty() || peers_file.is_some() || local.is_none();
        let membership = match interoperability(&args) && peer_ca.is_some() {
            true => check.membership(static_peers, etcd.is_some())?,
            false => Vec::new(),
        };
        let advertise = check.advertised(&membership, local.is_some())?;
        let tracing = TracingConfig::check(&mut check.files, &args, origins)?;
        let mut config = Self {
            listen: check.listen,
            share_port: args.permit_port_sharing,
            steer,
            shutdown_delay: args.shutdown_delay_duration,
            shutdown_grace: args.shutdown_grace_period,
            serving,
            sni,
            tls_policy,
            advertise,
            local,
            client_ca,
            request_header,
            proxy_client,
            refresh_interval: args.refresh_interval,
            interoperability: interoperability(&args),
            admin: args.admin_bind_address,
            admin_hosts: args.admin_allowed_hosts.clone(),
            admin_socket: AdminSocketPath::of_flag(args.admin_socket.as_deref()),
            dashboard: check.dashboard()?,
            dashboard_flow: args.dashboard_flow,
            workers: args.workers.unwrap_or_else(cores),
            log_format: args.log_format,
            log_filter: args.log_level.clone(),
            log_local_requests: args.log_local_requests,
            record_callers: args.record_callers,
            tracing,
            client_limits,
            warnings: check.files.into_warnings(),
            origins: origins.clone(),
            peers: Peers {
                ca: peer_ca,
                endpoints_optional: args.membership.is_empty(),
                cache: cache_path(&args),
                membership,
                servers: args.servers,
                seed,
                named: args.peer,
                file: peers_file,
                egress,
                forget_after: args.forget_after,
                etcd,
            },
        };
        config.check_local_for_plain_proxy()?;
        config.check_proxy_certificate()?;
        config.warn();
        Ok(config)
    }

    fn check_local_for_plain_proxy(&self) -> Result<(), Mistake> {
        if self.local.is_some() || self.interoperability {
            return Ok(());
        }
        let sentence = "UnknownVersionInteroperabilityProxy=false makes mvp a plain reverse proxy, \
                        which needs --local-server; give it, or remove the gate";
        Err(Mistake::usage(self.origins.name("feature-gates"), sentence))
    }

    /// Users known by certificate or header, and every request to a peer, are sent over a connection
    /// that presents the proxy client certificate.
    fn check_proxy_certificate(&self) -> Result<(), Mistake> {
        if self.proxy_client.is_some() {
            return Ok(());
        }
        let purpose = if self.serves_peers() {
            "--peer-ca-file needs it to read the discovery of the local server and of peers"
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
        self.warnings.extend(self.origins.like().iter().flat_map(|like| like.warnings.clone()));
        if !self.interoperability {
            self.warnings.push(
                "feature gate UnknownVersionInteroperabilityProxy is off: mvp is a plain reverse \
                 proxy of the local server, merges no discovery and sends nothing to peers"
                    .to_owned(),
            );
        } else if self.peers.ca.is_none() {
            let ignored = match (self.peers.named.len(), &self.peers.file) {
                (0, None) => String::new(),
                (count, None) => format!("; ignores {count} peers of --peer"),
                (_, Some(file)) => format!("; ignores --peers-file {}", file.path.display()),
            };
            self.warnings.push(format!(
                "no --peer-ca-file: mvp serves the APIs of the local server only, merges no \
                 discovery and sends nothing to peers{ignored}"
            ));
        }
        if self.peers.etcd.is_some() && !self.peers.membership.contains(&MembershipSource::Etcd) {
            self.warnings.push(
                "--etcd-servers is not used: add etcd to --membership, or remove --etcd-servers"
                    .to_owned(),
            );
        }
        if !self.admin.ip().is_loopback() {
            self.warnings.push(format!(
                "--admin-bind-address {} can be reached from other hosts, over plain HTTP and \
                 without authentication; use a loopback address",
                self.admin
            ));
        }
    }
}

/// What the checks share.
struct Check<'a> {
    args: &'a ServeArgs,
    origins: &'a Origins,
    files: pem::Files<'a>,
    listen: SocketAddr,
}

impl Check<'_> {
    /// The dashboard for other hosts: only with TLS client certificates, of these groups.
    fn dashboard(&self) -> Result<Option<DashboardConfig>, Mistake> {
        let groups = &self.args.dashboard_allowed_groups;
        let Some(address) = self.args.dashboard_bind_address else {
            return match groups.is_empty() {
                true => Ok(None),
                false => {
                    let sentence = "it allows groups to see the dashboard from other hosts; add \
                                    --dashboard-bind-address, or remove it";
                    let flag = self.origins.name("dashboard-allowed-groups");
                    Err(Mistake::usage(flag, sentence))
                }
            };
        };
        let flag = || self.origins.name("dashboard-bind-address");
        if groups.is_empty() {
            let sentence = "the dashboard is served to clients of some groups only; add \
                            --dashboard-allowed-groups, such as system:masters";
            return Err(Mistake::usage(flag(), sentence));
        }
        if self.args.client_ca_file.is_none() {
            let sentence =
                "the dashboard is served to client certificates only; add --client-ca-file";
            return Err(Mistake::usage(flag(), sentence));
        }
        Ok(Some(DashboardConfig { address, groups: groups.clone() }))
    }

    fn serving(&mut self) -> Result<KeyPair, Mistake> {
        let pair = self.files.pair(
            ("tls-cert-file", self.args.tls_cert_file.clone()),
            ("tls-private-key-file", self.args.tls_private_key_file.clone()),
        )?;
        let what = "the serving certificate, and --tls-private-key-file";
        pair.ok_or_else(|| required("tls-cert-file", what))
    }

    /// A gateway that forwards to its own listener would loop. With --steer it has another one.
    fn not_own_listener(&self) -> Result<(), Mistake> {
        if self.args.steer {
            return Ok(());
        }
        let local = self.args.local_server.iter().map(|url| (url, "local-server"));
        let servers = self.args.servers.iter().map(|url| (url, "servers"));
        for (url, key) in local.chain(servers) {
            if address::is_own_listener(url, self.listen) {
                let sentence = format!(
                    "{url} is where mvp itself listens; move one of them with --bind-address or \
                     --secure-port"
                );
                return Err(Mistake::usage(self.origins.name(key), sentence));
            }
        }
        Ok(())
    }

    /// The local server, or none for a load balancer; and the address at which a load balancer
    /// without `--servers` finds them.
    fn servers(
        &mut self,
        peer_ca: Option<&CertificateFile>,
    ) -> Result<(Option<LocalServer>, Option<ServerUrl>), Mistake> {
        let local_ca = self.files.authorities("local-ca-file", self.args.local_ca_file.clone())?;
        let finds_servers = self.args.membership.contains(&MembershipSource::Endpoints);
        match (&self.args.local_server, self.args.servers.is_empty()) {
            (Some(_), false) => {
                let sentence = "cannot be used with --local-server; give --local-server to run \
                                beside one server, or --servers to run in front of all";
                Err(Mistake::usage(self.origins.name("servers"), sentence))
            }
            (None, true) if !finds_servers => {
                let what = "the API server beside this gateway, as https://HOST:PORT, or --servers \
                            for a load balancer in front of all";
                Err(required("local-server", what))
            }
            (None, _) if peer_ca.is_none() => {
                Err(required("peer-ca-file", "the CAs to verify the servers with"))
            }
            (None, true) => {
                let found = service::of_environment(&|name| std::env::var(name).ok());
                let seed = found.map_err(|missing| {
                    let what = format!("a server through which to find the others: {missing}");
                    required("servers", &what)
                })?;
                Ok((None, Some(seed)))
            }
            (Some(url), true) => {
                let ca = local_ca.or_else(|| peer_ca.cloned()).ok_or_else(|| {
                    required("local-ca-file", "the CAs to verify the local server with")
                })?;
                let id = self.args.server_id.clone().map_or_else(server_id::of_this_host, Ok)?;
                Ok((Some(LocalServer { id, url: url.clone(), ca }), None))
            }
            (None, false) => Ok((None, None)),
        }
    }

    fn peers_file(&self, local: Option<&LocalServer>) -> Result<Option<PeersFile>, Mistake> {
        let own = local.map_or("", |local| &local.id);
        distinct(own, &self.args.peer, self.origins)?;
        let Some(path) = self.args.peers_file.clone() else { return Ok(None) };
        let bytes = files::read(&path);
        PeersFile::check(path, bytes, own, &self.args.peer, self.origins).map(Some)
    }

    fn egress(&mut self) -> Result<Option<EgressFile>, Mistake> {
        let Some(path) = self.args.egress_selector_config_file.clone() else { return Ok(None) };
        let bytes = files::read(&path);
        EgressFile::check(&mut self.files, path, bytes).map(Some)
    }

    fn request_header(&mut self) -> Result<RequestHeader, Mistake> {
        let args = self.args;
        let ca = args.requestheader_client_ca_file.clone();
        let names = args.requestheader_allowed_names.iter();
        Ok(RequestHeader {
            ca: self.files.authorities("requestheader-client-ca-file", ca)?,
            allowed_names: names.filter(|name| !name.is_empty()).cloned().collect(),
            username: args.requestheader_username_headers.clone(),
            group: args.requestheader_group_headers.clone(),
            uid: args.requestheader_uid_headers.clone(),
            extra_prefix: args.requestheader_extra_headers_prefix.clone(),
        })
    }

    /// The sources of members: those of the flag, or a default by what else is configured.
    fn membership(&self, static_peers: bool, etcd: bool) -> Result<Vec<MembershipSource>, Mistake> {
        let membership = match (&*self.args.membership, static_peers, etcd) {
            ([], true, true) => vec![MembershipSource::Static, MembershipSource::Etcd],
            ([], true, false) if !self.args.servers.is_empty() => {
                vec![MembershipSource::Static, MembershipSource::Endpoints]
            }
            ([], true, false) => vec![MembershipSource::Static],
            ([], false, true) => vec![MembershipSource::Etcd],
            ([], false, false) => vec![MembershipSource::Leases],
            (sources, ..) => sources.to_vec(),
        };
        if membership.contains(&MembershipSource::Etcd) && !etcd {
            let sentence = "etcd needs --etcd-servers; give the same value as kube-apiserver's";
            return Err(Mistake::usage(self.origins.name("membership"), sentence));
        }
        Ok(membership)
    }

    /// The address that peers are told. With Leases or etcd, mvp must be a member, and the address
    /// must be usable by others.
    fn advertised(
        &self,
        membership: &[MembershipSource],
        is_member: bool,
    ) -> Result<Option<SocketAddr>, Mistake> {
        let ip = self.args.peer_advertise_ip.or(self.args.advertise_address);
        let advertise = address::advertised(ip, self.args.peer_advertise_port, self.listen);
        let announces = [MembershipSource::Leases, MembershipSource::Etcd];
        if !announces.iter().any(|source| membership.contains(source)) {
            return Ok(advertise);
        }
        if !is_member {
            let sentence = "with --servers, mvp is not a cluster member and announces nothing; use \
                            --membership=static or endpoints";
            let from_etcd = self.args.membership.is_empty();
            let key = if from_etcd { "etcd-servers" } else { "membership" };
            return Err(Mistake::usage(self.origins.name(key), sentence));
        }
        address::announced(advertise, ip.is_some(), self.origins)?;
        Ok(advertise)
    }
}

/// Beside a server, members are known from there: only a load balancer keeps them on disk.
fn cache_path(args: &ServeArgs) -> CachePath {
    match args.local_server {
        Some(_) => CachePath::Off,
        None => CachePath::of_flag(args.members_cache.as_deref()),
    }
}

/// The form without certificates has a configuration of its own.
fn not_pass_through(args: &ServeArgs, origins: &Origins) -> Result<(), Mistake> {
    if !args.pass_through {
        return Ok(());
    }
    let sentence = "only mvp serve has this form; it has no certificates to check, and its /readyz tells \
                    whether it works";
    Err(Mistake::usage(origins.name("pass-through"), sentence))
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

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(cli::MAX_WORKERS)
}

/// Whether the feature gate is on: the last one that was given counts.
fn interoperability(args: &ServeArgs) -> bool {
    args.feature_gates.last().is_none_or(|gate| {
        let FeatureGate::UnknownVersionInteroperabilityProxy(on) = gate;
        *on
    })
}
