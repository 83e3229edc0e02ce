//! What can be wrong with certificates, keys and CA bundles. Entry: [`TlsError`].

/// Why TLS could not be set up: which thing is wrong, and how.
///
/// Names no files and no flags: the caller knows where the bytes came from and says so.
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
    /// A PEM block cannot be read.
    #[error("cannot read the PEM: {0}")]
    BadPem(rustls_pki_types::pem::Error),
    /// A certificate of the chain is not X.509, or of a kind that cannot be used.
    #[error("cannot use the certificate: {0}")]
    BadCertificate(rustls::Error),
    /// The private key is damaged, or of a kind that cannot be used.
    #[error("cannot use the private key: {0}")]
    BadPrivateKey(rustls::Error),
    /// Certificate and key are each well formed, and belong to different pairs.
    #[error("the private key does not fit the certificate")]
    KeyMismatch,
    /// The CA bundle holds no certificate.
    #[error("the CA bundle holds no certificate")]
    EmptyCaBundle,
    /// A certificate of the CA bundle cannot be a trust anchor. Counted from 1.
    #[error("cannot use certificate {position} of the CA bundle: {source}")]
    BadCa {
        /// Which certificate of the bundle, from 1.
        position: usize,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// Every holder of a client certificate could act as a front proxy.
    #[error(
        "the request-header CA shares a certificate with the client CA and no allowed names are given: \
         every client could speak for any user; name the allowed front proxies, or use a CA of their own"
    )]
    SharedCa,
    /// rustls refused the configuration for another reason.
    #[error("cannot set up TLS: {0}")]
    Setup(rustls::Error),
}
