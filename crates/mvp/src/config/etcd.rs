//! The cluster's own etcd, as kube-apiserver's flags have it.

use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use mvp_membership::etcd::{Etcd, TlsSource};
use mvp_net::ClientTls;

use super::pem::{CertificateFile, Files, KeyPair};
use crate::cli::Origins;
use crate::files;
use crate::mistake::Mistake;

/// Where etcd is, and how it knows us.
#[derive(Debug)]
pub(crate) struct EtcdConfig {
    servers: Vec<Uri>,
    ca: Option<CertificateFile>,
    client: Option<KeyPair>,
    prefix: String,
}

impl EtcdConfig {
    /// Reads the files; nothing where no server is given.
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
            return Ok(None);
        }
        let secure = servers.iter().any(|server| server.scheme_str() == Some("https"));
        if secure && ca.is_none() {
            let sentence = "https needs --etcd-cafile, the CAs to verify etcd with; give it";
            return Err(Mistake::usage(origins.name("etcd-servers"), sentence));
        }
        Ok(Some(EtcdConfig { servers, ca, client, prefix }))
    }

    /// The way to it. Files are read again for each connection.
    pub(crate) fn etcd(&self) -> Etcd {
        let ca = self.ca.as_ref().map(|ca| ca.path.clone());
        let client =
            self.client.as_ref().map(|pair| (pair.chain.path.clone(), pair.key.path.clone()));
        let tls: TlsSource = Arc::new(move || {
            let Some(ca) = &ca else { return Ok(None) };
            let ca = files::read(ca)?;
            let client = match &client {
                Some((chain, key)) => Some((files::read(chain)?, files::read(key)?)),
                None => None,
            };
            let client = client.as_ref().map(|(chain, key)| (&**chain, &**key));
            let tls = ClientTls::new(&ca, client).map_err(|error| error.to_string())?;
            Ok(Some(tls.config(&[b"h2"])))
        });
        Etcd::new(self.servers.clone(), &self.prefix, tls)
    }
}
