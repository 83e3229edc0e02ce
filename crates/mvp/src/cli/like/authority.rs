//! The CA of the serving certificates, which kubeadm does not give as `--peer-ca-file`. Entry: [`find`].

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use super::server_flags::ServerFlags;
use super::settings::Given;
use crate::config::pem::inside_validity;
use crate::files;
use crate::mistake::Mistake;

/// The name that every member verifies.
const NAME: &str = "kubernetes.default.svc";

/// The flags of kube-apiserver whose files may hold that CA, the most likely first.
const CANDIDATES: [&str; 4] = [
    "client-ca-file",
    "kubelet-certificate-authority",
    "requestheader-client-ca-file",
    "oidc-ca-file",
];

/// A file with the CA that signed the serving certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) flag: &'static str,
    pub(super) path: PathBuf,
}

/// The first file that verifies the serving certificate. `None` without a readable certificate, which
/// another check reports.
pub(super) fn find(server: &ServerFlags, given: &Given) -> Result<Option<Found>, Mistake> {
    let serving = match &given.tls_cert_file {
        Some(path) => Some(path.clone()),
        None => server.path("tls-cert-file")?,
    };
    let Some(serving) = serving else { return Ok(None) };
    let Ok(chain) = certificates(&serving) else { return Ok(None) };
    let mut tried = Vec::new();
    for flag in CANDIDATES {
        let Some(path) = server.path(flag)? else { continue };
        match verify(&chain, &path) {
            Ok(()) => return Ok(Some(Found { flag, path })),
            Err(reason) => tried.push(format!("--{flag} {} ({reason})", path.display())),
        }
    }
    let tried = match tried.is_empty() {
        true => "it names no CA file".to_owned(),
        false => format!("it is not verified by {}", tried.join(", ")),
    };
    let what = format!(
        "missing, and kube-apiserver ({}) does not tell which CA signed {} for {NAME}: {tried}; give \
         the CA of the serving certificates of all members",
        server.origin,
        serving.display()
    );
    Err(Mistake::trouble("--peer-ca-file", what))
}

/// Whether a CA in this file signed the chain, and whether the certificate has the name.
fn verify(chain: &[CertificateDer<'static>], authorities: &Path) -> Result<(), String> {
    let (leaf, intermediates) = chain.split_first().ok_or("no certificate")?;
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    let algorithms =
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all;
    let time = inside_validity(leaf);
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, time, algorithms)
        .map_err(|error| error.to_string())?;
    let name = ServerName::try_from(NAME).map_err(|error| error.to_string())?;
    verify_server_name(&parsed, &name).map_err(|error| error.to_string())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = files::read(path).map_err(|problem| problem.to_string())?;
    let certificates = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err(format!("{} holds no certificate", path.display()));
    }
    Ok(certificates)
}
