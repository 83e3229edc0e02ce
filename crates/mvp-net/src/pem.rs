//! Certificates, keys and trust anchors from PEM. Entries: [`certificates`], [`private_key`],
//! [`roots`].

use rustls::RootCertStore;
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsError;

/// The certificates of `pem`, in order; at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(TlsError::BadPem)?;
    if certificates.is_empty() { Err(TlsError::NoCertificate) } else { Ok(certificates) }
}

/// The first private key of `pem`, in any of the three encodings.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        PemError::NoItemsFound => TlsError::NoPrivateKey,
        error => TlsError::BadPem(error),
    })
}

/// The CA bundle `pem` as trust anchors; every certificate of it must be usable.
pub(crate) fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let certificates = certificates(pem).map_err(|error| match error {
        TlsError::NoCertificate => TlsError::EmptyCaBundle,
        error => error,
    })?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.into_iter().enumerate() {
        roots.add(certificate).map_err(|source| TlsError::BadCa { position: index + 1, source })?;
    }
    Ok(roots)
}

/// Maps an error of rustls to the certificate or to the key.
pub(crate) fn pair_error(error: rustls::Error) -> TlsError {
    use rustls::Error;
    match error {
        Error::InconsistentKeys(_) => TlsError::KeyMismatch,
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
            TlsError::BadCertificate(error)
        }
        Error::General(_) => TlsError::BadPrivateKey(error),
        error => TlsError::Setup(error),
    }
}
