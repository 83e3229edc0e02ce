//! The user of a client certificate. Entry: [`user`].
//!
//! The rules are kube-apiserver's: the last CN is the name, every O a group, the attribute
//! 1.3.6.1.4.1.57683.2 the UID. The names are sent in HTTP headers, whose values receivers trim. A
//! name that would not arrive unchanged is refused, never rewritten.

use std::fmt::Write;

use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::asn1_rs::{Oid, Tag, oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;

const COMMON_NAME: Oid<'static> = oid!(2.5.4.3);
const ORGANIZATION: Oid<'static> = oid!(2.5.4.10);
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// The user of a certificate of the client CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateUser {
    /// The common name.
    pub name: String,
    /// The organizations, in the order of the certificate.
    pub groups: Vec<String>,
    /// The UID attribute, if there is one.
    pub uid: Option<String>,
    /// `X509SHA256=` and the SHA-256 of the leaf in lower-case hex.
    pub credential_id: String,
}

/// Why the names of a certificate cannot be forwarded unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadName {
    /// The subject is malformed.
    #[error("the subject of the client certificate cannot be read")]
    Unreadable,
    /// A value begins or ends with a space.
    #[error("the {0} of the client certificate is padded with white space")]
    Padded(&'static str),
    /// A value has a control character, which is not allowed in a header value, or cannot be decoded.
    #[error("the {0} of the client certificate has a control character or cannot be decoded")]
    Unsafe(&'static str),
    /// The UID attribute is empty.
    #[error("the UID of the client certificate is empty")]
    EmptyUid,
    /// There is more than one UID attribute.
    #[error("the client certificate has more than one UID")]
    SeveralUids,
}

/// The user of `leaf`; `None` without a common name.
pub(crate) fn user(leaf: &CertificateDer<'_>) -> Result<Option<CertificateUser>, BadName> {
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| BadName::Unreadable)?;
    let mut name = None;
    let mut groups = Vec::new();
    let mut uid = None;
    for attribute in certificate.subject().iter_attributes() {
        if *attribute.attr_type() == COMMON_NAME {
            name = Some(attribute);
        } else if *attribute.attr_type() == ORGANIZATION {
            groups.push(attribute);
        } else if *attribute.attr_type() == UID && uid.replace(attribute).is_some() {
            return Err(BadName::SeveralUids);
        }
    }
    let name = name.map(|name| header_safe("CN", name)).transpose()?;
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let uid = uid.map(|uid| header_safe("UID", uid)).transpose()?;
    if uid.as_deref() == Some("") {
        return Err(BadName::EmptyUid);
    }
    Ok(Some(CertificateUser {
        name,
        groups: groups
            .into_iter()
            .map(|group| header_safe("O", group))
            .collect::<Result<_, _>>()?,
        uid,
        credential_id: credential_id(leaf),
    }))
}

/// The last common name, unchanged.
pub(crate) fn common_name(leaf: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let attributes = certificate.subject().iter_attributes();
    attributes.filter(|attribute| *attribute.attr_type() == COMMON_NAME).last().and_then(text)
}

/// The first second in which `certificate` is valid, and the first after it has expired.
pub(crate) fn validity_bounds(certificate: &CertificateDer<'_>) -> Vec<u64> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let validity = certificate.validity();
    let bounds = [validity.not_before.timestamp(), validity.not_after.timestamp() + 1];
    bounds.into_iter().filter_map(|bound| u64::try_from(bound).ok()).collect()
}

fn header_safe(
    what: &'static str,
    attribute: &AttributeTypeAndValue<'_>,
) -> Result<String, BadName> {
    let text = text(attribute).ok_or(BadName::Unsafe(what))?;
    // Go accepts every other byte in a header value, and kube-apiserver reads the bytes unchanged.
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(BadName::Unsafe(what));
    }
    if text.starts_with(' ') || text.ends_with(' ') {
        return Err(BadName::Padded(what));
    }
    Ok(text)
}

/// The text of an attribute as Go decodes it; `None` if Go cannot parse the certificate.
fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let bytes = attribute.as_slice();
    match attribute.attr_value().tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok(),
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString => {
            bytes.is_ascii().then(|| bytes.iter().copied().map(char::from).collect())
        }
        // Go takes the defunct T.61 for Latin-1.
        Tag::T61String => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().copied().map(u16::from_be_bytes).collect();
            let units = units.strip_suffix(&[0]).unwrap_or(&units);
            // Surrogates and noncharacters are not allowed.
            let allowed =
                |unit: &u16| !matches!(unit, 0xd800..=0xdfff | 0xfdd0..=0xfdef | 0xfffe..);
            let valid = rest.is_empty() && units.iter().all(allowed);
            valid.then(|| String::from_utf16(units).ok()).flatten()
        }
        _ => None,
    }
}

fn credential_id(leaf: &CertificateDer<'_>) -> String {
    let mut id = String::from("X509SHA256=");
    for byte in Sha256::digest(leaf) {
        // Writing to a String does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}
