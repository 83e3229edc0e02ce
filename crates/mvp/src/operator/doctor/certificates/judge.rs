//! What is wrong with a certificate, as pure functions of its file. Entry items: [`dates`], [`usage`],
//! [`server_issuer`], [`server_names`], [`client_issuer`], [`allowed`], [`user`], [`authorities`].

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use mvp_net::{CertificateNames, ClientTrust};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use crate::config::CertificateFile;
use crate::config::pem::inside_validity;
use crate::config::pem::unix_seconds;

/// A certificate that ends earlier than this gets a warning.
const SOON: i64 = 30 * DAY;
const DAY: i64 = 24 * 60 * 60;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) aspect: Aspect,
    /// Whether requests fail over it.
    pub(super) fatal: bool,
    pub(super) what: String,
    pub(super) fix: String,
}

/// The property that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aspect {
    Key,
    Dates,
    Usage,
    Issuer,
    Names,
    AllowedName,
    User,
    Authority,
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Server,
    Client,
}

impl Aspect {
    /// The end of the name of its check.
    pub(super) fn name(self) -> &'static str {
        match self {
            Aspect::Key => "key",
            Aspect::Dates => "dates",
            Aspect::Usage => "usage",
            Aspect::Issuer => "issuer",
            Aspect::Names => "names",
            Aspect::AllowedName => "allowed name",
            Aspect::User => "is no user",
            Aspect::Authority => "is a CA",
        }
    }
}

impl Finding {
    pub(super) fn fail(aspect: Aspect, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { aspect, fatal: true, what: what.into(), fix: fix.into() }
    }

    fn warn(aspect: Aspect, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { fatal: false, ..Finding::fail(aspect, what, fix) }
    }
}

/// One line about a file that is in order.
pub(super) fn summary(file: &CertificateFile, now: SystemTime) -> String {
    let names = file.certificates.first().and_then(CertificateNames::of);
    let subject = names.map(|names| names.subject).unwrap_or_default();
    let count = match file.certificates.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let end = file.validities().map(|(_, until)| until).min().unwrap_or_default();
    let days = (end - unix_seconds(now)) / DAY;
    format!("{} ({subject}{count}), valid for {days} days", file.path.display())
}

/// Whether the first certificate is valid now, and for a while.
pub(super) fn dates(file: &CertificateFile, now: SystemTime) -> Vec<Finding> {
    let first = file.validities().next();
    first.and_then(|validity| dated(validity, unix_seconds(now))).into_iter().collect()
}

fn dated((from, until): (i64, i64), now: i64) -> Option<Finding> {
    let days = |seconds: i64| match seconds / DAY {
        0 => format!("{} hours", seconds / 3600),
        days => format!("{days} days"),
    };
    let fix = "renew it; the running mvp reloads the file by itself";
    if until < now {
        let what = format!("it expired {} ago", days(now - until));
        Some(Finding::fail(Aspect::Dates, what, fix))
    } else if from > now {
        let what = format!("it is not valid yet, for another {}", days(from - now));
        let fix = "check the clocks of this host and of the CA; else wait, or issue it again";
        Some(Finding::fail(Aspect::Dates, what, fix))
    } else if until - now < SOON {
        let what = format!("it expires in {}", days(until - now));
        Some(Finding::warn(Aspect::Dates, what, fix))
    } else {
        None
    }
}

/// Whether the certificate may be used for this purpose. One without any usage may be used for all.
pub(super) fn usage(file: &CertificateFile, purpose: Purpose) -> Option<Finding> {
    let (_, certificate) = X509Certificate::from_der(file.certificates.first()?).ok()?;
    let usage = certificate.extended_key_usage().ok()??;
    let (allowed, word) = match purpose {
        Purpose::Server => (usage.value.server_auth, "serverAuth"),
        Purpose::Client => (usage.value.client_auth, "clientAuth"),
    };
    (!allowed && !usage.value.any).then(|| {
        let what = format!("its extended key usage lacks {word}, so that TLS refuses it");
        Finding::fail(Aspect::Usage, what, format!("issue it again with {word}"))
    })
}

/// Whether a CA of peers issued the serving certificate.
pub(super) fn server_issuer(file: &CertificateFile, ca: &CertificateFile) -> Option<Finding> {
    let (leaf, intermediates) = file.certificates.split_first()?;
    let parsed = ParsedCertificate::try_from(leaf).ok()?;
    let verified = verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &roots(ca)?,
        intermediates,
        inside_validity(leaf),
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all,
    );
    let fix = "give a certificate of the CA that the --peer-ca-file of all members has, or add its CA \
               to that file on all members";
    issued(verified.err()?, leaf, ca, fix)
}

/// Whether a CA of front proxies issued the proxy client certificate.
pub(super) fn client_issuer(file: &CertificateFile, ca: &CertificateFile) -> Option<Finding> {
    let (leaf, intermediates) = file.certificates.split_first()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), provider);
    let verifier = verifier.build().ok()?;
    let verified = verifier.verify_client_cert(leaf, intermediates, inside_validity(leaf));
    let fix = "give a certificate that a CA of --requestheader-client-ca-file signed, such as \
               kubeadm's front-proxy-client.crt with front-proxy-ca.crt";
    issued(verified.err()?, leaf, ca, fix)
}

