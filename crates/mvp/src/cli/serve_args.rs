//! The flags of `mvp serve`, and so the keys of its config file and the text of its help.
//!
//! [`ServeArgs`] holds what was asked for, typed but unchecked: no file was read yet, and no flag
//! was held against another. That is [`crate::config`]. Nothing is required here, because the
//! config file may give it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use http::{HeaderName, Uri};

use super::url::{self, Peer, ServerUrl};
use super::values::{self, FeatureGate, MembershipSource};
use crate::logging::{LogFilter, LogFormat};

/// The flags of `mvp serve`.
#[derive(Debug, Clone, Args)]
#[command(next_line_help = true, disable_help_flag = true)]
#[command(help_template = PAGE, after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Print this page.
    // Always the short form, which has all there is to say in half the lines.
    #[arg(short, long, action = ArgAction::HelpShort)]
    #[allow(dead_code, reason = "clap prints the page and never sets it")]
    help: Option<bool>,

    /// IP address to serve the API on; 0.0.0.0 and :: stand for all interfaces.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", value_parser = values::ip)]
    #[arg(help_heading = LISTENER)]
    pub bind_address: IpAddr,
    /// Port to serve the API on with TLS; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value = "6443", value_parser = values::port)]
    #[arg(help_heading = LISTENER)]
    pub secure_port: u16,
    /// IP address under which other members of the cluster reach this one [default: the bind
    /// address, or that of the default interface].
    #[arg(long, value_name = "IP", value_parser = values::ip, help_heading = LISTENER)]
    pub advertise_address: Option<IpAddr>,
    /// PEM file with the certificate to serve with, followed by its intermediates (required).
    #[arg(long, value_name = "FILE", help_heading = LISTENER)]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the private key of that certificate (required).
    #[arg(long, value_name = "FILE", help_heading = LISTENER)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Let another process with this flag listen on the same addresses, the admin endpoint's too: a
    /// new mvp takes over from an old one, and no connection is refused.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = LISTENER)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub permit_port_sharing: bool,
    /// How long all is served as before after a signal to end; only /readyz fails from the signal
    /// on, for load balancers to see.
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = LISTENER)]
    #[arg(value_parser = values::shutdown_delay)]
    pub shutdown_delay_duration: Duration,
    /// How long requests, watches among them, may go on after that before they are cut.
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = LISTENER)]
    #[arg(value_parser = values::shutdown_grace)]
    pub shutdown_grace_period: Duration,

    /// Fraction of HTTP/2 requests that end their connection (GOAWAY), so that clients reconnect
    /// and load balancers can spread them anew: 0 (off) to 0.02; 0.001 is a good start. Leave it
    /// off without a load balancer. Connections of peers and front proxies are never ended.
    #[arg(long, value_name = "FLOAT", default_value = "0", help_heading = LISTENER)]
    #[arg(value_parser = values::goaway_chance)]
    pub goaway_chance: f64,
    /// Bytes that the head of a request may have, 8192 to 262144; larger ones are answered with 431.
    #[arg(long, value_name = "BYTES", default_value = "131072", help_heading = LISTENER)]
    #[arg(value_parser = values::request_header_bytes)]
    pub max_request_header_bytes: usize,
    /// Client connections in total; each may need two file descriptors [default: what the limit of
    /// open files allows].
    #[arg(long, value_name = "NUMBER", help_heading = LISTENER)]
    #[arg(value_parser = values::client_connections)]
    pub max_client_connections: Option<usize>,
    /// Client connections from one IP address; 0 for no limit, as behind a load balancer that hides
    /// the addresses of clients.
    #[arg(long, value_name = "NUMBER", default_value = "0", help_heading = LISTENER)]
    #[arg(value_parser = values::client_connections_per_address)]
    pub max_client_connections_per_address: usize,

    /// The API server to stand beside, as https://HOST:PORT (required, unless it stands before all).
    #[arg(long, value_name = "URL", value_parser = url::server_url, help_heading = LOCAL)]
    pub local_server: Option<ServerUrl>,
    /// The API servers to stand before, as https://HOST:PORT, separated by commas: a load balancer
    /// that knows what each of them serves, and is no member itself. With endpoints among the sources
    /// of members one is enough, and in a pod none need be given.
    #[arg(long, value_name = "URLS", value_delimiter = ',', help_heading = LOCAL)]
    #[arg(action = ArgAction::Append, value_parser = url::server_url)]
    pub servers: Vec<ServerUrl>,
    /// PEM file with the CAs that signed the local server's certificate [default: the file of the
    /// peers' CAs].
    #[arg(long, value_name = "FILE", help_heading = LOCAL)]
    pub local_ca_file: Option<PathBuf>,
    /// ID of the local server among the members [default: the ID that a kube-apiserver on this
    /// host gives itself, apiserver-HASH].
    #[arg(long, value_name = "ID", value_parser = values::server_id, help_heading = LOCAL)]
    pub server_id: Option<String>,

    /// PEM file with the CAs that signed the peers' serving certificates; without it, nothing is
    /// merged or sent to peers.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub peer_ca_file: Option<PathBuf>,
    /// IP address for peers to reach this member, where it differs from the advertised one.
    #[arg(long, value_name = "IP", value_parser = values::ip, help_heading = PEERS)]
    #[arg(visible_alias = "peer-advertise-address")]
    pub peer_advertise_ip: Option<IpAddr>,
    /// Port for peers to reach this member [default: the port it serves on].
    #[arg(long, value_name = "PORT", value_parser = values::peer_port, help_heading = PEERS)]
    pub peer_advertise_port: Option<u16>,
    /// Where members come from, separated by commas: static for those that flags and the peers file
    /// name; leases or etcd for those that announce themselves in kube-system or in the cluster's
    /// etcd, as this one then does; endpoints for those of the Service default/kubernetes [default:
    /// static if it names any, and etcd if its servers are given, else leases].
    #[arg(long, value_name = "SOURCES", value_delimiter = ',', help_heading = PEERS)]
    #[arg(action = ArgAction::Append, value_parser = values::membership)]
    pub membership: Vec<MembershipSource>,
    /// A peer and where to reach it, as ID=https://HOST:PORT, with ",kind=bare" at the end if it is
    /// a kube-apiserver with no mvp before it; repeatable.
    #[arg(long, value_name = "PEER", value_parser = url::peer, help_heading = PEERS)]
    #[arg(action = ArgAction::Append)]
    pub peer: Vec<Peer>,
    /// YAML file with more peers: "peers:" and a list of {id, address, kind}; members change when it
    /// does.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub peers_file: Option<PathBuf>,
    /// The members of the cluster's etcd, as https://HOST:PORT, separated by commas.
    #[arg(long, value_name = "URLS", value_delimiter = ',', help_heading = PEERS)]
    #[arg(action = ArgAction::Append, value_parser = values::etcd_server)]
    pub etcd_servers: Vec<Uri>,
    /// PEM file with the CAs that signed etcd's certificates.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub etcd_cafile: Option<PathBuf>,
    /// PEM file with the client certificate that proves this proxy to etcd.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub etcd_certfile: Option<PathBuf>,
    /// PEM file with the private key of that certificate.
    #[arg(long, value_name = "FILE", help_heading = PEERS)]
    pub etcd_keyfile: Option<PathBuf>,
    /// Where the API servers of the cluster keep their keys in etcd.
    #[arg(long, value_name = "PATH", default_value = "/registry", help_heading = PEERS)]
    pub etcd_prefix: String,
    /// How long a member that left is remembered: what only it serves is 503 until then, not 404.
    #[arg(long, value_name = "TIME", default_value = "10m", help_heading = PEERS)]
    #[arg(value_parser = values::forget_after)]
    pub forget_after: Duration,

    /// PEM file with the CAs of client certificates: the common name is the user, each organization
    /// a group; without it, certificates make nobody known.
    #[arg(long, value_name = "FILE", help_heading = CLIENTS)]
    pub client_ca_file: Option<PathBuf>,
    /// PEM file with the CAs of trusted proxies and peers, whose headers say who the user is;
    /// without it, nobody's headers are believed.
    #[arg(long, value_name = "FILE", help_heading = CLIENTS)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that the certificate of a trusted proxy may have, separated by commas; blank
    /// allows any [default: blank].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers to look in for the user name, separated by commas.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(default_value = "X-Remote-User", value_parser = values::header_name)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_username_headers: Vec<HeaderName>,
    /// Headers to look in for groups, separated by commas.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(default_value = "X-Remote-Group", value_parser = values::header_name)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_group_headers: Vec<HeaderName>,
    /// Headers to look in for the user's UID, separated by commas.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(default_value = "X-Remote-Uid", value_parser = values::header_name)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_uid_headers: Vec<HeaderName>,
    /// Prefixes of headers to look in for what else is known of the user, separated by commas.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(default_value = "X-Remote-Extra-", value_parser = values::header_name)]
    #[arg(help_heading = CLIENTS)]
    pub requestheader_extra_headers_prefix: Vec<HeaderName>,

    /// PEM file with the client certificate that proves this proxy to the local server and to
    /// peers; their request-header CA must have signed it.
    #[arg(long, value_name = "FILE", help_heading = IDENTITY)]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// PEM file with the private key of that certificate.
    #[arg(long, value_name = "FILE", help_heading = IDENTITY)]
    pub proxy_client_key_file: Option<PathBuf>,

    /// How often every member is asked what it serves.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = DECISIONS)]
    #[arg(value_parser = values::refresh_interval)]
    pub refresh_interval: Duration,
    /// UnknownVersionInteroperabilityProxy=false makes a plain reverse proxy of the local server
    /// [default: UnknownVersionInteroperabilityProxy=true].
    #[arg(long, value_name = "GATES", value_delimiter = ',', help_heading = DECISIONS)]
    #[arg(action = ArgAction::Append, value_parser = values::feature_gate)]
    pub feature_gates: Vec<FeatureGate>,

    /// IP address and port for health, metrics and the snapshot, over plain HTTP: keep it private.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6480", help_heading = ADMIN)]
    #[arg(value_parser = values::socket_address)]
    pub admin_bind_address: SocketAddr,
    /// Number of threads that serve, 1 to 64 [default: one for each core].
    #[arg(long, value_name = "NUMBER", value_parser = values::workers, help_heading = ADMIN)]
    pub workers: Option<usize>,
    /// How logs are written to standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = ADMIN)]
    pub log_format: LogFormat,
    /// What is logged: off, error, warn, info, debug or trace; with TARGET=LEVEL after a comma,
    /// another level for some.
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = ADMIN)]
    #[arg(env = "MVP_LOG", hide_env_values = true)]
    pub log_level: LogFilter,
    /// Also log requests that the local server answers [default: only those sent to peers, and
    /// refusals].
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = ADMIN)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub log_local_requests: bool,

    /// YAML file with these flags as keys, without their dashes, and lists where a flag is
    /// repeatable; a flag on the command line wins over its key.
    #[arg(long, value_name = "FILE", help_heading = CONFIG)]
    pub config: Option<PathBuf>,
}

const PAGE: &str = "\
{about}

{usage-heading} {usage}

Flags that kube-apiserver has too keep its names and its meanings.

{all-args}{after-help}";

const LISTENER: &str = "Listener";
const LOCAL: &str = "Local server";
const PEERS: &str = "Peers and membership";
const CLIENTS: &str = "Client authentication";
const IDENTITY: &str = "Proxy identity";
const DECISIONS: &str = "Discovery and decisions";
const ADMIN: &str = "Admin and logs";
const CONFIG: &str = "Config file";

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

  The same with two peers, the second a kube-apiserver with no mvp before it:
    mvp serve … --server-id=node-a \\
      --peer=node-b=https://10.0.0.2:6443 \\
      --peer=node-c=https://10.0.0.3:6443,kind=bare

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

All certificates, keys and CAs and the peers file are read again when they change, or at SIGHUP.

Exit codes: 2 for a mistake in flags or keys, 1 for any other failure, of files too.";
