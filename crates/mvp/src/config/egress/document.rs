//! The contents of an egress selector file, checked as kube-apiserver checks them. Entry:
//! [`Document::parse`].
//!
//! Older kube-apiservers ignore the case of keys, so this does, too. Unknown keys are errors, as in newer
//! ones.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use crate::cli::{ServerUrl, http_url};
use crate::mistake::{Problem, without_texts};

const GROUPS: [&str; 2] = ["apiserver.k8s.io/", "apiserver.config.k8s.io/"];
const VERSIONS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(rename = "apiversion")]
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(rename = "egressselections")]
    egress_selections: Option<Vec<Selection>>,
}

/// The way to one kind of destination.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selection {
    name: String,
    connection: Connection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Connection {
    #[serde(rename = "proxyprotocol")]
    protocol: Option<String>,
    transport: Option<TransportFields>,
}

/// How the proxy opens connections.
#[derive(Clone, Copy)]
enum Protocol {
    Direct,
    HttpConnect,
    Grpc,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransportFields {
    tcp: Option<Tcp>,
    uds: Option<Uds>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tcp {
    #[serde(default)]
    url: String,
    #[serde(rename = "tlsconfig")]
    tls: Option<Tls>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Tls {
    #[serde(rename = "cabundle")]
    ca: PathBuf,
    #[serde(rename = "clientcert")]
    cert: PathBuf,
    #[serde(rename = "clientkey")]
    key: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Uds {
    #[serde(rename = "udsname", default)]
    name: PathBuf,
}

/// How a proxy is reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Http(ServerUrl),
    Https { url: ServerUrl, ca: PathBuf, cert: PathBuf, key: PathBuf },
    Unix(PathBuf),
}

impl Document {
    /// The selections of a file. Their names differ, and each is one that kube-apiserver knows.
    pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Selection>, Problem> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| "is not text; give a YAML file in UTF-8")?;
        let value: Value = serde_saphyr::from_str(text).map_err(|error| {
            let reason = error.without_snippet().to_string();
            format!("is not YAML: {}", reason.lines().next().unwrap_or_default())
        })?;
        let document: Document = serde_json::from_value(lower_case(value))
            .map_err(|error| without_texts(&error.to_string()))
            .map_err(|error| format!("is no EgressSelectorConfiguration: {error}"))?;
        if document.kind.as_deref() != Some("EgressSelectorConfiguration") {
            let kind = document.kind.unwrap_or_default();
            return Err(format!("has the kind {kind:?}; use EgressSelectorConfiguration").into());
        }
        if let Some(version) = document.api_version.filter(|version| !is_known(version)) {
            return Err(
                format!("has the apiVersion {version:?}; use apiserver.k8s.io/v1beta1").into()
            );
        }
        let selections = document.egress_selections.unwrap_or_default();
        let mut seen = BTreeSet::new();
        for Selection { name, connection } in &selections {
            let name = name.to_ascii_lowercase();
            if !matches!(&*name, "controlplane" | "cluster" | "etcd") {
                return Err(format!("selects {name:?}; use controlplane, cluster or etcd").into());
            }
            connection.known_protocol().map_err(|problem| format!("{name}: {problem}"))?;
            if !seen.insert(name.clone()) {
                return Err(format!("selects {name} twice; remove one of them").into());
            }
        }
        Ok(selections)
    }
}

fn is_known(version: &str) -> bool {
    let known = |group| version.strip_prefix(group).is_some_and(|v| VERSIONS.contains(&v));
    GROUPS.into_iter().any(known)
}

/// The same with keys in lower case.
fn lower_case(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key.to_ascii_lowercase(), lower_case(value)))
            .collect(),
        Value::Array(values) => values.into_iter().map(lower_case).collect(),
        other => other,
    }
}

impl Connection {
    fn known_protocol(&self) -> Result<Protocol, Problem> {
        match self.protocol.as_deref() {
            Some("Direct") => Ok(Protocol::Direct),
            Some("HTTPConnect") => Ok(Protocol::HttpConnect),
            Some("GRPC") => Ok(Protocol::Grpc),
            other => {
                let other = other.unwrap_or_default();
                Err(format!("proxyProtocol {other:?} is unknown; use Direct or HTTPConnect").into())
            }
        }
    }
}

impl Selection {
    pub(super) fn is_controlplane(&self) -> bool {
        self.name.eq_ignore_ascii_case("controlplane")
    }

    /// How the proxy is reached; `None` for direct connections.
    pub(super) fn transport(self) -> Result<Option<Transport>, Problem> {
        let protocol = self.connection.known_protocol()?;
        match (protocol, self.connection.transport) {
            (Protocol::Direct, None) => Ok(None),
            (Protocol::Direct, Some(_)) => {
                Err("proxyProtocol Direct has no transport; remove it, or use HTTPConnect".into())
            }
            (Protocol::Grpc, _) => {
                Err("proxyProtocol GRPC is not supported: it is the protocol between \
                                konnectivity's own server and agents, one for each node; use \
                                HTTPConnect, which konnectivity's server offers, too, or Direct"
                    .into())
            }
            (Protocol::HttpConnect, None | Some(TransportFields { tcp: None, uds: None })) => {
                Err("HTTPConnect needs transport.tcp or transport.uds; give one of them".into())
            }
            (Protocol::HttpConnect, Some(TransportFields { tcp: Some(_), uds: Some(_) })) => {
                Err("transport.tcp and transport.uds cannot be used together; give one of them"
                    .into())
            }
            (Protocol::HttpConnect, Some(TransportFields { uds: Some(Uds { name }), .. })) => {
                if name.as_os_str().is_empty() {
                    return Err("transport.uds has no udsName; give the path of the socket".into());
                }
                Ok(Some(Transport::Unix(name)))
            }
            (Protocol::HttpConnect, Some(TransportFields { tcp: Some(tcp), .. })) => {
                tcp.transport().map(Some)
            }
        }
    }
}

impl Tcp {
    fn transport(self) -> Result<Transport, Problem> {
        let (is_https, url) =
            http_url(&self.url).map_err(|problem| format!("transport.tcp.url: {problem}"))?;
        match (is_https, self.tls) {
            (false, None) => Ok(Transport::Http(url)),
            (false, Some(_)) => {
                Err("transport.tcp.tlsConfig needs an https:// URL; change one of them".into())
            }
            (true, None) => Err("an https:// URL needs transport.tcp.tlsConfig; give it".into()),
            (true, Some(Tls { ca, cert, key })) => {
                let fields = [("caBundle", &ca), ("clientCert", &cert), ("clientKey", &key)];
                let missing = fields.into_iter().find(|(_, path)| path.as_os_str().is_empty());
                if let Some((field, _)) = missing {
                    let what = format!("transport.tcp.tlsConfig has no {field}; give a PEM file");
                    return Err(what.into());
                }
                Ok(Transport::Https { url, ca, cert, key })
            }
        }
    }
}
