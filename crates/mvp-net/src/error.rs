//! Errors of certificates, keys and CA bundles. Entry: [`TlsError`].

/// Why TLS cannot be set up.
///
/// It names no files and no flags: the caller knows where the bytes came from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The PEM has no certificate where one is needed.
    #[error("no certificate found: expected at least one PEM block CERTIFICATE")]
    NoCertificate,
    /// The PEM has no private key where one is needed.
    #[error(
        "no private key found: expected a PEM block PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY"
    )]
    NoPrivateKey,
    /// A PEM block is invalid.
    #[error("cannot read the PEM: {0}")]
    BadPem(rustls_pki_types::pem::Error),
    /// A certificate of the chain is not X.509, or of an unsupported kind.
    #[error("cannot use the certificate: {0}")]
    BadCertificate(rustls::Error),
    /// The private key is damaged, or of an unsupported kind.
    #[error("cannot use the private key: {0}")]
    BadPrivateKey(rustls::Error),
    /// Certificate and key are valid, but do not belong together.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
    /// The CA bundle holds no certificate.
    #[error("the CA bundle holds no certificate")]
    EmptyCaBundle,
    /// A certificate of the CA bundle cannot be a trust anchor.
    #[error("cannot use certificate {position} of the CA bundle: {source}")]
    BadCa {
        /// The position of the certificate in the bundle, from 1.
        position: usize,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// Every holder of a client certificate could act as a front proxy.
    #[error(
        "the request-header CA shares a certificate with the client CA and no allowed names are given: \
         every client could act as any user; list the names of the front proxies, or use a separate CA \
         for them"
    )]
    SharedCa,
    /// No cipher suite of a list can be offered.
    #[error("no cipher suite of the list can be offered")]
    NoCipherSuite,
    /// rustls refused the configuration for another reason.
    #[error("cannot set up TLS: {0}")]
    Setup(rustls::Error),
}
