//! The egress selector file, in kube-apiserver's format: the way to other members. Entry:
//! [`EgressFile::check`].
//!
//! ```yaml
//! apiVersion: apiserver.k8s.io/v1beta1
//! kind: EgressSelectorConfiguration
//! egressSelections:
//! - name: controlplane
//!   connection:
//!     proxyProtocol: HTTPConnect
//!     transport:
//!       uds: {udsName: /run/proxy.sock}
//! ```
//!
//! Only `controlplane` matters here: `mvp` connects to nobody else in the cluster or to etcd by it.

mod document;
mod proxy_url;

use std::path::{Path, PathBuf};

use anyhow::Context;
use mvp_net::ClientTls;
use mvp_proxy::{ConnectProxy, Way, Ways};
use rustls_pki_types::ServerName;

use super::ServeConfig;
use super::pem::{CertificateFile, Files, KeyPair};
use crate::cli::ServerUrl;
use crate::mistake::{Mistake, Problem};
use document::{Document, Selection, Transport};

pub(crate) use proxy_url::ProxyUrl;

/// The flag that names it.
pub(crate) const KEY: &str = "egress-selector-config-file";

/// An egress selector file, and the files that it names.
#[derive(Debug, Clone)]
pub(crate) struct EgressFile {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// The proxy on the way to other members; `None` for direct connections.
    pub proxy: Option<Proxy>,
}

/// A proxy on the way to other members.
#[derive(Debug, Clone)]
pub(crate) enum Proxy {
    /// Over plain TCP.
    Http(ServerUrl),
    /// Over TLS.
    Https { url: ServerUrl, ca: CertificateFile, client: Box<KeyPair> },
    /// At a Unix socket.
    Unix(PathBuf),
}

impl EgressFile {
    /// Checks the contents of the file as kube-apiserver does, and reads the files that its
    /// `controlplane` selection names.
    pub(crate) fn check(
        files: &mut Files<'_>,
        path: PathBuf,
        bytes: Result<Vec<u8>, Problem>,
    ) -> Result<EgressFile, Mistake> {
        let bytes = bytes.map_err(|problem| files.bad(KEY, problem.to_string()))?;
        let selections = Document::parse(&bytes)
            .map_err(|problem| files.bad(KEY, format!("{} {problem}", path.display())))?;
        let controlplane = selections.into_iter().find(Selection::is_controlplane);
        let transport = match controlplane.map(Selection::transport).transpose() {
            Ok(transport) => transport.flatten(),
            Err(problem) => {
                let sentence = format!("{}: controlplane: {problem}", path.display());
                return Err(files.bad(KEY, sentence));
            }
        };
        let proxy = match transport {
            None => None,
            Some(Transport::Unix(path)) => Some(Proxy::Unix(path)),
            Some(Transport::Http(url)) => Some(Proxy::Http(url)),
            Some(Transport::Https { url, ca, cert, key }) => {
                let ca = files.authorities(KEY, Some(ca))?;
                let client = files.pair((KEY, Some(cert)), (KEY, Some(key)))?;
                let both = ca.zip(client);
                both.map(|(ca, client)| Proxy::Https { url, ca, client: Box::new(client) })
            }
        };
        Ok(EgressFile { path, bytes, proxy })
    }

    /// The file, and those that it names, with their contents.
    pub(crate) fn contents(&self) -> Vec<(&Path, &[u8])> {
        let mut contents = vec![(&*self.path, &*self.bytes)];
        if let Some(Proxy::Https { ca, client, .. }) = &self.proxy {
            contents.push((&ca.path, &ca.pem));
            contents.push((&client.chain.path, &client.chain.pem));
            contents.push((&client.key.path, &client.key.pem));
        }
        contents
    }
}

impl Proxy {
    fn connect(&self) -> anyhow::Result<ConnectProxy> {
        Ok(match self {
            Proxy::Http(url) => ConnectProxy::tcp(&url.authority()),
            Proxy::Unix(path) => ConnectProxy::unix(path),
            Proxy::Https { url, ca, client } => {
                let client = (&*client.chain.pem, &*client.key.pem);
                let origin = format!("--{KEY} {}", ca.path.display());
                let tls = ClientTls::new(&ca.pem, Some(client))
                    .and_then(|tls| tls.explained(&origin))
                    .with_context(|| format!("--{KEY}"))?;
                let name = ServerName::try_from(url.host.clone())
                    .with_context(|| format!("--{KEY}: {}", url.host))?;
                ConnectProxy::tls(&url.authority(), name, tls.config(&[]))
            }
        })
    }
}

/// The ways to other members: by the egress selector file, and by the peers file for single ones.
pub(crate) fn ways(config: &ServeConfig) -> anyhow::Result<Ways> {
    let proxy = config.peers.egress.as_ref().and_then(|file| file.proxy.as_ref());
    let others = proxy.map_or(Ok(Way::Direct), |proxy| proxy.connect().map(Way::Proxy))?;
    let single = config.peers.file.iter().flat_map(|file| &file.proxies);
    let by_address = single.map(|(address, url)| (address.clone(), url.way())).collect();
    Ok(Ways { others, by_address })
}

/// Whether a proxy is on the way to any member.
pub(crate) fn has_proxies(config: &ServeConfig) -> bool {
    let selected = config.peers.egress.as_ref().is_some_and(|file| file.proxy.is_some());
    let mut single = config.peers.file.iter().flat_map(|file| file.proxies.values());
    selected || single.any(|proxy| *proxy != ProxyUrl::Direct)
}

#[cfg(test)]
mod tests;
