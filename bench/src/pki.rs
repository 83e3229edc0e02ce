//! The certificates of a run, and the TLS configuration of the load.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use testkit::pki::{Pki, PkiFiles};

/// The user of most loads, who may do anything.
pub(crate) const ADMIN: &str = "admin";
/// Users without privileges.
pub(crate) const ALICE: &str = "alice";
pub(crate) const BOB: &str = "bob";

/// Creates the certificates of the servers on 127.78.0.1 to 127.78.0.9, and of the users.
pub(crate) fn create(folder: &Path) -> anyhow::Result<PkiFiles> {
    let addresses: Vec<IpAddr> =
        (1..=9).map(|host| Ipv4Addr::new(127, 78, 0, host).into()).collect();
    let pki = Pki::new(folder, &addresses)?;
    pki.user(ADMIN, &["system:masters"])?;
    pki.user(ALICE, &["developers"])?;
    pki.user(BOB, &["developers"])?;
    Ok(pki.files().clone())
}

/// The TLS configuration of the load for a user, with one key exchange that every server supports, so
/// that all of them do the same work.
pub(crate) fn client_config(
    pki: &PkiFiles,
    user: &str,
    alpn: &[u8],
    resume: bool,
) -> anyhow::Result<Arc<ClientConfig>> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let mut roots = rustls::RootCertStore::empty();
    for root in certificates(&pki.ca())? {
        roots.add(root)?;
    }
    let user = pki.pair(user);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(
            certificates(&user.certificate)?,
            PrivateKeyDer::from_pem_file(&user.key)?,
        )?;
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = match resume {
        true => Resumption::in_memory_sessions(1024),
        false => Resumption::disabled(),
    };
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_can_use_the_created_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let pki = create(folder.path()).expect("certificates");
        let config = client_config(&PkiFiles::at(pki.folder()), BOB, b"h2", true).expect("TLS");
        assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
        assert!(pki.server().key.exists() && pki.service_accounts().key.exists());
    }
}
