//! The service account of the pod: its token and the CA of the cluster, read again whenever they are
//! needed, because the kubelet replaces them. Entry: [`ServiceAccount`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mvp_net::{ClientTls, unverified_config};
use rustls::ClientConfig;

use crate::files;
use crate::mistake::Problem;

/// Where the kubelet puts the files.
pub(crate) const DEFAULT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const ALPN: [&[u8]; 1] = [b"http/1.1"];

/// The folder of a service account, which may not exist.
#[derive(Debug)]
pub(super) struct ServiceAccount {
    folder: PathBuf,
    /// The last CA file, and what was made of it.
    last: Mutex<Option<(Vec<u8>, ClientTls)>>,
}

impl ServiceAccount {
    pub(super) fn new(folder: &Path) -> ServiceAccount {
        ServiceAccount { folder: folder.to_owned(), last: Mutex::default() }
    }

    /// Whether there is a token.
    pub(super) fn exists(&self) -> bool {
        self.folder.join("token").exists()
    }

    /// The folder, for operators.
    pub(super) fn name(&self) -> String {
        self.folder.display().to_string()
    }

    /// The current token.
    pub(super) fn token(&self) -> Result<String, Problem> {
        let path = self.folder.join("token");
        let token = String::from_utf8(files::read(&path)?).unwrap_or_default();
        match token.trim() {
            "" => Err(format!("{} has no token", path.display()).into()),
            token => Ok(token.to_owned()),
        }
    }

    /// TLS that verifies servers with the CA of the cluster, with its own session cache.
    pub(super) fn verified(&self) -> Result<Arc<ClientConfig>, Problem> {
        let path = self.folder.join("ca.crt");
        let bytes = files::read(&path)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, tls)) = &*last
            && *known == bytes
        {
            return Ok(tls.config(&ALPN));
        }
        let invalid = |error| Problem::from(format!("{}: {error}", path.display()));
        let origin = path.display().to_string();
        let tls = ClientTls::new(&bytes, None).and_then(|tls| tls.explained(&origin));
        let tls = tls.map_err(invalid)?;
        let config = tls.config(&ALPN);
        *last = Some((bytes, tls));
        Ok(config)
    }

    /// TLS for probes, which send nothing secret: without a CA, any certificate will do.
    pub(super) fn for_probes(&self) -> Result<Arc<ClientConfig>, Problem> {
        match self.folder.join("ca.crt").exists() {
            true => self.verified(),
            false => unverified_config(&ALPN).map_err(|error| error.to_string().into()),
        }
    }
}
