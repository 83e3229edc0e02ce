//! The planted faults: changed flags, and the check that must find each. Entry item: [`all`].

use std::net::SocketAddr;
use std::path::Path;

use testkit::certificates::{Ca, FRONT_PROXY_NAME, Leaf, SERVER_NAME};
use testkit::kubernetes::file_flag;
use testkit::pki::PairFiles;

use super::double::{self, Manner};
use crate::cluster::Cluster;

/// A planted fault.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// The flags to change. One that is given already is replaced, unless it is `--peer` with
    /// another ID.
    flags: Vec<String>,
    pub(super) expected: Expected,
}

/// What must be found.
pub(super) struct Expected {
    pub(super) check: &'static str,
    pub(super) result: &'static str,
    /// A word of the detail or the fix.
    pub(super) word: &'static str,
    /// Other checks that must fail, too.
    pub(super) consequences: &'static [&'static str],
}

impl Expected {
    pub(super) fn fail(
        check: &'static str,
        word: &'static str,
        consequences: &'static [&'static str],
    ) -> Expected {
        Expected { check, result: "fail", word, consequences }
    }

    pub(super) fn warn(
        check: &'static str,
        word: &'static str,
        consequences: &'static [&'static str],
    ) -> Expected {
        Expected { result: "warn", ..Expected::fail(check, word, consequences) }
    }
}

impl Fault {
    fn new<const N: usize>(name: &'static str, flags: [String; N], expected: Expected) -> Fault {
        Fault { name, flags: flags.into(), expected }
    }

    /// Changes the flags of a sound configuration.
    pub(super) fn plant(&self, flags: &mut Vec<String>) {
        for flag in &self.flags {
            // `--peer=ID=` or `--flag=`.
            let parts = if flag.starts_with("--peer=") { 2 } else { 1 };
            let key: String = flag.split_inclusive('=').take(parts).collect();
            flags.retain(|given| !given.starts_with(&key));
            flags.push(flag.clone());
        }
    }
}

/// Nobody trusts the proxy client certificate.
const UNTRUSTED: &[&str] = &[
    "proxy client certificate issuer",
    "accepts our identity",
    "server-b trusts us",
    "server-c trusts us",
];

/// All faults that are planted in flags and files.
pub(super) async fn all(cluster: &Cluster) -> anyhow::Result<Vec<Fault>> {
    let mut all = certificates(cluster)?;
    all.extend(authorities(cluster)?);
    all.extend(servers(cluster)?);
    all.extend(doubles(cluster).await?);
    Ok(all)
}

/// Faults of single certificates.
fn certificates(cluster: &Cluster) -> anyhow::Result<Vec<Fault>> {
    let pki = &cluster.pki;
    let ip = cluster.server("a")?.through().ip().to_string();
    let server = || Leaf::named("kube-apiserver").names(&[SERVER_NAME, &ip]);
    let expired = server().for_servers().valid((2020, 1, 1), (2021, 1, 1));
    let expired = pki.of_cluster("doctor-expired", expired)?;
    let nameless = Leaf::named("kube-apiserver").names(&[&ip]).for_servers();
    let nameless = pki.of_cluster("doctor-nameless", nameless)?;
    let client = pki.of_cluster("doctor-client", server().for_clients())?;
    let other = pki.of_cluster("doctor-other", server().for_servers())?;
    let proxy = || Leaf::named(FRONT_PROXY_NAME).for_clients();
    let stranger = pki.untrusted_user(FRONT_PROXY_NAME, &[])?;
    let somebody = pki.front_proxy_client("doctor-somebody")?;
    let old =
        pki.of_front_proxies("doctor-old-proxy", proxy().valid((2020, 1, 1), (2021, 1, 1)))?;
    let serving = |pair: &PairFiles| {
        [
            file_flag("tls-cert-file", &pair.certificate),
            file_flag("tls-private-key-file", &pair.key),
        ]
    };
    let proxied = |pair: &PairFiles| {
        [
            file_flag("proxy-client-cert-file", &pair.certificate),
            file_flag("proxy-client-key-file", &pair.key),
        ]
    };
    Ok(vec![
        Fault::new(
            "an expired serving certificate",
            serving(&expired),
            Expected::fail("serving certificate dates", "expired", &[]),
        ),
        Fault::new(
            "a serving certificate without kubernetes.default.svc",
            serving(&nameless),
            Expected::fail("serving certificate names", SERVER_NAME, &[]),
        ),
        Fault::new(
            "a serving certificate for clients only",
            serving(&client),
            Expected::fail("serving certificate usage", "serverAuth", &[]),
        ),
        Fault::new(
            "the key of another certificate",
            [file_flag("tls-private-key-file", &other.key)],
            Expected::fail("serving certificate key", "is not the key of", &["flags"]),
        ),
        Fault::new(
            "a proxy client certificate of an unknown CA",
            proxied(&stranger),
            Expected::fail("proxy client certificate issuer", "CN=untrusted", UNTRUSTED),
        ),
        Fault::new(
            "a proxy client certificate with a name that is not allowed",
            proxied(&somebody),
            Expected::fail("proxy client certificate allowed name", "doctor-somebody", UNTRUSTED),
        ),
        Fault::new(
            "an expired proxy client certificate",
            proxied(&old),
            Expected::fail("proxy client certificate dates", "expired", UNTRUSTED),
        ),
    ])
}