/// An error of a chain that does not end at a trusted CA. Dates and usages are judged elsewhere.
fn issued(
    error: Error,
    leaf: &CertificateDer<'_>,
    ca: &CertificateFile,
    fix: &str,
) -> Option<Finding> {
    if let Error::InvalidCertificate(
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
    ) = &error
    {
        return None;
    }
    let issuer = CertificateNames::of(leaf)?.issuer;
    let what = format!(
        "no CA of --{} {} issued it: its issuer is {issuer:?} ({error})",
        ca.key,
        ca.path.display()
    );
    Some(Finding::fail(Aspect::Issuer, what, fix))
}

/// Whether clients find the names in the certificate that they verify.
pub(super) fn server_names(
    file: &CertificateFile,
    addresses: &[IpAddr],
    has_peers: bool,
) -> Vec<Finding> {
    let leaf = file.certificates.first().and_then(|leaf| ParsedCertificate::try_from(leaf).ok());
    let Some(leaf) = leaf else { return Vec::new() };
    let lacks = |name: &ServerName<'_>| verify_server_name(&leaf, name).is_err();
    let mut findings = Vec::new();
    if lacks(&mvp_proxy::server_name()) {
        let what = "it lacks the name kubernetes.default.svc, which peers verify";
        let fix = "issue it again with the DNS name kubernetes.default.svc, as kubeadm does";
        findings.push(Finding { fatal: has_peers, ..Finding::fail(Aspect::Names, what, fix) });
    }
    for address in addresses.iter().filter(|ip| lacks(&ServerName::from(**ip))) {
        let what = format!("it lacks the address {address}, so that clients of that address fail");
        let fix = format!("issue it again with the IP address {address}, if clients use it");
        findings.push(Finding::warn(Aspect::Names, what, fix));
    }
    findings
}

/// Whether the common name is one of a front proxy.
pub(super) fn allowed(file: &CertificateFile, names: &[String]) -> Option<Finding> {
    let mut names = names.iter().filter(|name| !name.is_empty()).peekable();
    names.peek()?;
    let names: Vec<&String> = names.collect();
    let (_, certificate) = X509Certificate::from_der(file.certificates.first()?).ok()?;
    let common = certificate.subject().iter_common_name().next()?;
    let common = common.as_str().unwrap_or_default();
    (!names.iter().any(|name| *name == common)).then(|| {
        let what = format!("its name {common:?} is not in --requestheader-allowed-names {names:?}");
        let fix = "give the certificate of an allowed front proxy, or add the name to the flag, of mvp \
                   and of every kube-apiserver";
        Finding::fail(Aspect::AllowedName, what, fix)
    })
}

/// Whether the certificate authenticates a user, whose rights anonymous callers would get.
pub(super) fn user(file: &CertificateFile, ca: &CertificateFile, now: UnixTime) -> Option<Finding> {
    let trust = ClientTrust::new(Some(&ca.pem), None, Vec::new()).ok()?;
    let name = match trust.judge(&file.certificates, now).user? {
        Ok(user) => format!("user {:?}", user.name),
        Err(_) => "a user".to_owned(),
    };
    let shown = ca.path.display();
    let what = format!(
        "it authenticates {name} under --client-ca-file {shown}, so that anonymous requests would get \
         the rights of that user"
    );
    let fix = "sign it with a separate CA, such as kubeadm's front-proxy-ca, and give that CA as \
               --requestheader-client-ca-file";
    Some(Finding::fail(Aspect::User, what, fix))
}

/// Whether the certificates of a bundle are CAs, and one of them is valid.
pub(super) fn authorities(file: &CertificateFile, now: SystemTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    for certificate in &file.certificates {
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { continue };
        // Those of X.509 v1 cannot say what they are.
        let is_ca = parsed.is_ca() || parsed.version() != X509Version::V3;
        if !is_ca {
            let what = format!("{:?} is not the certificate of a CA", parsed.subject().to_string());
            let fix = "give the certificate of the CA that issued it, not the certificate itself";
            findings.push(Finding::fail(Aspect::Authority, what, fix));
        }
    }
    // A bundle may keep an old CA next to the new one.
    let now = unix_seconds(now);
    let dates: Vec<Option<Finding>> = file.validities().map(|dates| dated(dates, now)).collect();
    if dates.iter().all(Option::is_some) {
        let first = dates.into_iter().flatten().min_by_key(|finding| finding.fatal);
        findings.extend(first.map(|finding| Finding {
            fix: "renew the CA, and put it into the file next to the old one".to_owned(),
            ..finding
        }));
    }
    findings
}

fn roots(ca: &CertificateFile) -> Option<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in &ca.certificates {
        store.add(certificate.clone()).ok()?;
    }
    Some(store)
}

#[cfg(test)]
mod tests;
