//! The files: every certificate against its CA, its names, usages and dates. Nothing is sent. Entry:
//! [`check`].
//!
//! A certificate or bundle that is in order is one line; each thing that is wrong has a line of its own.

mod judge;

use std::net::IpAddr;
use std::time::SystemTime;

use rustls_pki_types::UnixTime;

use self::judge::{Aspect, Finding, Purpose};
use super::check::{Check, Group};
use super::settings::{Pair, Part, Settings};
use crate::config::CertificateFile;

const GROUP: Group = Group::Certificates;

/// Checks every file that a flag names.
pub(crate) fn check(settings: &Settings, now: SystemTime) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.extend(serving(settings, now));
    checks.extend(proxy(settings, now));
    for (name, part) in [
        ("client CA", &settings.client_ca),
        ("request-header CA", &settings.request_header_ca),
        ("peer CA", &settings.peer_ca),
        ("local CA", &settings.local_ca),
        ("etcd CA", &settings.etcd_ca),
    ] {
        checks.extend(bundle(name, part, now));
    }
    checks.extend(etcd(settings, now));
    checks
}

/// The serving certificate: clients and peers must be able to verify it.
fn serving(settings: &Settings, now: SystemTime) -> Vec<Check> {
    let name = "serving certificate";
    let chain = match opened(name, &settings.serving) {
        Ok(Some(chain)) => chain,
        Ok(None) => return Vec::new(),
        Err(checks) => return checks,
    };
    let peers = settings.peer_authorities();
    let mut findings = judge::dates(chain, now);
    findings.extend(key(&settings.serving));
    findings.extend(judge::usage(chain, Purpose::Server));
    findings.extend(peers.and_then(|ca| judge::server_issuer(chain, ca)));
    findings.extend(judge::server_names(chain, &addresses(settings), peers.is_some()));
    report(name, chain, now, findings)
}

/// The proxy client certificate: a front proxy to every server, and a user to none.
fn proxy(settings: &Settings, now: SystemTime) -> Vec<Check> {
    let name = "proxy client certificate";
    let chain = match opened(name, &settings.proxy) {
        Ok(Some(chain)) => chain,
        Ok(None) => return Vec::new(),
        Err(checks) => return checks,
    };
    let mut findings = judge::dates(chain, now);
    findings.extend(key(&settings.proxy));
    findings.extend(judge::usage(chain, Purpose::Client));
    if let Ok(Some(ca)) = &settings.request_header_ca {
        findings.extend(judge::client_issuer(chain, ca));
    }
    findings.extend(judge::allowed(chain, &settings.args.requestheader_allowed_names));
    if let Ok(Some(ca)) = &settings.client_ca {
        findings.extend(judge::user(chain, ca, unix(now)));
    }
    report(name, chain, now, findings)
}

fn etcd(settings: &Settings, now: SystemTime) -> Vec<Check> {
    let name = "etcd client certificate";
    let chain = match opened(name, &settings.etcd_client) {
        Ok(Some(chain)) => chain,
        Ok(None) => return Vec::new(),
        Err(checks) => return checks,
    };
    let mut findings = judge::dates(chain, now);
    findings.extend(key(&settings.etcd_client));
    findings.extend(judge::usage(chain, Purpose::Client));
    report(name, chain, now, findings)
}

/// A bundle of CAs.
fn bundle(name: &str, part: &Part<CertificateFile>, now: SystemTime) -> Vec<Check> {
    match part {
        Ok(None) => Vec::new(),
        Ok(Some(file)) => report(name, file, now, judge::authorities(file, now)),
        Err(mistake) => vec![GROUP.mistake(format!("{name} file"), &mistake.to_string())],
    }
}

/// The certificate of a pair, whatever its key is.
fn opened<'a>(name: &str, pair: &'a Pair) -> Result<Option<&'a CertificateFile>, Vec<Check>> {
    match &pair.chain {
        Ok(chain) => Ok(chain.as_ref()),
        Err(mistake) => Err(vec![GROUP.mistake(format!("{name} file"), &mistake.to_string())]),
    }
}

/// Whether the key belongs to the certificate.
fn key(pair: &Pair) -> Option<Finding> {
    let mistake = pair.both.as_ref().err()?;
    let (what, fix) = super::check::split(&mistake.to_string());
    Some(Finding::fail(Aspect::Key, what, fix.unwrap_or_default()))
}

/// The addresses at which clients and peers are told to reach this gateway.
fn addresses(settings: &Settings) -> Vec<IpAddr> {
    let Ok(config) = &settings.config else { return Vec::new() };
    let all = [Some(config.listen.ip()), config.advertise.map(|address| address.ip())];
    let mut all: Vec<IpAddr> =
        all.into_iter().flatten().filter(|ip| !ip.is_unspecified()).collect();
    all.dedup();
    all
}

fn report(
    name: &str,
    file: &CertificateFile,
    now: SystemTime,
    findings: Vec<Finding>,
) -> Vec<Check> {
    if findings.is_empty() {
        return vec![GROUP.ok(name, judge::summary(file, now))];
    }
    let shown = file.path.display();
    let check = |Finding { aspect, fatal, what, fix }: Finding| {
        let (name, what) = (format!("{name} {}", aspect.name()), format!("{shown}: {what}"));
        if fatal { GROUP.fail(name, what, fix) } else { GROUP.warn(name, what, fix) }
    };
    findings.into_iter().map(check).collect()
}

fn unix(now: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Whether one of these CAs issued this client certificate.
pub(crate) fn is_issued(chain: &CertificateFile, authorities: &CertificateFile) -> bool {
    !authorities.certificates.is_empty() && judge::client_issuer(chain, authorities).is_none()
}

/// Whether this client certificate has one of these names; no names allow all.
pub(crate) fn is_allowed(chain: &CertificateFile, names: &[String]) -> bool {
    judge::allowed(chain, names).is_none()
}
