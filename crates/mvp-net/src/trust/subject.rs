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
    /// A value has a character that is not allowed in a header value.
    #[error("the {0} of the client certificate has a character other than visible ASCII and space")]
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
    let Some(name) = name.filter(|name| !name.as_slice().is_empty()) else {
        return Ok(None);
    };
    let uid = uid.map(|uid| header_safe("UID", uid)).transpose()?;
    if uid.as_deref() == Some("") {
        return Err(BadName::EmptyUid);
    }
    Ok(Some(CertificateUser {
        name: header_safe("CN", name)?,
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
    let name = attributes.filter(|attribute| *attribute.attr_type() == COMMON_NAME).last()?;
    name.as_str().ok().map(str::to_owned)
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
    // Encodings that include ASCII; other characters are refused below.
    let text = match attribute.attr_value().tag() {
        Tag::Utf8String
        | Tag::PrintableString
        | Tag::Ia5String
        | Tag::NumericString
        | Tag::T61String => attribute.as_slice(),
        _ => return Err(BadName::Unsafe(what)),
    };
    if !text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(BadName::Unsafe(what));
    }
    if text.first() == Some(&b' ') || text.last() == Some(&b' ') {
        return Err(BadName::Padded(what));
    }
    String::from_utf8(text.to_vec()).map_err(|_| BadName::Unsafe(what))
}

fn credential_id(leaf: &CertificateDer<'_>) -> String {
    let mut id = String::from("X509SHA256=");
    for byte in Sha256::digest(leaf) {
        // Writing to a String does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}
