//! CAs and the certificates they issue, in memory, as PEM. Entry item: [`Ca`].
//!
//! Functions panic instead of returning errors, as test code does: only a mistake in the test, such
//! as an invalid DNS name, makes one fail.
#![expect(clippy::expect_used, reason = "test code: a failure is a mistake in the test")]

mod old_version;

use std::path::Path;
use std::time::SystemTime;
use std::{fmt, fs, io};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

/// The DNS name in every API server's certificate.
pub const SERVER_NAME: &str = "kubernetes.default.svc";

/// The common name of the proxy client certificate, as in `--requestheader-allowed-names`.
pub const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// A certificate authority, root or intermediate.
pub struct Ca {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
    /// The intermediates that a certificate of this CA must bring along.
    chain: String,
}

impl Ca {
    /// Creates a root CA with this common name.
    pub fn new(name: &str) -> Ca {
        Ca::root(name, new_key())
    }

    /// Creates another certificate for the same key, as a renewal does.
    pub fn renewed(&self, name: &str) -> Ca {
        let key = KeyPair::from_pem(&self.key.serialize_pem()).expect("the key is valid PEM");
        Ca::root(name, key)
    }

    /// Creates an intermediate CA under this one.
    pub fn intermediate(&self, name: &str) -> Ca {
        let (params, key) = (ca_params(name), new_key());
        let signed = params.signed_by(&key, &self.issuer());
        let pem = signed.expect("an intermediate CA can be signed").pem();
        let chain = format!("{pem}{}", self.chain);
        Ca { params, key, pem, chain }
    }

    fn root(name: &str, key: KeyPair) -> Ca {
        let params = ca_params(name);
        let pem = params.self_signed(&key).expect("a CA can sign itself").pem();
        Ca { params, key, pem, chain: String::new() }
    }

    /// The certificate of the CA, for a trust bundle.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a server certificate for these DNS names and IP addresses. The first one is also the
    /// common name.
    pub fn server<N: AsRef<str>>(&self, names: &[N]) -> Pair {
        let common_name = names.first().map(AsRef::as_ref).unwrap_or_default();
        self.issue(Leaf::named(common_name).names(names).for_servers())
    }

    /// Issues a client certificate with this subject.
    pub fn client(&self, subject: &[Attribute]) -> Pair {
        self.issue(Leaf::new(subject).for_clients())
    }

    /// Issues a certificate, with its chain up to this CA's root.
    pub fn issue(&self, leaf: Leaf) -> Pair {
        let key = leaf.key.map_or_else(new_key, KeyKind::generate);
        let signed = leaf.params.signed_by(&key, &self.issuer());
        let signed = signed.expect("a certificate can be signed");
        let certificate = match leaf.old_version {
            None => signed.pem(),
            Some(version) => old_version::reissue(signed.der(), version, &self.key),
        };
        Pair { certificate: certificate + &self.chain, key: key.serialize_pem() }
    }

    fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("pem", &self.pem).finish_non_exhaustive()
    }
}

/// A certificate chain and its private key, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, then its intermediates.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Pair {
    /// Creates a certificate that signs itself, for these DNS names and IP addresses.
    pub fn self_signed(names: &[&str]) -> Pair {
        let (leaf, key) = (Leaf::named("self-signed").names(names), new_key());
        let certificate = leaf.params.self_signed(&key).expect("a certificate can sign itself");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// The certificate and the key as bytes.
    pub fn pem(&self) -> (&[u8], &[u8]) {
        (self.certificate.as_bytes(), self.key.as_bytes())
    }

    /// The certificate chain as DER, the leaf first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        let parsed = CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        parsed.collect::<Result<_, _>>().expect("the chain is valid PEM")
    }

    /// The credential ID that kube-apiserver derives from the certificate.
    pub fn credential_id(&self) -> String {
        let chain = self.chain();
        let digest = Sha256::digest(chain.first().expect("a chain has a leaf"));
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("X509SHA256={hex}")
    }

    /// Writes `NAME.crt` and `NAME.key`. Each file is replaced whole, so that a program that
    /// reloads it never reads half of it.
    pub fn write(&self, folder: &Path, name: &str) -> io::Result<()> {
        replace(&folder.join(format!("{name}.crt")), &self.certificate)?;
        replace(&folder.join(format!("{name}.key")), &self.key)
    }
}

/// A key pair without a certificate: the private and the public key, as PEM.
pub fn key_pair() -> (String, String) {
    let key = new_key();
    (key.serialize_pem(), key.public_key_pem())
}

/// Replaces a file whole.
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    let beside = file.with_extension("next");
    fs::write(&beside, text)?;
    fs::rename(&beside, file)
}

/// One attribute of a subject.
#[derive(Debug, Clone)]
pub struct Attribute {
    kind: DnType,
    /// The same type as an object identifier.
    oid: &'static [u64],
    value: DnValue,
}

/// A common name: the user.
pub fn cn(value: &str) -> Attribute {
    common_name(DnValue::Utf8String(value.to_owned()))
}

/// A common name as a `PrintableString`.
pub fn printable_cn(value: &str) -> Attribute {
    common_name(DnValue::PrintableString(value.try_into().expect("printable characters")))
}

/// A common name as a `BMPString`, which is UTF-16.
pub fn bmp_cn(value: &str) -> Attribute {
    common_name(DnValue::BmpString(value.try_into().expect("characters of two bytes")))
}

