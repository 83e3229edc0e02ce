//! The flags of `mvp serve`, which are also the keys of its config file and the text of its help.
//!
//! [`ServeArgs`] is typed but not validated: no file is read yet, and no flag is checked against another.
//! [`crate::config`] does that. No flag is required here, because the config file may set it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use http::{HeaderName, Uri};

use super::duration;
use super::like::LikeSource;
use super::limit_args::LimitArgs;
use super::tls_values::{self, MinVersion, SniFiles};
use super::trace_values;
use super::url::{self, Peer, ServerUrl};
use super::values::{self, FeatureGate, MembershipSource};
use crate::logging::{LogFilter, LogFormat};

/// The flags of `mvp serve`.
#[derive(Debug, Clone, Args)]
#[command(next_line_help = true, disable_help_flag = true)]
#[command(help_template = PAGE, after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Print this page.
    // Always the short form: it has all the text in half the lines.
    #[arg(short, long, action = ArgAction::HelpShort)]
    #[allow(dead_code, reason = "clap prints the page and never sets it")]
    help: Option<bool>,

    /// IP address to serve the API on; 0.0.0.0 and :: are all interfaces. With --pass-through the
    /// default is 127.0.0.1.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", value_parser = values::ip)]
    #[arg(default_value_if("pass_through", "true", "127.0.0.1"), help_heading = LISTENER)]
    pub bind_address: IpAddr,
    /// Port to serve the API on, with TLS; 0 takes a free port. With --pass-through the default is
    /// 7445.
    #[arg(long, value_name = "PORT", default_value = "6443", value_parser = values::port)]
    #[arg(default_value_if("pass_through", "true", "7445"), help_heading = LISTENER)]
    pub secure_port: u16,
    /// IP address at which other members of the cluster reach this one [default: the bind address,
    /// or that of the default interface].
    #[arg(long, value_name = "IP", value_parser = values::ip, help_heading = LISTENER)]
    pub advertise_address: Option<IpAddr>,
    /// PEM file with the serving certificate, followed by its intermediates (required).
    #[arg(long, value_name = "FILE", help_heading = LISTENER)]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the private key of that certificate (required).
    #[arg(long, value_name = "FILE", help_heading = LISTENER)]
    pub tls_private_key_file: Option<PathBuf>,
    /// More serving certificates, as CERT,KEY or CERT,KEY:NAMES with names that clients ask for,
    /// separated by commas, such as *.example.com; without names, those of the certificate; repeatable.
    #[arg(long, value_name = "FILES", value_parser = tls_values::sni_files)]
    #[arg(action = ArgAction::Append, help_heading = LISTENER)]
    pub tls_sni_cert_key: Vec<SniFiles>,
    /// Lowest TLS version of clients, VersionTLS12 or VersionTLS13 [default: VersionTLS12].
    #[arg(long, value_name = "VERSION", value_parser = tls_values::min_version)]
    #[arg(help_heading = LISTENER)]
    pub tls_min_version: Option<MinVersion>,
    /// Cipher suites of TLS 1.2, by Go's names, separated by commas; those of TLS 1.3 cannot be chosen
    /// [default: all that mvp has].
    #[arg(long, value_name = "SUITES", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(help_heading = LISTENER, value_parser = tls_values::cipher_suite)]
    pub tls_cipher_suites: Vec<String>,
    /// Allow another process with this flag to listen on the same addresses, the admin endpoint's
    /// too, so that a new mvp takes over from an old one without a refused connection.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = LISTENER)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub permit_port_sharing: bool,
    /// Hand new connections for kube-apiserver's port to mvp, in the kernel (BPF). Then --bind-address
    /// and --secure-port are those of kube-apiserver, which stays as it is and takes over when mvp
    /// stops or hangs. Needs Linux 5.9, CAP_BPF and CAP_NET_ADMIN, which are dropped at once.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = LISTENER)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub steer: bool,
    /// Time from SIGTERM to the start of the drain. Requests are served as before, but /readyz
    /// fails (unless --steer), so that load balancers stop sending new connections.
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = LISTENER)]
    #[arg(value_parser = duration::shutdown_delay)]
    pub shutdown_delay_duration: Duration,
    /// Time that requests and watches have to end in the drain, before they are cut off.
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = LISTENER)]
    #[arg(value_parser = duration::shutdown_grace)]
    pub shutdown_grace_period: Duration,

    /// Fraction of HTTP/2 requests that end their connection (GOAWAY), 0 (off) to 0.02, so that
    /// clients reconnect and a load balancer can rebalance them; 0.001 is a good start. Leave it off
    /// without a load balancer. Connections of peers and front proxies are never ended.
    #[arg(long, value_name = "FLOAT", default_value = "0", help_heading = LISTENER)]
    #[arg(value_parser = values::goaway_chance)]
    pub goaway_chance: f64,
    /// Maximum size of request line and headers, 8192 to 262144; larger requests get 431.
    #[arg(long, value_name = "BYTES", default_value = "131072", help_heading = LISTENER)]
    #[arg(value_parser = values::request_header_bytes)]
    pub max_request_header_bytes: usize,
    /// Maximum number of client connections; each may need two file descriptors [default: as many
    /// as the limit of open files allows].
    #[arg(long, value_name = "NUMBER", help_heading = LISTENER)]
    #[arg(value_parser = values::client_connections)]
    pub max_client_connections: Option<usize>,
    /// Maximum number of client connections from one IP address, 0 for no limit; at most
    /// --max-client-connections. Leave it off behind a load balancer that hides client addresses.
    #[arg(long, value_name = "NUMBER", default_value = "0", help_heading = LISTENER)]
    #[arg(value_parser = values::client_connections_per_address)]
    pub max_client_connections_per_address: usize,
    #[command(flatten)]
    pub limits: LimitArgs,

    /// API server beside this gateway, as https://HOST:PORT (required without --servers).
    #[arg(long, value_name = "URL", value_parser = url::server_url, help_heading = LOCAL)]
    pub local_server: Option<ServerUrl>,
    /// API servers to load balance, as https://HOST:PORT, separated by commas. mvp sends each request
    /// to a server that serves it, and is not a member itself. One server is enough if mvp may read
    /// the EndpointSlices of default/kubernetes, which name the others; with --membership=endpoints or
    /// --pass-through in a pod, none is needed.
    #[arg(long, value_name = "URLS", value_delimiter = ',', help_heading = LOCAL)]
    #[arg(action = ArgAction::Append, value_parser = url::server_url)]
    pub servers: Vec<ServerUrl>,
    /// Run as a load balancer of TCP connections that holds no keys, for every node: each connection
    /// is forwarded untouched to a healthy server, the nearest first. Needs no certificate flags;
    /// listens on 127.0.0.1:7445.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = LOCAL)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub pass_through: bool,
    /// File with the last known servers, for a start while none of --servers answers; used with
    /// --servers or --pass-through. Empty for none [default: /var/lib/mvp/members.json, if that folder
    /// can be written].
    #[arg(long, value_name = "FILE", value_parser = values::path_or_none, help_heading = LOCAL)]
    pub members_cache: Option<PathBuf>,
    /// Folder with the files token and ca.crt of a service account, with which --pass-through finds
    /// servers.
    #[arg(long, value_name = "FOLDER", default_value = crate::balance::SERVICE_ACCOUNT)]
    #[arg(help_heading = LOCAL)]
    pub service_account: PathBuf,
    /// PEM file with the CAs that signed the local server's certificate [default: the file of
    /// --peer-ca-file].
    #[arg(long, value_name = "FILE", help_heading = LOCAL)]
    pub local_ca_file: Option<PathBuf>,
    /// Member ID of the local server [default: the ID that a kube-apiserver on this host gives
    /// itself, apiserver-HASH].
    #[arg(long, value_name = "ID", value_parser = values::server_id, help_heading = LOCAL)]
    pub server_id: Option<String>,

    /// PEM file with the CAs that signed the peers' serving certificates; without it, discovery is
    /// not merged and no request is sent to peers.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub peer_ca_file: Option<PathBuf>,
    /// IP address at which peers reach this member [default: --advertise-address].
    #[arg(long, value_name = "IP", value_parser = values::ip, help_heading = PEERS)]
    #[arg(visible_alias = "peer-advertise-address")]
    pub peer_advertise_ip: Option<IpAddr>,
    /// Port at which peers reach this member [default: --secure-port].
    #[arg(long, value_name = "PORT", value_parser = values::peer_port, help_heading = PEERS)]
    pub peer_advertise_port: Option<u16>,
    /// Sources of members, separated by commas. static: --peer and --peers-file. leases: members
    /// announce themselves by Leases in kube-system, this one too. etcd: the same with keys in the
    /// cluster's etcd. endpoints: EndpointSlices of default/kubernetes [default: static if it names
    /// any peer, and etcd if --etcd-servers is set, else leases; with --servers: those, and
    /// endpoints if mvp may read them].
    #[arg(long, value_name = "SOURCES", value_delimiter = ',', help_heading = PEERS)]
    #[arg(action = ArgAction::Append, value_parser = values::membership)]
    pub membership: Vec<MembershipSource>,
    /// Peer, as ID=https://HOST:PORT, with ",kind=bare" at the end for a kube-apiserver without a
    /// gateway; repeatable.
    #[arg(long, value_name = "PEER", value_parser = url::peer, help_heading = PEERS)]
    #[arg(action = ArgAction::Append)]
    pub peer: Vec<Peer>,
    /// YAML file with more peers: "peers:" and a list of {id, address, kind, proxy-url}; reloaded
    /// when it changes.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub peers_file: Option<PathBuf>,
    /// YAML file with an EgressSelectorConfiguration, as kube-apiserver has it: connections to peers
    /// go through the HTTP CONNECT proxy of its controlplane selection; reloaded when it changes.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub egress_selector_config_file: Option<PathBuf>,
    /// Servers of the cluster's etcd, as https://HOST:PORT, separated by commas.
    #[arg(long, value_name = "URLS", value_delimiter = ',', help_heading = PEERS)]
    #[arg(action = ArgAction::Append, value_parser = values::etcd_server)]
    pub etcd_servers: Vec<Uri>,
    /// PEM file with the CAs that signed etcd's certificates.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub etcd_cafile: Option<PathBuf>,
    /// PEM file with the client certificate for etcd.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub etcd_certfile: Option<PathBuf>,
    /// PEM file with the private key of that certificate.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub etcd_keyfile: Option<PathBuf>,
    /// Prefix of the keys of the cluster's API servers in etcd.
    #[arg(long, value_name = "PATH", default_value = "/registry", help_heading = PEERS)]
    pub etcd_prefix: String,
    /// Time for which a member that left is remembered: APIs that only it serves get 503, not 404.
    #[arg(long, value_name = "TIME", default_value = "10m", help_heading = PEERS)]
    #[arg(value_parser = duration::forget_after)]
    pub forget_after: Duration,

    /// PEM file with the CAs of client certificates: the common name is the user, each organization
    /// a group; without it, client certificates do not authenticate users.
    #[arg(long, value_name = "FILE", help_heading = CLIENTS)]
    pub client_ca_file: Option<PathBuf>,
    /// PEM file with the CAs of front proxies and peers, whose headers name the user; without it,
    /// such headers are removed.
    #[arg(long, value_name = "FILE", help_heading = CLIENTS)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that the certificate of a front proxy may have, separated by commas; empty
    /// allows any [default: empty].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user name, separated by commas.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(default_value = "X-Remote-User", value_parser = values::header_name)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_username_headers: Vec<HeaderName>,
    /// Headers with groups, separated by commas.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(default_value = "X-Remote-Group", value_parser = values::header_name)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_group_headers: Vec<HeaderName>,
    /// Headers with the UID of the user, separated by commas.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(default_value = "X-Remote-Uid", value_parser = values::header_name)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_uid_headers: Vec<HeaderName>,
    /// Prefixes of headers with extra attributes of the user, separated by commas.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(default_value = "X-Remote-Extra-", value_parser = values::header_name)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_extra_headers_prefix: Vec<HeaderName>,

    /// PEM file with the client certificate for the local server and for peers; the CA of their
    /// --requestheader-client-ca-file must have signed it.
    #[arg(long, value_name = "FILE", help_heading = IDENTITY)]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// PEM file with the private key of that certificate.
    #[arg(long, value_name = "FILE", help_heading = IDENTITY)]
    pub proxy_client_key_file: Option<PathBuf>,

    /// Interval at which the discovery of every member is fetched.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = DECISIONS)]
    #[arg(value_parser = duration::refresh_interval)]
    pub refresh_interval: Duration,
    /// Feature gates; UnknownVersionInteroperabilityProxy=false makes mvp a plain reverse proxy of
    /// the local server [default: UnknownVersionInteroperabilityProxy=true].
    #[arg(long, value_name = "GATES", value_delimiter = ',', help_heading = DECISIONS)]
    #[arg(action = ArgAction::Append, value_parser = values::feature_gate)]
    pub feature_gates: Vec<FeatureGate>,

    /// IP address and port for health, metrics and debugging, over plain HTTP: keep it private. With
    /// --pass-through the default is 127.0.0.1:6481.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6480", help_heading = ADMIN)]
    #[arg(default_value_if("pass_through", "true", "127.0.0.1:6481"))]
    #[arg(value_parser = values::socket_address)]
    pub admin_bind_address: SocketAddr,
    /// Host names by which clients reach the admin endpoint, separated by commas. IP addresses and
    /// localhost are always allowed; other names get 403, against DNS rebinding.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(help_heading = ADMIN, value_parser = values::host_name)]
    pub admin_allowed_hosts: Vec<String>,
    /// Unix socket of the admin endpoint, which mvp forget needs; only the user that runs mvp and
    /// root can open it. Empty for none [default: /run/mvp/admin.sock, if it can be created].
    #[arg(long, value_name = "PATH", value_parser = values::path_or_none, help_heading = ADMIN)]
    pub admin_socket: Option<PathBuf>,
    /// IP address and port of the dashboard for other hosts, with TLS: clients need a certificate of
    /// --client-ca-file and of a group in --dashboard-allowed-groups. On this host it is at /dashboard of
    /// --admin-bind-address, without names of users.
    #[arg(long, value_name = "IP:PORT", value_parser = values::socket_address)]
    #[arg(help_heading = ADMIN)]
    pub dashboard_bind_address: Option<SocketAddr>,
    /// Groups whose members may see the dashboard from other hosts, with the names of users and
    /// addresses, separated by commas.
    #[arg(long, value_name = "GROUPS", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(help_heading = ADMIN, value_parser = values::group)]
    pub dashboard_allowed_groups: Vec<String>,
    /// Count which member answers requests for which API, so that the dashboard shows the traffic.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = ADMIN)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub dashboard_flow: bool,
    /// Number of worker threads, 1 to 64 [default: one for each core].
    #[arg(long, value_name = "NUMBER", value_parser = values::workers, help_heading = ADMIN)]
    pub workers: Option<usize>,
    /// Format of log lines on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = ADMIN)]
    pub log_format: LogFormat,
    /// Log level: off, error, warn, info, debug or trace; append ,TARGET=LEVEL for another level of
    /// one target.
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = ADMIN)]
    #[arg(env = "MVP_LOG", hide_env_values = true)]
    pub log_level: LogFilter,
    /// Log every request [default: only requests that were refused or, beside a local server, sent
    /// to peers].
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = ADMIN)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub log_local_requests: bool,
    /// Keep in memory who called which resource in the last hour (user, user agent, address), for mvp
    /// callers; --record-callers=false keeps nothing.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = ADMIN)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "true", hide_possible_values = true)]
    pub record_callers: bool,

    /// OpenTelemetry collector that gets traces of requests, over OTLP with gRPC, as http://HOST:4317 or
    /// https://HOST:4317 [default: none].
    #[arg(long, value_name = "URL", value_parser = trace_values::collector, help_heading = TRACES)]
    pub tracing_endpoint: Option<Uri>,
    /// PEM file with the CAs that signed the certificate of an https collector.
    #[arg(long, value_name = "FILE", help_heading = TRACES)]
    pub tracing_ca_file: Option<PathBuf>,
    /// Fraction of requests to trace, 0 to 1, if the client has not decided it (traceparent).
    #[arg(long, value_name = "FLOAT", default_value = "0.01", help_heading = TRACES)]
    #[arg(value_parser = trace_values::ratio)]
    pub tracing_sampling_ratio: f64,
    /// Requests to trace in a second because clients ask for it. Peers, and users of system:masters
    /// and system:monitoring, have no limit.
    #[arg(long, value_name = "NUMBER", default_value = "10", help_heading = TRACES)]
    #[arg(value_parser = trace_values::requests_per_second)]
    pub tracing_client_requests_per_second: u32,

    /// YAML file with these flags as keys, without the leading dashes; repeatable flags are lists. A
    /// flag on the command line overrides its key.
    #[arg(long, value_name = "FILE", help_heading = CONFIG)]
    pub config: Option<PathBuf>,
    /// Static pod manifest of kube-apiserver, or auto for kubeadm's, RKE2's, or the running process:
    /// flags that kube-apiserver also has are taken over from there, unless they are set here.
    #[arg(long, value_name = "FILE|auto", value_parser = values::like, help_heading = CONFIG)]
    pub like: Option<LikeSource>,
}

