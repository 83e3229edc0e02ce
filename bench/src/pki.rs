//! The certificates of a run, laid out as kubeadm would, and the TLS of the load.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The name that every server's certificate has.
pub(crate) const SERVER_NAME: &str = "kubernetes.default.svc";

/// A folder with all that servers, proxies and clients present and believe.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    folder: PathBuf,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Both in one file, as haproxy wants them.
    pub(crate) both: PathBuf,
}

impl Pki {
    /// Makes two authorities and what they sign: `server`, `front-proxy-client`, `admin`.
    pub(crate) fn make(folder: &Path) -> anyhow::Result<Pki> {
        fs::create_dir_all(folder)?;
        let pki = Pki { folder: folder.to_owned() };
        let (cluster, front) = (authority("kubernetes")?, authority("front-proxy-ca")?);
        fs::write(pki.ca(), cluster.pem())?;
        fs::write(pki.front_proxy_ca(), front.pem())?;
        let mut names = vec![SERVER_NAME.to_owned(), "localhost".to_owned()];
        names.extend((1..=9).map(|host| format!("127.78.0.{host}")));
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        pki.sign(&cluster, "server", None, names, server)?;
        pki.sign(&front, "front-proxy-client", None, Vec::new(), client.clone())?;
        pki.sign(&cluster, "admin", Some("system:masters"), Vec::new(), client)?;
        let tokens = KeyPair::generate()?;
        fs::write(pki.pair("sa").key, tokens.serialize_pem())?;
        fs::write(pki.pair("sa").certificate, tokens.public_key_pem())?;
        Ok(pki)
    }

    /// One that was made before, by another process.
    pub(crate) fn at(folder: &Path) -> Pki {
        Pki { folder: folder.to_owned() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub(crate) fn front_proxy_ca(&self) -> PathBuf {
        self.folder.join("front-proxy-ca.crt")
    }

    pub(crate) fn pair(&self, name: &str) -> Pair {
        let file = |ending| self.folder.join(format!("{name}.{ending}"));
        Pair { certificate: file("crt"), key: file("key"), both: file("pem") }
    }

    /// The TLS of the load: the user `admin`, with one key exchange, which every server has, so
    /// that all of them do the same work.
    pub(crate) fn client(&self, alpn: &[u8], resume: bool) -> anyhow::Result<Arc<ClientConfig>> {
        let mut provider = aws_lc_rs::default_provider();
        provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
        let mut roots = rustls::RootCertStore::empty();
        for root in certificates(&self.ca())? {
            roots.add(root)?;
        }
        let admin = self.pair("admin");
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                certificates(&admin.certificate)?,
                PrivateKeyDer::from_pem_file(&admin.key)?,
            )?;
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = match resume {
            true => Resumption::in_memory_sessions(1024),
            false => Resumption::disabled(),
        };
        Ok(Arc::new(config))
    }

    fn sign(
        &self,
        authority: &Authority,
        name: &str,
        group: Option<&str>,
        names: Vec<String>,
        usage: ExtendedKeyUsagePurpose,
    ) -> anyhow::Result<()> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, authority)?;
        let pair = self.pair(name);
        fs::write(&pair.certificate, certificate.pem())?;
        fs::write(&pair.key, key.serialize_pem())?;
        fs::write(&pair.both, certificate.pem() + &key.serialize_pem())?;
        Ok(())
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> anyhow::Result<Authority> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.with_context(|| format!("cannot read {file:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_can_be_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let pki = Pki::make(folder.path()).expect("certificates");
        let config = Pki::at(pki.folder()).client(b"h2", true).expect("TLS");
        assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
        assert!(pki.pair("server").both.exists() && pki.pair("sa").key.exists());
    }
}
