//! The TLS versions and cipher suites of the listener, with Go's names. Entry: [`TlsPolicy`].
//!
//! kube-apiserver has the same two settings. As in Go, the suites of TLS 1.3 cannot be chosen, and the
//! order of a list has no effect.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedProtocolVersion, version};

use crate::TlsError;
use crate::provider::provider;

/// What the listener offers to clients. The default is TLS 1.2 and 1.3 with all suites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPolicy {
    /// The lowest version.
    pub min_version: TlsVersion,
    /// The suites of TLS 1.2; `None` for all.
    pub cipher_suites: Option<CipherSuites>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// A list of cipher suites of TLS 1.2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CipherSuites {
    offered: Vec<CipherSuite>,
    unavailable: Vec<String>,
}

/// A name that is no cipher suite of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cipher suite")]
pub struct UnknownSuite(pub String);

impl CipherSuites {
    /// The suites with these names. Names of suites that Go has and this crate does not have are kept
    /// in [`CipherSuites::unavailable`].
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownSuite> {
        let mut suites = Self::default();
        for name in names {
            let offered = OFFERED.iter().find(|(known, _)| *known == name);
            match offered {
                Some((_, suite)) => suites.offered.push(*suite),
                None if TLS13.contains(&name) => {}
                None if UNAVAILABLE.contains(&name) => suites.unavailable.push(name.to_owned()),
                None => return Err(UnknownSuite(name.to_owned())),
            }
        }
        Ok(suites)
    }

    /// Whether no suite of TLS 1.2 is left to offer.
    pub fn is_empty(&self) -> bool {
        self.offered.is_empty()
    }

    /// The names in the list that cannot be offered.
    pub fn unavailable(&self) -> &[String] {
        &self.unavailable
    }
}

impl TlsPolicy {
    /// The versions to offer.
    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        match self.min_version {
            TlsVersion::Tls12 => super::ServerTls::VERSIONS,
            TlsVersion::Tls13 => ONLY_TLS13,
        }
    }

    /// The provider with the suites to offer.
    pub(super) fn provider(&self) -> Result<Arc<CryptoProvider>, TlsError> {
        let (Some(suites), TlsVersion::Tls12) = (&self.cipher_suites, self.min_version) else {
            return Ok(provider());
        };
        if suites.is_empty() {
            return Err(TlsError::NoCipherSuite);
        }
        let mut chosen = CryptoProvider::clone(&provider());
        chosen
            .cipher_suites
            .retain(|suite| suite.tls13().is_some() || suites.offered.contains(&suite.suite()));
        Ok(Arc::new(chosen))
    }
}

const ONLY_TLS13: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// The suites of TLS 1.2 that both Go and rustls have. Go still accepts the two names without a hash.
const OFFERED: [(&str, CipherSuite); 8] = {
    use CipherSuite as C;
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", C::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", C::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            C::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
            C::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", C::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", C::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
        (
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            C::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", C::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ]
};

/// The suites of TLS 1.3, which are always offered.
const TLS13: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// The suites of Go that rustls does not have: RSA key exchange, CBC, RC4 and 3DES.
const UNAVAILABLE: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
