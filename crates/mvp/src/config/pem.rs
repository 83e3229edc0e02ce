//! PEM files: certificates, CA bundles and private keys. Entry: [`Files`].
//!
//! [`Files`] reads the files of one configuration and collects warnings. The bytes are kept next to
//! the parsed contents, so that a reload can tell whether a file changed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use crate::cli::Origins;
use crate::mistake::{Mistake, Problem};

/// The reader of the PEM files of one configuration.
pub(crate) struct Files<'a> {
    origins: &'a Origins,
    read: &'a Read,
    now: i64,
    warnings: Vec<String>,
}

/// Reads a file: from the disk, or from what a reload has just read.
pub(crate) type Read = dyn Fn(&Path) -> Result<Vec<u8>, Problem>;

impl<'a> Files<'a> {
    /// `now` decides which certificates have expired.
    pub(crate) fn new(origins: &'a Origins, now: SystemTime, read: &'a Read) -> Self {
        Self { origins, read, now: unix_seconds(now), warnings: Vec::new() }
    }

    /// The warnings, one sentence each.
    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, sentence: String) {
        self.warnings.push(sentence);
    }

    /// Reads a bundle of CAs.
    pub(crate) fn authorities(
        &mut self,
        key: &'static str,
        path: Option<PathBuf>,
    ) -> Result<Option<CertificateFile>, Mistake> {
        let Some(path) = path else { return Ok(None) };
        let file = self.certificates(key, path)?;
        let mut store = RootCertStore::empty();
        for (index, certificate) in file.certificates.iter().enumerate() {
            store.add(certificate.clone()).map_err(|error| {
                self.bad(key, unreadable_certificate(&file.path, index, &error))
            })?;
        }
        // A bundle may keep an old CA next to the new one.
        if file.certificates.iter().all(|certificate| self.validity(certificate).is_some()) {
            self.warn_of_validity(key, &file);
        }
        Ok(Some(file))
    }

    /// Reads a certificate chain and the key of its first certificate; both or neither.
    pub(crate) fn pair(&mut self, cert: Named, key: Named) -> Result<Option<KeyPair>, Mistake> {
        let (cert_path, key_path) = match (cert.1, key.1) {
            (Some(cert_path), Some(key_path)) => (cert_path, key_path),
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(self.half(cert.0, key.0)),
            (None, Some(_)) => return Err(self.half(key.0, cert.0)),
        };
        let chain = self.certificates(cert.0, cert_path)?;
        self.not_of_old_version(&chain)?;
        let key = self.private_key(key.0, key_path, &chain.path, &chain.certificates)?;
        self.warn_of_validity(cert.0, &chain);
        Ok(Some(KeyPair { chain, key }))
    }

    /// Reads a file of certificates, whatever they are for.
    pub(crate) fn certificates(
        &self,
        key: &'static str,
        path: PathBuf,
    ) -> Result<CertificateFile, Mistake> {
        let pem = (self.read)(&path).map_err(|problem| self.bad(key, problem.to_string()))?;
        let shown = path.display();
        let certificates = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| self.bad(key, broken_pem(&path, &error)))?;
        if certificates.is_empty() {
            let sentence = match PrivateKeyDer::from_pem_slice(&pem) {
                Ok(_) => format!("{shown} holds a private key; give the file of the certificate"),
                Err(_) => format!("{shown} holds no certificate; give a PEM file with one"),
            };
            return Err(self.bad(key, sentence));
        }
        for (index, certificate) in certificates.iter().enumerate() {
            X509Certificate::from_der(certificate)
                .map_err(|error| self.bad(key, unreadable_certificate(&path, index, &error)))?;
        }
        Ok(CertificateFile { key, path, pem, certificates })
    }

    /// Refuses a leaf of X.509 v1 or v2, which TLS cannot use. CAs of that version are trusted.
    fn not_of_old_version(&self, chain: &CertificateFile) -> Result<(), Mistake> {
        let leaf = chain.certificates.first().and_then(|leaf| X509Certificate::from_der(leaf).ok());
        let Some((_, leaf)) = leaf.filter(|(_, leaf)| leaf.version() != X509Version::V3) else {
            return Ok(());
        };
        // The version is encoded as one less.
        let (shown, version) = (chain.path.display(), leaf.version().0.saturating_add(1));
        let sentence = format!(
            "{shown} holds an X.509 v{version} certificate, which is not supported; create an X.509 v3 \
             certificate, for example with openssl x509 -req -extfile, which adds extensions such as \
             subjectAltName"
        );
        Err(self.bad(chain.key, sentence))
    }

    fn private_key(
        &self,
        setting: &'static str,
        path: PathBuf,
        chain_path: &Path,
        chain: &[CertificateDer<'static>],
    ) -> Result<KeyFile, Mistake> {
        let pem = (self.read)(&path).map_err(|problem| self.bad(setting, problem.to_string()))?;
        let (shown, chain_shown) = (path.display(), chain_path.display());
        let bad = |sentence: String| self.bad(setting, sentence);
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
            bad(match error {
                rustls_pki_types::pem::Error::NoItemsFound => no_key(&path, &pem),
                error => broken_pem(&path, &error),
            })
        })?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        match CertifiedKey::from_der(chain.to_vec(), key, &provider) {
            Ok(_) => Ok(KeyFile { key: setting, path, pem }),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(bad(
                format!("{shown} is not the key of {chain_shown}; give the matching files"),
            )),
            Err(error) => Err(bad(format!(
                "{shown} holds a key that cannot be used ({error}); use RSA with 2048 bits or more, \
                 ECDSA or Ed25519"
            ))),
        }
    }

    fn half(&self, given: &str, missing: &str) -> Mistake {
        let sentence = format!("given without --{missing}; give both flags or neither");
        Mistake::usage(self.origins.name(given), sentence)
    }

    /// A mistake in a file that this flag names.
    pub(super) fn bad(&self, key: &str, sentence: String) -> Mistake {
        Mistake::trouble(self.origins.name(key), sentence)
    }

    fn warn_of_validity(&mut self, key: &str, file: &CertificateFile) {
        if let Some(wrong) = file.certificates.first().and_then(|first| self.validity(first)) {
            let (name, shown) = (self.origins.name(key), file.path.display());
            self.warnings.push(format!("{name}: the certificate in {shown} {wrong}; renew it"));
        }
    }

    /// The problem with the validity of a certificate, if it has expired or is not valid yet.
    fn validity(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let validity = certificate.validity();
        if self.now > validity.not_after.timestamp() {
            Some(format!("expired on {}", validity.not_after))
        } else if self.now < validity.not_before.timestamp() {
            Some(format!("is not valid before {}", validity.not_before))
        } else {
            None
        }
    }
}

