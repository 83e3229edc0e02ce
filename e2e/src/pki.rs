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
    addresses: Vec<IpAddr>,
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
            addresses: addresses.to_vec(),
            cluster: authority("kubernetes")?,
            front_proxy: authority("front-proxy-ca")?,
        };
        replace(&pki.ca(), &pki.cluster.pem())?;
        replace(&pki.front_proxy_ca(), &pki.front_proxy.pem())?;
        let tokens = KeyPair::generate()?;
        fs::write(pki.service_accounts().key, tokens.serialize_pem())?;
        fs::write(pki.service_accounts().certificate, tokens.public_key_pem())?;
        pki.sign_servers()?;
        Ok(pki)
    }

    /// Takes new authorities, and trusts the old ones beside them.
    pub(crate) fn take_new_authorities(&mut self) -> anyhow::Result<()> {
        let (old, old_front_proxy) = (self.cluster.pem(), self.front_proxy.pem());
        self.cluster = authority("kubernetes-next")?;
        self.front_proxy = authority("front-proxy-ca-next")?;
        replace(&self.ca(), &format!("{old}{}", self.cluster.pem()))?;
        let both = format!("{old_front_proxy}{}", self.front_proxy.pem());
        replace(&self.front_proxy_ca(), &both)
    }

    /// Trusts the present authorities alone.
    pub(crate) fn drop_old_authorities(&self) -> anyhow::Result<()> {
        replace(&self.ca(), &self.cluster.pem())?;
        replace(&self.front_proxy_ca(), &self.front_proxy.pem())
    }

    /// The present authority of servers and users, as a file of its own.
    pub(crate) fn present_ca(&self) -> anyhow::Result<PathBuf> {
        let file = self.folder.join("present-ca.crt");
        replace(&file, &self.cluster.pem())?;
        Ok(file)
    }

    /// Signs what servers present to clients and to each other, anew.
    pub(crate) fn sign_servers(&self) -> anyhow::Result<()> {
        let mut names = vec!["kubernetes.default.svc".to_owned(), "localhost".to_owned()];
        names.extend(self.addresses.iter().map(IpAddr::to_string));
        let params = CertificateParams::new(names)?;
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        self.sign("server", &self.cluster, params, "kube-apiserver", &[], server)?;
        self.speaker("front-proxy-client").map(drop)
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

    /// The certificates and CAs of a gateway, as flags.
    pub(crate) fn gateway_flags(&self) -> Vec<String> {
        let (serving, proxy) = (self.server(), self.front_proxy());
        let (ca, front_proxy_ca) = (self.ca(), self.front_proxy_ca());
        let files = [
            ("tls-cert-file", &serving.certificate),
            ("tls-private-key-file", &serving.key),
            ("client-ca-file", &ca),
            ("peer-ca-file", &ca),
            ("requestheader-client-ca-file", &front_proxy_ca),
            ("proxy-client-cert-file", &proxy.certificate),
            ("proxy-client-key-file", &proxy.key),
        ];
        let mut flags: Vec<String> =
            files.iter().map(|(flag, file)| format!("--{flag}={}", file.display())).collect();
        flags.push("--requestheader-allowed-names=front-proxy-client".to_owned());
        flags
    }

    /// What an etcd presents, to clients and to itself: behind its JSON API is its own client, which
    /// may come by whichever of its listeners.
    pub(crate) fn etcd(&self) -> anyhow::Result<Pair> {
        let names: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        self.sign("etcd-server", &self.cluster, params, "etcd", &[], server)?;
        Ok(self.pair("etcd-server"))
    }

    /// What a server within the cluster presents, under the name of its Service.
    pub(crate) fn service(&self, namespace: &str, name: &str) -> anyhow::Result<Pair> {
        let params = CertificateParams::new(vec![format!("{name}.{namespace}.svc")])?;
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        self.sign(name, &self.cluster, params, name, &[], server)?;
        Ok(self.pair(name))
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
        params.extended_key_usages.push(usage);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, authority)?;
        let pair = self.pair(file);
        replace(&pair.certificate, &certificate.pem())?;
        replace(&pair.key, &key.serialize_pem())
    }
}

/// Puts a file in the place of another, whole.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let beside = file.with_extension("next");
    fs::write(&beside, text).with_context(|| format!("cannot write {beside:?}"))?;
    Ok(fs::rename(&beside, file)?)
}

fn authority(name: &str) -> anyhow::Result<Authority> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}
