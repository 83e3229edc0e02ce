//! The configuration of the cluster's etcd, with kube-apiserver's flags. Entry: [`EtcdConfig`].

use std::sync::Arc;

use anyhow::Context;
use http::Uri;
use mvp_membership::etcd::{Etcd, Tls};
use mvp_net::ClientTls;
use rustls::ClientConfig;

use super::pem::{CertificateFile, Files, KeyPair};
use crate::cli::{Origins, ServeArgs};
use crate::mistake::Mistake;

/// The addresses of etcd, and the TLS files for it.
#[derive(Debug, Clone)]
pub(crate) struct EtcdConfig {
    servers: Vec<Uri>,
    /// The CAs to verify it with.
    pub(crate) ca: Option<CertificateFile>,
    /// The client certificate for it.
    pub(crate) client: Option<KeyPair>,
    prefix: String,
}

impl EtcdConfig {
    /// Reads the files. None if no flag of etcd is given.
    pub(super) fn check(
        files: &mut Files<'_>,
        args: &ServeArgs,
        origins: &Origins,
    ) -> Result<Option<EtcdConfig>, Mistake> {
        let ca = files.authorities("etcd-cafile", args.etcd_cafile.clone())?;
        let client = files.pair(
            ("etcd-certfile", args.etcd_certfile.clone()),
            ("etcd-keyfile", args.etcd_keyfile.clone()),
        )?;
        let servers = args.etcd_servers.clone();
        if servers.is_empty() {
            let given = [("etcd-cafile", ca.is_some()), ("etcd-certfile", client.is_some())];
            let Some((key, _)) = given.into_iter().find(|(_, given)| *given) else {
                return Ok(None);
            };
            let sentence =
                "given without --etcd-servers; give the addresses of etcd, or remove this flag";
            return Err(Mistake::usage(origins.name(key), sentence));
        }
        let secure = servers.iter().any(|server| server.scheme_str() == Some("https"));
        if secure && ca.is_none() {
            let sentence = "https needs --etcd-cafile; give the CAs to verify etcd with";
            return Err(Mistake::usage(origins.name("etcd-servers"), sentence));
        }
        Ok(Some(EtcdConfig { servers, ca, client, prefix: args.etcd_prefix.clone() }))
    }

    /// A client of etcd with the given TLS.
    pub(crate) fn etcd(&self, tls: Tls) -> Etcd {
        Etcd::new(self.servers.clone(), &self.prefix, tls)
    }

    /// The TLS of connections; none for plain HTTP.
    pub(crate) fn tls(&self) -> anyhow::Result<Option<Arc<ClientConfig>>> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let client = self.client.as_ref().map(|pair| (&*pair.chain.pem, &*pair.key.pem));
        let tls = ClientTls::new(&ca.pem, client).context("--etcd-cafile and --etcd-certfile")?;
        Ok(Some(tls.config(&[b"h2"])))
    }
}
