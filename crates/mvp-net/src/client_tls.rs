//! The TLS of the connections that the gateway opens. Entry: [`ClientTls`].

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};

use crate::explain::{Explaining, verifier};
use crate::pem::{certificates, pair_error, private_key, roots};
use crate::provider::provider;
use crate::{ServerTls, TlsError};

/// The CAs and the client certificate for connections to servers.
///
/// The caller chooses the server name to verify for each connection.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: ClientConfig,
    roots: Arc<RootCertStore>,
}

impl ClientTls {
    /// `roots_pem` is the CA bundle that must have signed server certificates. `identity` is the
    /// client certificate chain and its key, both PEM; without it, no certificate is presented.
    pub fn new(roots_pem: &[u8], identity: Option<(&[u8], &[u8])>) -> Result<Self, TlsError> {
        let roots = Arc::new(roots(roots_pem)?);
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(ServerTls::VERSIONS)
            .map_err(TlsError::Setup)?
            .with_root_certificates(Arc::clone(&roots));
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate_pem, key_pem)) => builder
                .with_client_auth_cert(certificates(certificate_pem)?, private_key(key_pem)?)
                .map_err(pair_error)?,
        };
        Ok(Self { config, roots })
    }

    /// The same, with errors that name the origin of the CA bundle, such as a flag and its file, and
    /// who issued the certificate of the server: see [`UntrustedServer`](crate::UntrustedServer).
    pub fn explained(mut self, origin: &str) -> Result<Self, TlsError> {
        let inner = verifier(Arc::clone(&self.roots), provider())?;
        let explaining = Explaining::new(inner, &self.roots, origin);
        self.config.dangerous().set_certificate_verifier(Arc::new(explaining));
        Ok(self)
    }

    /// The configuration that offers the protocols `alpn`, preferred first.
    ///
    /// Each call creates its own session cache: sessions are kept by server name, which the members
    /// of a cluster share.
    pub fn config(&self, alpn: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.resumption = Resumption::in_memory_sessions(8);
        Arc::new(config)
    }
}
