//! The validated configuration of `mvp serve --pass-through`. Entry: [`BalanceConfig::check`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{ServerUrl, address, service};
use crate::cli::{self, Origins, ServeArgs};
use crate::logging::{LogFilter, LogFormat};
use crate::members::CachePath;
use crate::mistake::Mistake;

/// The workers if no flag says otherwise: copying needs little, and most nodes have other work.
const WORKERS: usize = 2;

/// The configuration of a load balancer of TCP connections.
#[derive(Debug, Clone)]
pub(crate) struct BalanceConfig {
    /// The address to accept connections on.
    pub listen: SocketAddr,
    /// Whether another process may listen on the same addresses.
    pub share_port: bool,
    /// The time from SIGTERM to the start of the drain.
    pub shutdown_delay: Duration,
    /// The longest time of the drain.
    pub shutdown_grace: Duration,
    /// The first members, as `HOST:PORT`.
    pub seeds: Vec<Arc<str>>,
    /// Whether all of them are on this host.
    pub one_host: bool,
    /// The folder of the service account.
    pub service_account: PathBuf,
    /// The file of the last known members.
    pub cache: CachePath,
    /// The most client connections, if the flag sets it.
    pub connections: Option<usize>,
    /// The address of the admin endpoint.
    pub admin: SocketAddr,
    /// The host names under which it can be reached.
    pub admin_hosts: Vec<String>,
    /// The number of threads that copy.
    pub workers: usize,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The log level, and levels for single targets.
    pub log_filter: LogFilter,
}

impl BalanceConfig {
    /// Checks the flags against each other. No file is read: a token may come later.
    pub(crate) fn check(args: &ServeArgs, origins: &Origins) -> Result<Self, Mistake> {
        refuse_others(args, origins)?;
        let listen = SocketAddr::new(args.bind_address, args.secure_port);
        let mut servers = args.servers.clone();
        if servers.is_empty() {
            let found = service::of_environment(&|name| std::env::var(name).ok());
            servers.push(found.map_err(|missing| {
                let sentence = format!(
                    "missing; give at least one API server, as https://HOST:PORT: {missing}"
                );
                Mistake::usage("--servers", sentence)
            })?);
        }
        for url in &servers {
            if address::is_own_listener(url, listen) {
                let sentence = format!(
                    "{url} is where mvp itself listens; name the API servers, or move mvp with \
                     --bind-address or --secure-port"
                );
                return Err(Mistake::usage(origins.name("servers"), sentence));
            }
        }
        let is_here = |url: &ServerUrl| url.ip().is_some_and(|ip| ip.is_loopback());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(BalanceConfig {
            listen,
            share_port: args.permit_port_sharing,
            shutdown_delay: args.shutdown_delay_duration,
            shutdown_grace: args.shutdown_grace_period,
            seeds: servers.iter().map(|url| url.authority().into()).collect(),
            one_host: servers.iter().all(is_here),
            service_account: args.service_account.clone(),
            cache: CachePath::of_flag(args.members_cache.as_deref()),
            connections: args.max_client_connections,
            admin: args.admin_bind_address,
            admin_hosts: args.admin_allowed_hosts.clone(),
            workers: args.workers.unwrap_or(cores.min(WORKERS)).min(cli::MAX_WORKERS),
            log_format: args.log_format,
            log_filter: args.log_level.clone(),
        })
    }
}

/// Whether an address is the listener itself: forwarding to it would loop.
pub(crate) fn is_own_address(member: SocketAddr, listen: SocketAddr) -> bool {
    let url = ServerUrl { host: member.ip().to_canonical().to_string(), port: member.port() };
    address::is_own_listener(&url, listen)
}

