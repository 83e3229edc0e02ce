//! The TLS of the listener, and how it is replaced while connections live. Entry: [`ServerTls`].
//!
//! The handshake asks for a client certificate, proves that the client holds its key, and accepts
//! whatever chain it shows: [`ClientTrust`] judges it afterwards, so that an untrusted client gets
//! an HTTP answer and not a broken connection.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    SupportedProtocolVersion, version,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::pem::{certificates, pair_error, private_key};
use crate::provider::provider;
use crate::{ClientTrust, TlsError};

/// The server's certificate and the clients' CAs: one value, so that no connection sees the new
/// one of the one with the old one of the other.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    trust: Arc<ClientTrust>,
}

impl ServerTls {
    pub(crate) const VERSIONS: &'static [&'static SupportedProtocolVersion] =
        &[&version::TLS13, &version::TLS12];

    /// Certificate chain and key as PEM; a key that does not fit is refused.
    pub fn new(
        certificate_pem: &[u8],
        key_pem: &[u8],
        trust: ClientTrust,
    ) -> Result<Self, TlsError> {
        let config = server_config(certificate_pem, key_pem, &trust)?;
        Ok(Self { config, trust: Arc::new(trust) })
    }

    /// What the handshake uses.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// What judges the client's certificate after the handshake.
    pub fn trust(&self) -> &Arc<ClientTrust> {
        &self.trust
    }
}

/// A [`ServerTls`] that can be replaced at any time; clones share it.
///
/// New connections use the new certificate. Connections that live on keep theirs, but what their
/// client's certificate proves is judged anew: a CA that was taken away vouches for nobody.
#[derive(Clone, Debug)]
pub struct ReloadableTls {
    current: Arc<ArcSwap<ServerTls>>,
}

impl ReloadableTls {
    /// Starts with `tls`.
    pub fn new(tls: ServerTls) -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(tls)) }
    }

    /// From now on `tls`.
    pub fn replace(&self, tls: ServerTls) {
        self.current.store(Arc::new(tls));
    }

    /// The one in force.
    pub fn current(&self) -> Arc<ServerTls> {
        self.current.load_full()
    }
}

/// TLS 1.2 and 1.3, ALPN `h2` and `http/1.1`, stateless session tickets; asks for a client
/// certificate, never demands one, and names the CAs of `trust` as hints.
pub fn server_config(
    certificate_pem: &[u8],
    key_pem: &[u8],
    trust: &ClientTrust,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = provider();
    let verifier = AnyCertificate { hints: trust.subjects(), provider: Arc::clone(&provider) };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(ServerTls::VERSIONS)
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(certificates(certificate_pem)?, private_key(key_pem)?)
        .map_err(pair_error)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session carries the client's certificates, and they are judged again: resumption
    // gives nobody more than a full handshake.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Setup)?;
    Ok(Arc::new(config))
}

/// Accepts any chain, and only with proof that the client holds the leaf's key.
#[derive(Debug)]
struct AnyCertificate {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
