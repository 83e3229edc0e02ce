//! Client certificates of X.509 version 1 and 2, which webpki does not read. Entry: [`Version1`].
//!
//! `openssl x509 -req` of OpenSSL 3.0 issues version 1 unless it gets extensions. kube-apiserver accepts
//! such client certificates: without extensions, nothing limits their use. webpki reads only version
//! 3, whose extensions are optional. It gets the certificate with the version changed to 3, and
//! verifies the issuer's signature over the original bytes. All else is verified as for other
//! certificates: times, chain, and the constraints of the issuers.

use rustls::RootCertStore;
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, UnixTime,
};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::asn1_rs::{Any, FromDer, Sequence, ToDer};

use crate::provider::provider;

/// The version field of a certificate of version 3.
const VERSION_3: &[u8] = &[0xa0, 3, 2, 1, 2];
/// Serial number, algorithm, issuer, validity, subject and public key.
const FIELDS: usize = 6;

/// A leaf of X.509 version 1 or 2.
#[derive(Debug)]
pub(crate) struct Version1 {
    original: Encoding,
    as_version_3: Encoding,
}

#[derive(Debug)]
struct Encoding {
    /// What the issuer signs.
    signed: Vec<u8>,
    certificate: CertificateDer<'static>,
}

impl Version1 {
    /// `None` for version 3, and for anything that is not strict DER or has further fields. Go ignores
    /// further fields in these versions; here the certificate is refused as malformed.
    pub(crate) fn read(leaf: &CertificateDer<'_>) -> Option<Self> {
        let (certificate, _) = contents(leaf)?;
        let (signed, signature) = contents(certificate)?;
        let (version, fields) = match signed {
            [0xa0, 3, 2, 1, 1, ..] => signed.split_at_checked(VERSION_3.len())?,
            [0xa0, ..] => return None,
            // The default is version 1.
            _ => (&[][..], signed),
        };
        let mut rest = fields;
        for _ in 0..FIELDS {
            (_, rest) = contents(rest)?;
        }
        let original = Encoding::new(version, fields, signature)?;
        // The parser is lenient. What is not the only encoding of its contents is not DER.
        let strict = rest.is_empty() && original.certificate == *leaf;
        let as_version_3 = Encoding::new(VERSION_3, fields, signature)?;
        strict.then_some(Self { original, as_version_3 })
    }

    /// The certificate as version 3. Its public key is that of the original; the signature of its
    /// issuer is not valid.
    pub(crate) fn as_version_3(&self) -> &CertificateDer<'_> {
        &self.as_version_3.certificate
    }

    /// Whether the chain to one of `roots` is valid for a client at `now`.
    pub(crate) fn is_client_of(
        &self,
        roots: &RootCertStore,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> bool {
        let Ok(leaf) = EndEntityCert::try_from(&self.as_version_3.certificate) else {
            return false;
        };
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms.all.iter();
        let algorithms: Vec<OverOriginal<'_>> = algorithms
            .map(|algorithm| OverOriginal { leaf: self, algorithm: *algorithm })
            .collect();
        let algorithms: Vec<&dyn SignatureVerificationAlgorithm> =
            algorithms.iter().map(|algorithm| algorithm as _).collect();
        let usage = KeyUsage::client_auth();
        leaf.verify_for_usage(&algorithms, &roots.roots, intermediates, now, usage, None, None)
            .is_ok()
    }
}

impl Encoding {
    fn new(version: &[u8], fields: &[u8], signature: &[u8]) -> Option<Self> {
        let signed = sequence(&[version, fields])?;
        let certificate = CertificateDer::from(sequence(&[&signed, signature])?);
        Some(Self { signed, certificate })
    }
}

/// An algorithm that verifies the signature of the leaf over its original bytes. All other signatures
/// are verified unchanged.
#[derive(Debug)]
struct OverOriginal<'a> {
    leaf: &'a Version1,
    algorithm: &'a dyn SignatureVerificationAlgorithm,
}

impl SignatureVerificationAlgorithm for OverOriginal<'_> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let Version1 { original, as_version_3 } = self.leaf;
        let is_leaf = message == as_version_3.signed;
        let message = if is_leaf { &original.signed } else { message };
        self.algorithm.verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

/// The contents of the first element of `der`, and what follows it.
fn contents(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, element) = Any::from_der(der).ok()?;
    Some((element.data, rest))
}

fn sequence(parts: &[&[u8]]) -> Option<Vec<u8>> {
    Sequence::new(parts.concat().into()).to_der_vec().ok()
}