/// Flags of a gateway mean nothing here. A certificate or key among them would be a mistake with
/// consequences: it would be on every node.
fn refuse_others(args: &ServeArgs, origins: &Origins) -> Result<(), Mistake> {
    const KEYS: &str = "cannot be used with --pass-through, which forwards connections untouched and \
                        holds no certificates or keys; remove it";
    const GATEWAY: &str = "cannot be used with --pass-through, which does not look into connections; \
                           remove it";
    let given = |path: &Option<PathBuf>| path.is_some();
    let keys = [
        ("tls-cert-file", given(&args.tls_cert_file)),
        ("tls-private-key-file", given(&args.tls_private_key_file)),
        ("local-ca-file", given(&args.local_ca_file)),
        ("peer-ca-file", given(&args.peer_ca_file)),
        ("client-ca-file", given(&args.client_ca_file)),
        ("requestheader-client-ca-file", given(&args.requestheader_client_ca_file)),
        ("proxy-client-cert-file", given(&args.proxy_client_cert_file)),
        ("proxy-client-key-file", given(&args.proxy_client_key_file)),
        ("etcd-cafile", given(&args.etcd_cafile)),
        ("etcd-certfile", given(&args.etcd_certfile)),
        ("etcd-keyfile", given(&args.etcd_keyfile)),
        ("tracing-ca-file", given(&args.tracing_ca_file)),
    ];
    let socket = args.admin_socket.as_ref().is_some_and(|path| !path.as_os_str().is_empty());
    let gateway = [
        ("like", args.like.is_some()),
        ("steer", args.steer),
        ("local-server", args.local_server.is_some()),
        ("server-id", args.server_id.is_some()),
        ("membership", !args.membership.is_empty()),
        ("peer", !args.peer.is_empty()),
        ("peers-file", given(&args.peers_file)),
        ("egress-selector-config-file", given(&args.egress_selector_config_file)),
        ("etcd-servers", !args.etcd_servers.is_empty()),
        ("advertise-address", args.advertise_address.is_some()),
        ("peer-advertise-ip", args.peer_advertise_ip.is_some()),
        ("peer-advertise-port", args.peer_advertise_port.is_some()),
        ("requestheader-allowed-names", !args.requestheader_allowed_names.is_empty()),
        ("feature-gates", !args.feature_gates.is_empty()),
        ("goaway-chance", args.goaway_chance > 0.0),
        ("max-client-connections-per-address", args.max_client_connections_per_address > 0),
        ("max-peer-requests", args.limits.max_peer_requests.is_some()),
        ("max-peer-watches", args.limits.max_peer_watches.is_some()),
        ("admin-socket", socket),
        ("tracing-endpoint", args.tracing_endpoint.is_some()),
        ("dashboard-bind-address", args.dashboard_bind_address.is_some()),
        ("dashboard-allowed-groups", !args.dashboard_allowed_groups.is_empty()),
        ("dashboard-flow", args.dashboard_flow),
    ];
    let keys = keys.into_iter().map(|(flag, given)| (flag, given, KEYS));
    let gateway = gateway.into_iter().map(|(flag, given)| (flag, given, GATEWAY));
    match keys.chain(gateway).find(|(_, given, _)| *given) {
        Some((flag, _, sentence)) => Err(Mistake::usage(origins.name(flag), sentence)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{Invocation, parse};

    fn check(flags: &[&str]) -> Result<BalanceConfig, String> {
        let argv = ["mvp", "serve", "--pass-through"].iter().chain(flags).map(OsString::from);
        let Ok(Invocation::Serve(args, origins, _)) = parse(argv.collect()) else { panic!() };
        BalanceConfig::check(&args, &origins).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn defaults_do_not_collide_with_a_gateway() {
        let config = check(&["--servers=https://10.0.0.1:6443,https://[fd00::1]:6443"]).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:7445");
        assert_eq!(config.admin.to_string(), "127.0.0.1:6481");
        assert_eq!(config.seeds, ["10.0.0.1:6443".into(), "[fd00::1]:6443".into()]);
        assert!(!config.one_host && config.workers <= 2);
        assert_eq!(config.cache, CachePath::Default);
        let given = check(&[
            "--servers=https://127.0.0.1:6443",
            "--bind-address=::1",
            "--secure-port=7446",
            "--admin-bind-address=127.0.0.1:1",
            "--members-cache=",
        ]);
        let given = given.unwrap();
        assert_eq!(given.listen.to_string(), "[::1]:7446");
        assert_eq!(given.admin.to_string(), "127.0.0.1:1");
        assert!(given.one_host);
        assert_eq!(given.cache, CachePath::Off);
    }

    #[test]
    fn keys_and_other_forms_are_refused() {
        let servers = "--servers=https://10.0.0.1:6443";
        for (flag, why) in [
            ("--tls-private-key-file=x", "holds no certificates or keys"),
            ("--proxy-client-key-file=x", "holds no certificates or keys"),
            ("--peer-ca-file=x", "holds no certificates or keys"),
            ("--local-server=https://127.0.0.1:6443", "does not look into connections"),
            ("--membership=static", "does not look into connections"),
            ("--peer=b=https://b:1", "does not look into connections"),
            ("--admin-socket=/run/x", "does not look into connections"),
        ] {
            let sentence = check(&[servers, flag]).unwrap_err();
            let name = flag.split('=').next().unwrap();
            assert!(sentence.starts_with(&format!("{name}: ")), "{sentence}");
            assert!(sentence.contains(why), "{sentence}");
        }
        for url in ["https://127.0.0.1:7445", "https://localhost:7445"] {
            let sentence = check(&[&format!("--servers={url}")]).unwrap_err();
            assert!(sentence.contains("is where mvp itself listens"), "{sentence}");
        }
    }

    #[test]
    fn own_addresses() {
        for (member, listen, own) in [
            ("127.0.0.1:7445", "127.0.0.1:7445", true),
            ("[::ffff:127.0.0.1]:7445", "127.0.0.1:7445", true),
            ("127.0.0.1:7445", "0.0.0.0:7445", true),
            ("127.0.0.1:6443", "127.0.0.1:7445", false),
            ("10.0.0.1:7445", "127.0.0.1:7445", false),
        ] {
            let (member, listen) = (member.parse().unwrap(), listen.parse().unwrap());
            assert_eq!(is_own_address(member, listen), own, "{member} {listen}");
        }
    }
}