fn common_name(value: DnValue) -> Attribute {
    Attribute { kind: DnType::CommonName, oid: &[2, 5, 4, 3], value }
}

/// An organization: a group of the user.
pub fn o(value: &str) -> Attribute {
    let value = DnValue::Utf8String(value.to_owned());
    Attribute { kind: DnType::OrganizationName, oid: &[2, 5, 4, 10], value }
}

/// The UID of the user, in the attribute that Kubernetes reads.
pub fn uid(value: &str) -> Attribute {
    const OID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];
    let value = DnValue::Utf8String(value.to_owned());
    Attribute { kind: DnType::CustomDnType(OID.to_vec()), oid: OID, value }
}

/// A certificate to be issued by [`Ca::issue`]. Without a usage it is valid for servers and for
/// clients.
#[derive(Debug, Clone)]
pub struct Leaf {
    params: CertificateParams,
    old_version: Option<u8>,
    key: Option<KeyKind>,
}

/// A kind of key other than that of P-256.
#[derive(Debug, Clone, Copy)]
pub enum KeyKind {
    /// ECDSA on P-384.
    P384,
    /// ECDSA on P-521.
    P521,
    /// Ed25519.
    Ed25519,
    /// RSA with 2048 bits.
    Rsa2048,
}

impl KeyKind {
    fn generate(self) -> KeyPair {
        let key = match self {
            KeyKind::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            KeyKind::P521 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
            KeyKind::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
            KeyKind::Rsa2048 => {
                KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)
            }
        };
        key.expect("a key can be generated")
    }
}

impl Leaf {
    /// A certificate with this subject. Each type of attribute may occur twice.
    pub fn new(subject: &[Attribute]) -> Leaf {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(subject);
        Leaf { params, old_version: None, key: None }
    }

    /// A certificate with this common name.
    pub fn named(name: &str) -> Leaf {
        Leaf::new(&[cn(name)])
    }

    /// Adds DNS names and IP addresses.
    pub fn names<N: AsRef<str>>(mut self, names: &[N]) -> Leaf {
        let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
        let parsed = CertificateParams::new(names).expect("valid DNS names and IP addresses");
        self.params.subject_alt_names.extend(parsed.subject_alt_names);
        self
    }

    /// Adds the usage of servers.
    pub fn for_servers(self) -> Leaf {
        self.with_usage(ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Adds the usage of clients.
    pub fn for_clients(self) -> Leaf {
        self.with_usage(ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn with_usage(mut self, usage: ExtendedKeyUsagePurpose) -> Leaf {
        self.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        self.params.extended_key_usages.push(usage);
        self
    }

    /// Gives it a key of another kind.
    pub fn with_key(self, key: KeyKind) -> Leaf {
        Leaf { key: Some(key), ..self }
    }

    /// Limits the validity to these days, each as year, month and day.
    pub fn valid(mut self, from: (i32, u8, u8), until: (i32, u8, u8)) -> Leaf {
        self.params.not_before = date_time_ymd(from.0, from.1, from.2);
        self.params.not_after = date_time_ymd(until.0, until.1, until.2);
        self
    }

    /// Sets the end of the validity.
    pub fn valid_until(mut self, end: SystemTime) -> Leaf {
        self.params.not_after = end.into();
        self
    }

    /// Makes it a certificate of X.509 version 1, without extensions, as `openssl x509 -req` does
    /// unless it gets some.
    pub fn of_version_1(self) -> Leaf {
        Leaf { old_version: Some(1), ..self }
    }

    /// Makes it a certificate of X.509 version 2, without extensions.
    pub fn of_version_2(self) -> Leaf {
        Leaf { old_version: Some(2), ..self }
    }

    /// Adds a critical extension that no verifier knows.
    pub fn with_unknown_critical_extension(mut self) -> Leaf {
        let mut extension =
            CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
        extension.set_criticality(true);
        self.params.custom_extensions = vec![extension];
        self
    }
}

fn distinguished_name(subject: &[Attribute]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for Attribute { kind, oid, value } in subject {
        // rcgen keeps one value for each type; the same type by its number is another one to it.
        let kind = match name.get(kind) {
            None => kind.clone(),
            Some(_) => DnType::CustomDnType(oid.to_vec()),
        };
        name.push(kind, value.clone());
    }
    name
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(&[cn(name)]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key can be generated")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_brings_its_intermediates() {
        let root = Ca::new("root");
        let pair = root.intermediate("one").intermediate("two").client(&[cn("jane")]);
        assert_eq!(pair.chain().len(), 3);
        assert_eq!(root.server(&[SERVER_NAME, "127.0.0.1"]).chain().len(), 1);
    }

    #[test]
    fn a_subject_keeps_the_order_of_repeated_attributes() {
        let name = distinguished_name(&[o("first"), cn("jane"), o("second")]);
        let values: Vec<_> = name.iter().map(|(_, value)| value.clone()).collect();
        let expected = ["first", "jane", "second"].map(|text| DnValue::Utf8String(text.into()));
        assert_eq!(values, expected);
    }

    #[test]
    fn a_pair_is_written_as_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let pair = Pair::self_signed(&[SERVER_NAME]);
        pair.write(folder.path(), "server").unwrap();
        let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((read("server.crt"), read("server.key")), (pair.certificate, pair.key));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