/// Faults of CAs, and of the headers that go with them.
fn authorities(cluster: &Cluster) -> anyhow::Result<Vec<Fault>> {
    let files = cluster.pki.files();
    let other = files.folder().join("doctor-other-ca.crt");
    std::fs::write(&other, Ca::new("another-ca").pem())?;
    let local = |file: &Path| file_flag("local-ca-file", file);
    Ok(vec![
        Fault::new(
            "a proxy client certificate that is a user",
            [file_flag("client-ca-file", &files.front_proxy_ca())],
            Expected::fail("proxy client certificate is no user", FRONT_PROXY_NAME, &[]),
        ),
        Fault::new(
            "a certificate that is no CA",
            [file_flag("client-ca-file", &files.server().certificate)],
            Expected::fail("client CA is a CA", "not the certificate of a CA", &[]),
        ),
        Fault::new(
            "the wrong CA of the local server",
            [local(&other)],
            Expected::fail("certificate", "CN=another-ca", &[]),
        ),
        Fault::new(
            "the wrong CA of peers",
            [file_flag("peer-ca-file", &other), local(&files.ca())],
            Expected::fail(
                "server-b certificate",
                "CN=another-ca",
                &["server-c certificate", "serving certificate issuer"],
            ),
        ),
        Fault::new(
            "a header that no server reads",
            ["--requestheader-username-headers=X-Other-User".to_owned()],
            Expected::fail("accepts our identity", "X-Remote-User", UNTRUSTED),
        ),
    ])
}

/// Faults of addresses, IDs and this host.
fn servers(cluster: &Cluster) -> anyhow::Result<Vec<Fault>> {
    let (a, b, c) = (cluster.server("a")?, cluster.server("b")?, cluster.server("c")?);
    let (at_b, nowhere) = (b.through(), SocketAddr::new(b.through().ip(), 1));
    let peer = |id: &str, address: SocketAddr| format!("--peer={id}=https://{address}");
    Ok(vec![
        Fault::new(
            "a peer that is down",
            [peer("server-b", nowhere)],
            Expected::fail("server-b reachable", "refused", &[]),
        ),
        Fault::new(
            "a peer with another ID",
            [peer("server-b", c.through()), peer("server-c", at_b)],
            Expected::fail("server-b ID", "server-c", &["server-c ID"]),
        ),
        Fault::new(
            "a peer without a gateway",
            [peer("server-b", b.direct())],
            Expected::fail("server-b kind", "kind=bare", &[]),
        ),
        Fault::new(
            "two members with one ID",
            [peer("twin", at_b)],
            Expected::fail("IDs are distinct", "server-b", &["twin ID"]),
        ),
        Fault::new(
            "a peer that is this gateway",
            [peer("loop", a.through())],
            Expected::fail("loop is not ourselves", "server-a", &["loop ID"]),
        ),
        Fault::new(
            "a local server that is not there",
            [format!("--local-server=https://{nowhere}")],
            Expected::fail("reachable", "refused", &[]),
        ),
        Fault::new(
            "a local server that is a gateway",
            [format!("--local-server=https://{}", a.through())],
            Expected::fail("is no gateway", "server-a", &[]),
        ),
        Fault::new(
            "too few descriptors",
            ["--max-client-connections=10000000".to_owned()],
            Expected::fail("descriptors", "ulimit -n", &[]),
        ),
        Fault::new(
            "a port in use",
            [format!("--bind-address={}", at_b.ip()), "--secure-port=6444".to_owned()],
            Expected::fail("API port", "kube-apiserver", &[]),
        ),
    ])
}

/// Faults that a real server does not have.
async fn doubles(cluster: &Cluster) -> anyhow::Result<Vec<Fault>> {
    let at = cluster.extension_address().ip();
    let mut faults = Vec::new();
    for (name, manner, expected) in [
        (
            "a local server with another clock",
            Manner { late: 3600, ..Manner::default() },
            Expected::fail("clock", "behind", &[]),
        ),
        (
            "a local server without HTTP/2",
            Manner { http2: false, ..Manner::default() },
            Expected::fail("HTTP/2", "ALPN", &[]),
        ),
        (
            "a local server that is not ready",
            Manner { ready: false, ..Manner::default() },
            Expected::fail("ready", "etcd", &[]),
        ),
    ] {
        let address = double::start(at, cluster.pki.files(), manner).await?;
        faults.push(Fault::new(name, [format!("--local-server=https://{address}")], expected));
    }
    Ok(faults)
}
