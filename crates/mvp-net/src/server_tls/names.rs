//! The certificate for the name that a client asks for. Entry: [`SniCertificate`].
//!
//! The rules are kube-apiserver's: names of the flag win over names of certificates, then the earlier
//! certificate wins. An exact name wins over a wildcard, which stands for one label.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::TlsError;
use crate::pem::{certificates, pair_error, private_key};

/// A certificate for some server names, in place of the default one.
#[derive(Clone, Copy)]
pub struct SniCertificate<'a> {
    /// The certificate chain as PEM.
    pub certificate_pem: &'a [u8],
    /// Its key as PEM.
    pub key_pem: &'a [u8],
    /// The names, which may start with `*.`; if empty, those of the certificate. An IP address is for
    /// clients that name no server and connect to that address.
    pub names: &'a [String],
}

/// Does not print the key.
impl std::fmt::Debug for SniCertificate<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SniCertificate").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The certificates of a listener by name.
#[derive(Clone, Debug)]
pub(super) struct ByName {
    names: Arc<HashMap<String, Arc<CertifiedKey>>>,
    /// For other names.
    default: Arc<CertifiedKey>,
    /// For clients that name no server.
    unnamed: Arc<CertifiedKey>,
}

impl ByName {
    pub(super) fn new(
        certificate_pem: &[u8],
        key_pem: &[u8],
        more: &[SniCertificate<'_>],
        provider: &CryptoProvider,
    ) -> Result<Self, TlsError> {
        let default = certified(certificate_pem, key_pem, provider)?;
        let (mut given, mut own) = (HashMap::new(), HashMap::new());
        for pair in more {
            let key = certified(pair.certificate_pem, pair.key_pem, provider)?;
            for name in pair.names {
                given.entry(name.to_ascii_lowercase()).or_insert_with(|| Arc::clone(&key));
            }
            if pair.names.is_empty() {
                for name in names_of(&key) {
                    own.entry(name.to_ascii_lowercase()).or_insert_with(|| Arc::clone(&key));
                }
            }
        }
        own.extend(given);
        Ok(Self { names: Arc::new(own), unnamed: Arc::clone(&default), default })
    }

    /// The IP addresses among the names, with the certificates for clients that name no server there.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (IpAddr, Self)> {
        self.names.iter().filter_map(|(name, key)| {
            let here = Self { unnamed: Arc::clone(key), ..self.clone() };
            Some((name.parse().ok()?, here))
        })
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        self.names.get(&name).or_else(|| {
            let (_, rest) = name.split_once('.').unwrap_or((&name, ""));
            let wildcard = if rest.is_empty() { "*".to_owned() } else { format!("*.{rest}") };
            self.names.get(&wildcard)
        })
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = match hello.server_name() {
            None => &self.unnamed,
            Some(_) if self.names.is_empty() => &self.default,
            Some(name) => self.find(name).unwrap_or(&self.default),
        };
        Some(Arc::clone(found))
    }
}

fn certified(
    certificate_pem: &[u8],
    key_pem: &[u8],
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let (chain, key) = (certificates(certificate_pem)?, private_key(key_pem)?);
    CertifiedKey::from_der(chain, key, provider).map(Arc::new).map_err(pair_error)
}

/// The common name, if it is a DNS name, and the DNS names of the extension. kube-apiserver ignores
/// addresses, too: a client cannot name one.
fn names_of(key: &CertifiedKey) -> Vec<String> {
    let leaf = key.cert.first().and_then(|leaf| X509Certificate::from_der(leaf).ok());
    let Some((_, leaf)) = leaf else { return Vec::new() };
    let common = leaf.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = common.filter(|name| is_dns(name)).map(str::to_owned).collect();
    if let Ok(Some(extension)) = leaf.subject_alternative_name() {
        names.extend(extension.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        }));
    }
    names
}

/// Whether a common name is a DNS name, a wildcard or `*`.
fn is_dns(name: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        label.bytes().all(|byte| letters(byte) || byte == b'-')
            && label.bytes().next().is_some_and(letters)
            && label.bytes().next_back().is_some_and(letters)
    };
    let is_address = name.parse::<IpAddr>().is_ok();
    let plain = name.strip_prefix("*.").unwrap_or(name);
    name == "*" || (!is_address && name.len() <= 253 && plain.split('.').all(label))
}