const PAGE: &str = "\
{about}

{usage-heading} {usage}

Flags that kube-apiserver also has keep its names and meanings.

{all-args}{after-help}";

const LISTENER: &str = "Listener";
const LOCAL: &str = "Local server";
const PEERS: &str = "Peers and membership";
const CLIENTS: &str = "Client authentication";
const IDENTITY: &str = "Proxy identity";
const DECISIONS: &str = "Discovery and decisions";
const ADMIN: &str = "Admin and logs";
const TRACES: &str = "Traces";
const CONFIG: &str = "Flags from files";

const EXAMPLES: &str = "\
Examples:
  Beside a kubeadm kube-apiserver that now binds 127.0.0.1, on the node 10.0.0.1:
    mvp serve --bind-address=10.0.0.1 --local-server=https://127.0.0.1:6443 \\
      --tls-cert-file=/etc/kubernetes/pki/apiserver.crt \\
      --tls-private-key-file=/etc/kubernetes/pki/apiserver.key \\
      --client-ca-file=/etc/kubernetes/pki/ca.crt \\
      --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt \\
      --requestheader-allowed-names=front-proxy-client \\
      --proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt \\
      --proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key \\
      --peer-ca-file=/etc/kubernetes/pki/ca.crt

  The same with two peers, the second a kube-apiserver without a gateway:
    mvp serve … --server-id=node-a \\
      --peer=node-b=https://10.0.0.2:6443 \\
      --peer=node-c=https://10.0.0.3:6443,kind=bare

  The same node, kube-apiserver left as it is; certificates, CAs and addresses are its own:
    mvp serve --like=auto --steer

  On every node, without keys: kubelets use https://127.0.0.1:7445:
    mvp serve --pass-through --servers=https://10.0.0.1:6443,https://10.0.0.2:6443

  From a config file, with one setting changed:
    mvp serve --config=/etc/mvp/mvp.yaml --log-level=debug

  /etc/mvp/mvp.yaml:
    bind-address: 10.0.0.1
    server-id: node-a
    local-server: https://127.0.0.1:6443
    tls-cert-file: /etc/kubernetes/pki/apiserver.crt
    tls-private-key-file: /etc/kubernetes/pki/apiserver.key
    client-ca-file: /etc/kubernetes/pki/ca.crt
    requestheader-client-ca-file: /etc/kubernetes/pki/front-proxy-ca.crt
    requestheader-allowed-names: front-proxy-client
    proxy-client-cert-file: /etc/kubernetes/pki/front-proxy-client.crt
    proxy-client-key-file: /etc/kubernetes/pki/front-proxy-client.key
    peer-ca-file: /etc/kubernetes/pki/ca.crt
    peer:
      - node-b=https://10.0.0.2:6443
      - node-c=https://10.0.0.3:6443,kind=bare

Certificates, keys, CAs, the peers file and the egress selector file are reloaded when they change, and at SIGHUP.

Exit codes: 2 for an error in flags or keys, 1 for any other failure, also of files.";
