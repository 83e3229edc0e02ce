//! The certificates of a cluster under test, as kubeadm would lay them out.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Authorities, and the folder of what they signed.
pub(crate) struct Pki {
    folder: PathBuf,
    cluster: Authority,
    front_proxy: Authority,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pki {
    /// Makes the authorities `ca.crt` and `front-proxy-ca.crt`, and the pairs `server` (for these
    /// addresses), `front-proxy-client`, and the key of service accounts.
    pub(crate) fn new(folder: &Path, addresses: &[IpAddr]) -> anyhow::Result<Pki> {
        fs::create_dir_all(folder)?;
        let pki = Pki {
            folder: folder.to_owned(),
            cluster: authority("kubernetes")?,
            front_proxy: authority("front-proxy-ca")?,
        };
        fs::write(pki.ca(), pki.cluster.pem())?;
        fs::write(pki.front_proxy_ca(), pki.front_proxy.pem())?;
        let tokens = KeyPair::generate()?;
        fs::write(pki.service_accounts().key, tokens.serialize_pem())?;
        fs::write(pki.service_accounts().certificate, tokens.public_key_pem())?;
        pki.renew_server(addresses)?;
        pki.renew_front_proxy()?;
        Ok(pki)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub(crate) fn front_proxy_ca(&self) -> PathBuf {
        self.folder.join("front-proxy-ca.crt")
    }

    /// The key that signs the tokens of service accounts, and the public one that proves them.
    pub(crate) fn service_accounts(&self) -> Pair {
        self.pair("sa")
    }

    /// What servers present.
    pub(crate) fn server(&self) -> Pair {
        self.pair("server")
    }

    /// What servers present to each other to speak for users.
    pub(crate) fn front_proxy(&self) -> Pair {
        self.pair("front-proxy-client")
    }

    fn renew_server(&self, addresses: &[IpAddr]) -> anyhow::Result<()> {
        let mut names = vec!["kubernetes.default.svc".to_owned(), "localhost".to_owned()];
        names.extend(addresses.iter().map(IpAddr::to_string));
        let params = CertificateParams::new(names)?;
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        self.sign("server", &self.cluster, params, "kube-apiserver", &[], server)
    }

    fn renew_front_proxy(&self) -> anyhow::Result<()> {
        self.speaker("front-proxy-client").map(drop)
    }

    /// A user by certificate, in two groups at most.
    pub(crate) fn user(&self, name: &str, groups: &[&str]) -> anyhow::Result<Pair> {
        let params = CertificateParams::default();
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        self.sign(name, &self.cluster, params, name, groups, client)?;
        Ok(self.pair(name))
    }

    /// A certificate of the front proxies' authority, in whatever name.
    pub(crate) fn speaker(&self, name: &str) -> anyhow::Result<Pair> {
        let params = CertificateParams::default();
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        self.sign(name, &self.front_proxy, params, name, &[], client)?;
        Ok(self.pair(name))
    }

    /// A user by the certificate of an authority that nobody knows.
    pub(crate) fn stranger(&self, name: &str, groups: &[&str]) -> anyhow::Result<Pair> {
        let nobody = authority("nobody")?;
        let params = CertificateParams::default();
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        let file = format!("{name}-of-nobody");
        self.sign(&file, &nobody, params, name, groups, client)?;
        Ok(self.pair(&file))
    }

    fn pair(&self, name: &str) -> Pair {
        let file = |ending| self.folder.join(format!("{name}.{ending}"));
        Pair { certificate: file("crt"), key: file("key") }
    }

    fn sign(
        &self,
        file: &str,
        authority: &Authority,
        mut params: CertificateParams,
        name: &str,
        groups: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> anyhow::Result<()> {
        params.distinguished_name = rcgen::DistinguishedName::new();
        // A name holds each type of entry once; by its number, O is another type.
        let organisation = DnType::CustomDnType(vec![2, 5, 4, 10]);
        for (group, entry) in groups.iter().zip([DnType::OrganizationName, organisation]) {
            params.distinguished_name.push(entry, *group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, authority)?;
        let pair = self.pair(file);
        fs::write(&pair.certificate, certificate.pem())
            .with_context(|| format!("cannot write {:?}", pair.certificate))?;
        fs::write(&pair.key, key.serialize_pem())?;
        Ok(())
    }
}

fn authority(name: &str) -> anyhow::Result<Authority> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}
