//! The TLS of the listener, which can be replaced at any time. Entry: [`ServerTls`].
//!
//! The handshake requests a client certificate, verifies that the client holds its key, and accepts
//! any chain. [`ClientTrust`] judges the chain afterwards, so that an untrusted client gets an HTTP
//! response, not a failed handshake.

mod names;
mod policy;

use std::collections::HashMap;
use std::net::IpAddr;
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

pub use self::names::SniCertificate;
pub use self::policy::{CipherSuites, TlsPolicy, TlsVersion, UnknownSuite};

use self::names::ByName;
use crate::trust::Version1;
use crate::{ClientTrust, TlsError};

/// The serving certificates and the CAs of clients, as one value: no connection sees a new certificate
/// with old CAs, or the reverse.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// For connections to addresses that have a certificate of their own.
    at_address: HashMap<IpAddr, Arc<ServerConfig>>,
    trust: Arc<ClientTrust>,
}

impl ServerTls {
    pub(crate) const VERSIONS: &'static [&'static SupportedProtocolVersion] =
        &[&version::TLS13, &version::TLS12];

    /// Certificate chain and key are PEM. A key that does not match is an error.
    pub fn new(
        certificate_pem: &[u8],
        key_pem: &[u8],
        trust: ClientTrust,
    ) -> Result<Self, TlsError> {
        Self::with(certificate_pem, key_pem, trust, &[], &TlsPolicy::default())
    }

    /// The same with more certificates, for some server names, and with a choice of versions and
    /// suites.
    pub fn with(
        certificate_pem: &[u8],
        key_pem: &[u8],
        trust: ClientTrust,
        more: &[SniCertificate<'_>],
        policy: &TlsPolicy,
    ) -> Result<Self, TlsError> {
        let provider = policy.provider()?;
        let by_name = ByName::new(certificate_pem, key_pem, more, &provider)?;
        let config = config(&by_name, policy, provider, &trust)?;
        let at_address = by_name.addresses().map(|(address, by_name)| {
            let mut config = ServerConfig::clone(&config);
            config.cert_resolver = Arc::new(by_name);
            (address, Arc::new(config))
        });
        let at_address = at_address.collect();
        Ok(Self { config, at_address, trust: Arc::new(trust) })
    }

    /// The configuration of the handshake.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// The configuration of the handshake on a connection to this address of ours, which is only
    /// asked for if some address has a certificate of its own.
    pub(crate) fn config_at(&self, local: impl FnOnce() -> Option<IpAddr>) -> &Arc<ServerConfig> {
        let at = |address: IpAddr| self.at_address.get(&address.to_canonical());
        match self.at_address.is_empty() {
            true => &self.config,
            false => local().and_then(at).unwrap_or(&self.config),
        }
    }

    /// The trust in client certificates, for the judgement after the handshake.
    pub fn trust(&self) -> &Arc<ClientTrust> {
        &self.trust
    }
}

/// A [`ServerTls`] that can be replaced at any time; clones share it.
///
/// New connections use the new certificate. Existing connections keep theirs, but their clients are
/// judged again: a CA that was removed is no longer trusted.
#[derive(Clone, Debug)]
pub struct ReloadableTls {
    current: Arc<ArcSwap<ServerTls>>,
}

impl ReloadableTls {
    /// Starts with `tls`.
    pub fn new(tls: ServerTls) -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(tls)) }
    }

    /// Replaces the current value.
    pub fn replace(&self, tls: ServerTls) {
        self.current.store(Arc::new(tls));
    }

    /// The current value.
    pub fn current(&self) -> Arc<ServerTls> {
        self.current.load_full()
    }
}

/// A configuration with TLS 1.2 and 1.3, ALPN `h2` and `http/1.1`, and stateless session tickets. It
/// requests a client certificate but does not require one, and sends the CAs of `trust` as hints.
pub fn server_config(
    certificate_pem: &[u8],
    key_pem: &[u8],
    trust: &ClientTrust,
) -> Result<Arc<ServerConfig>, TlsError> {
    let policy = TlsPolicy::default();
    let provider = policy.provider()?;
    let by_name = ByName::new(certificate_pem, key_pem, &[], &provider)?;
    config(&by_name, &policy, provider, trust)
}

fn config(
    by_name: &ByName,
    policy: &TlsPolicy,
    provider: Arc<CryptoProvider>,
    trust: &ClientTrust,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = AnyCertificate { hints: trust.subjects(), provider: Arc::clone(&provider) };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(policy.versions())
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(by_name.clone()));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session carries the client's certificates, which are judged again: resumption gives
    // no more rights than a full handshake.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Setup)?;
    Ok(Arc::new(config))
}

/// Accepts any chain, but requires proof that the client holds the key of the leaf. rustls reads only
/// leaves of X.509 version 3; of a [`Version1`] it gets another form with the same key.
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
        let version_1 = Version1::read(leaf);
        let leaf = version_1.as_ref().map_or(leaf, Version1::as_version_3);
        verify_tls12_signature(message, leaf, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let version_1 = Version1::read(leaf);
        let leaf = version_1.as_ref().map_or(leaf, Version1::as_version_3);
        verify_tls13_signature(message, leaf, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
