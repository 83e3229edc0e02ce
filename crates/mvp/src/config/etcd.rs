//! The cluster's own etcd, as kube-apiserver's flags have it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use http::Uri;
use mvp_membership::etcd::{Etcd, Tls};
use mvp_net::ClientTls;
use rustls::ClientConfig;

use super::pem::{CertificateFile, Files, KeyPair};
use crate::cli::Origins;
use crate::mistake::Mistake;

/// Where etcd is, and how it knows us.
#[derive(Debug, Clone)]
pub(crate) struct EtcdConfig {
    servers: Vec<Uri>,
    /// The CAs to verify it with.
    pub(crate) ca: Option<CertificateFile>,
    /// What proves us to it.
    pub(crate) client: Option<KeyPair>,
    prefix: String,
}

impl EtcdConfig {
    /// Reads the files; nothing where none and no server is given.
    pub(super) fn check(
        files: &mut Files<'_>,
        servers: Vec<Uri>,
        ca: Option<PathBuf>,
        client: (Option<PathBuf>, Option<PathBuf>),
        prefix: String,
        origins: &Origins,
    ) -> Result<Option<EtcdConfig>, Mistake> {
        let ca = files.authorities("etcd-cafile", ca)?;
        let client = files.pair(("etcd-certfile", client.0), ("etcd-keyfile", client.1))?;
        if servers.is_empty() {
            let given = [("etcd-cafile", ca.is_some()), ("etcd-certfile", client.is_some())];
            let Some((key, _)) = given.into_iter().find(|(_, given)| *given) else {
                return Ok(None);
            };
            let sentence = "given without --etcd-servers; say where etcd is, or leave it out";
            return Err(Mistake::usage(origins.name(key), sentence));
        }
        let secure = servers.iter().any(|server| server.scheme_str() == Some("https"));
        if secure && ca.is_none() {
            let sentence = "https needs --etcd-cafile, the CAs to verify etcd with; give it";
            return Err(Mistake::usage(origins.name("etcd-servers"), sentence));
        }
        Ok(Some(EtcdConfig { servers, ca, client, prefix }))
    }

    /// The way to it, with whatever is in force.
    pub(crate) fn etcd(&self, tls: Tls) -> Etcd {
        Etcd::new(self.servers.clone(), &self.prefix, tls)
    }

    /// What connections are made with; nothing for plain ones.
    pub(crate) fn tls(&self) -> anyhow::Result<Option<Arc<ClientConfig>>> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let client = self.client.as_ref().map(|pair| (&*pair.chain.pem, &*pair.key.pem));
        let tls = ClientTls::new(&ca.pem, client).context("--etcd-cafile and --etcd-certfile")?;
        Ok(Some(tls.config(&[b"h2"])))
    }
}
