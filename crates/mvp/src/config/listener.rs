//! The TLS of the listener besides its certificate: more certificates, versions and suites. Entries:
//! [`SniPair::check`], [`policy`].

use mvp_net::{CipherSuites, SniCertificate, TlsPolicy, TlsVersion};

use super::pem::{Files, KeyPair};
use crate::cli::{MinVersion, Origins, ServeArgs, SniFiles};
use crate::mistake::Mistake;

/// The flag of [`SniPair`].
pub(crate) const SNI: &str = "tls-sni-cert-key";

/// A certificate for some server names.
#[derive(Debug, Clone)]
pub(crate) struct SniPair {
    /// The certificate and its key.
    pub pair: KeyPair,
    /// The names; empty for those of the certificate.
    pub names: Vec<String>,
}

impl SniPair {
    /// Reads the files.
    pub(super) fn check(files: &mut Files<'_>, args: &ServeArgs) -> Result<Vec<SniPair>, Mistake> {
        let all = args.tls_sni_cert_key.iter().map(|SniFiles { certificate, key, names }| {
            let pair = files.pair((SNI, Some(certificate.clone())), (SNI, Some(key.clone())))?;
            Ok(pair.map(|pair| SniPair { pair, names: names.clone() }))
        });
        Ok(all.collect::<Result<Vec<_>, Mistake>>()?.into_iter().flatten().collect())
    }

    /// The certificate for the listener.
    pub(crate) fn certificate(&self) -> SniCertificate<'_> {
        let (certificate_pem, key_pem) = (&*self.pair.chain.pem, &*self.pair.key.pem);
        SniCertificate { certificate_pem, key_pem, names: &self.names }
    }
}

/// The versions and suites. What mvp does not have is a warning, unless nothing is left.
pub(super) fn policy(
    files: &mut Files<'_>,
    args: &ServeArgs,
    origins: &Origins,
) -> Result<TlsPolicy, Mistake> {
    let min_version = match args.tls_min_version {
        None => TlsVersion::default(),
        Some(MinVersion::Offered(version)) => version,
        Some(MinVersion::Older(name)) => {
            let flag = origins.name("tls-min-version");
            files.warn(format!("{flag}: {name} is not offered; clients need TLS 1.2 or 1.3"));
            TlsVersion::default()
        }
    };
    // Go ignores the list for TLS 1.3, too.
    if args.tls_cipher_suites.is_empty() || min_version == TlsVersion::Tls13 {
        return Ok(TlsPolicy { min_version, cipher_suites: None });
    }
    let flag = origins.name("tls-cipher-suites");
    let names = args.tls_cipher_suites.iter().map(String::as_str);
    let suites = CipherSuites::named(names).map_err(|unknown| Mistake::usage(&flag, unknown))?;
    if suites.is_empty() {
        let what = "mvp has no suite of this list for TLS 1.2; add one such as \
                    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, or give --tls-min-version=VersionTLS13";
        return Err(Mistake::usage(flag, what));
    }
    for name in suites.unavailable() {
        files.warn(format!("{flag}: mvp does not have {name}; clients must use another suite"));
    }
    Ok(TlsPolicy { min_version, cipher_suites: Some(suites) })
}