/// A flag and the file that it names, if any.
type Named = (&'static str, Option<PathBuf>);

/// A file with at least one certificate: a chain, or a bundle of CAs.
#[derive(Clone)]
pub(crate) struct CertificateFile {
    /// The flag that names it.
    pub key: &'static str,
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub pem: Vec<u8>,
    /// Its certificates, in order.
    pub certificates: Vec<CertificateDer<'static>>,
}

impl CertificateFile {
    /// The start and end of the validity of each certificate, in Unix seconds.
    pub(crate) fn validities(&self) -> impl Iterator<Item = (i64, i64)> {
        self.certificates.iter().filter_map(|certificate| {
            let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
            let validity = certificate.validity();
            Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
        })
    }
}

/// A file with a private key.
#[derive(Clone)]
pub(crate) struct KeyFile {
    /// The flag that names it.
    pub key: &'static str,
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub pem: Vec<u8>,
}

/// A certificate chain and the key of its first certificate.
#[derive(Debug, Clone)]
pub(crate) struct KeyPair {
    /// The certificate, followed by its intermediates.
    pub chain: CertificateFile,
    /// The private key.
    pub key: KeyFile,
}

impl fmt::Debug for CertificateFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} ({} certificates)", self.path, self.certificates.len())
    }
}

/// Does not print the key.
impl fmt::Debug for KeyFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.path)
    }
}

/// A time at which the certificate is valid, so that its dates do not hide who issued it.
pub(crate) fn inside_validity(leaf: &CertificateDer<'_>) -> UnixTime {
    let now = UnixTime::now();
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return now };
    let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
    let validity = leaf.validity();
    let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let now = now.as_secs().min(seconds(until)).max(seconds(from));
    UnixTime::since_unix_epoch(Duration::from_secs(now))
}

/// Seconds since the Unix epoch.
pub(crate) fn unix_seconds(time: SystemTime) -> i64 {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn unreadable_certificate(path: &Path, index: usize, error: &dyn fmt::Display) -> String {
    let (shown, number) = (path.display(), index + 1);
    format!("certificate {number} in {shown} cannot be read ({error}); replace it")
}

fn broken_pem(path: &Path, error: &dyn fmt::Display) -> String {
    format!("{} is not valid PEM ({error}); replace it", path.display())
}

fn no_key(path: &Path, pem: &[u8]) -> String {
    let shown = path.display();
    let has = |label: &[u8]| pem.windows(label.len()).any(|window| window == label);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") {
        format!("{shown} holds an encrypted key; decrypt it, for example with openssl pkey")
    } else if has(b"BEGIN CERTIFICATE") {
        format!("{shown} holds a certificate but no private key; give the file of the key")
    } else {
        format!("{shown} holds no private key; give a PEM file with one")
    }
}
