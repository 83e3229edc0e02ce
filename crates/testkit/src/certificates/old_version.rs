//! Certificates of X.509 version 1 and 2, which rcgen does not issue. Entry item: [`reissue`].
#![expect(clippy::expect_used, reason = "test code: a failure is a mistake in the test")]

use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{KeyPair, SigningKey};
use x509_parser::asn1_rs::{Any, BitString, FromDer, Sequence, ToDer};

/// The certificate `der` of version 3 in an older version, without its extensions and signed again
/// with the key of its issuer, as PEM.
pub(super) fn reissue(der: &[u8], version: u8, issuer: &KeyPair) -> String {
    let signed = elements(contents(der)).first().copied().expect("a certificate has contents");
    // The first is the version, the last the extensions.
    let fields = elements(contents(signed));
    let fields = fields.get(1..7).expect("a certificate has these fields");
    let algorithm = fields.get(1).expect("the second one is the algorithm");
    // The version is encoded as one less, and version 1 is the default.
    let explicit = [0xa0, 3, 2, 1, version - 1];
    let explicit = if version == 1 { &[][..] } else { &explicit };
    let signed = sequence(&[explicit, &fields.concat()]);
    let signature = issuer.sign(&signed).expect("the CA can sign");
    let signature = BitString::new(0, &signature).to_der_vec().expect("a signature can be encoded");
    let pem = Pem::new("CERTIFICATE", sequence(&[&signed, algorithm, &signature]));
    pem::encode_config(&pem, EncodeConfig::new().set_line_ending(LineEnding::LF))
}

fn contents(der: &[u8]) -> &[u8] {
    let (_, element) = Any::from_der(der).expect("rcgen writes DER");
    element.data
}

/// The elements of `der`, with their headers.
fn elements(mut der: &[u8]) -> Vec<&[u8]> {
    let mut elements = Vec::new();
    while !der.is_empty() {
        let (rest, _) = Any::from_der(der).expect("rcgen writes DER");
        elements.push(der.strip_suffix(rest).expect("the rest is a suffix"));
        der = rest;
    }
    elements
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    Sequence::new(parts.concat().into()).to_der_vec().expect("a sequence can be encoded")
}
