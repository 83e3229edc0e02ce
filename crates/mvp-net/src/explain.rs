//! Why the certificate of a server is not trusted, in words that say what to do. Entry:
//! [`Explaining`].
//!
//! rustls verifies; this only replaces the words of its error.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{X509Name, X509Version};

use crate::TlsError;

/// The most CAs that an error names, and the longest name that it shows.
const MAX_NAMED: usize = 5;
const MAX_NAME: usize = 200;

/// No trusted CA issued the certificate of a server, or it cannot be used at all. The text says who
/// issued it and which CAs are trusted.
///
/// It is the source of [`CertificateError::Other`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UntrustedServer(String);

/// The names of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateNames {
    /// The subject, such as `CN=front-proxy-client`.
    pub subject: String,
    /// The subject of the CA that issued it.
    pub issuer: String,
}

impl CertificateNames {
    /// The names of `certificate`, shortened if they are long; `None` if it cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        Some(Self { subject: name(certificate.subject()), issuer: name(certificate.issuer()) })
    }
}

/// A verifier as rustls uses it by default.
pub(crate) fn verifier(
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    // Cannot fail: the roots are not empty, and there are no revocation lists.
    WebPkiServerVerifier::builder_with_provider(roots, provider)
        .build()
        .map_err(|error| TlsError::Setup(Error::General(error.to_string())))
}

/// Verifies as `inner` does, and explains its errors.
#[derive(Debug)]
pub(crate) struct Explaining {
    inner: Arc<WebPkiServerVerifier>,
    /// The subjects of the trusted CAs.
    trusted: Vec<String>,
    /// Where they come from.
    origin: String,
}

impl Explaining {
    pub(crate) fn new(
        inner: Arc<WebPkiServerVerifier>,
        roots: &RootCertStore,
        origin: &str,
    ) -> Self {
        let subject = |subject: &rustls::DistinguishedName| {
            Some(name(&X509Name::from_der(subject.as_ref()).ok()?.1))
        };
        let trusted = roots.subjects().iter().filter_map(subject).collect();
        Self { inner, trusted, origin: origin.to_owned() }
    }

    fn explained(&self, error: Error, leaf: &CertificateDer<'_>) -> Error {
        let Error::InvalidCertificate(reason) = &error else { return error };
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return error };
        let (origin, issuer) = (&self.origin, name(certificate.issuer()));
        let text = if certificate.version() != X509Version::V3 {
            format!("the certificate of the server is {}", unsupported(certificate.version()))
        } else if !matches!(
            reason,
            CertificateError::UnknownIssuer | CertificateError::BadSignature
        ) {
            return error;
        } else if self.trusted.contains(&issuer) {
            format!(
                "the certificate of the server was issued by a CA that is named {issuer:?} like one in \
                 {origin}, but has another key; put the CA of that server into the file"
            )
        } else {
            let more = self.trusted.len().saturating_sub(MAX_NAMED);
            let named = self.trusted.get(..MAX_NAMED).unwrap_or(&self.trusted);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "the certificate of the server was issued by {issuer:?}, but {origin} has only \
                 {named:?}{more}; put the CA of that server into the file"
            )
        };
        let reason = OtherError(Arc::new(UntrustedServer(text)));
        Error::InvalidCertificate(CertificateError::Other(reason))
    }
}

impl ServerCertVerifier for Explaining {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inner
            .verify_server_cert(leaf, intermediates, server_name, ocsp_response, now)
            .map_err(|error| self.explained(error, leaf))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// What to say about a certificate of an old version, which rustls rejects.
fn unsupported(version: X509Version) -> String {
    // The version is encoded as one less.
    let number = version.0.saturating_add(1);
    format!("X.509 v{number}, which is not supported; create an X.509 v3 certificate")
}

fn name(name: &X509Name<'_>) -> String {
    name.to_string().chars().take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use testkit::certificates::{Ca, SERVER_NAME};

    use super::*;
    use crate::pem::roots;
    use crate::provider::provider;

    /// The error for a server with a certificate of `issuer`, if only `trusted` are.
    fn error(issuer: &Ca, trusted: &[&Ca]) -> String {
        let bundle: String = trusted.iter().map(|ca| ca.pem()).collect();
        let roots = Arc::new(roots(bundle.as_bytes()).unwrap());
        let inner = verifier(Arc::clone(&roots), provider()).unwrap();
        let explaining = Explaining::new(inner, &roots, "--local-ca-file ca.crt");
        let chain = issuer.server(&[SERVER_NAME]).chain();
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let verified =
            explaining.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now());
        match verified.map(drop) {
            Ok(()) => String::new(),
            Err(Error::InvalidCertificate(CertificateError::Other(reason))) => reason.to_string(),
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn an_unknown_issuer_is_named_with_the_trusted_cas() {
        let [one, other] = ["one", "other"].map(Ca::new);
        assert_eq!(error(&one, &[&other, &one]), "");
        assert_eq!(
            error(&one, &[&other]),
            "the certificate of the server was issued by \"CN=one\", but --local-ca-file ca.crt has \
             only [\"CN=other\"]; put the CA of that server into the file"
        );
        let many: Vec<Ca> = (0..7).map(|number| Ca::new(&number.to_string())).collect();
        let many: Vec<&Ca> = many.iter().collect();
        assert!(error(&one, &many).contains("\"CN=4\"] and 2 more; "));
    }

    #[test]
    fn a_ca_with_the_same_name_and_another_key_is_told_apart() {
        let [one, other] = ["kubernetes", "kubernetes"].map(Ca::new);
        let error = error(&one, &[&other]);
        assert!(
            error.contains("named \"CN=kubernetes\" like one in --local-ca-file ca.crt"),
            "{error}"
        );
        assert!(error.contains("but has another key"), "{error}");
    }
}
