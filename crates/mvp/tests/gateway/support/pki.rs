//! The certificates of a cluster, made once and written where the binary can read them.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use mvp_net::{ClientTls, ClientTrust, ServerTls};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

pub(crate) const SERVER_NAME: &str = "kubernetes.default.svc";
pub(crate) const PROXY: &str = "front-proxy-client";

pub(crate) static PKI: LazyLock<Pki> = LazyLock::new(Pki::new);

/// PEM texts, and the directory that holds them.
pub(crate) struct Pki {
    directory: PathBuf,
    server_ca: String,
    client_ca: String,
    proxy_ca: String,
    server: (String, String),
    user: (String, String),
}

pub(crate) type Ca = CertifiedIssuer<'static, KeyPair>;

impl Pki {
    fn new() -> Pki {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gateway-certificates");
        let directory = directory.join(std::process::id().to_string());
        fs::create_dir_all(&directory).unwrap();
        let [servers, clients, proxies] = ["servers", "clients", "proxies"].map(authority);
        let pki = Pki {
            server: issue(&servers, SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth),
            user: issue(&clients, "alice", ExtendedKeyUsagePurpose::ClientAuth),
            server_ca: servers.pem(),
            client_ca: clients.pem(),
            proxy_ca: proxies.pem(),
            directory,
        };
        let proxy = issue(&proxies, PROXY, ExtendedKeyUsagePurpose::ClientAuth);
        for (name, text) in [
            ("ca.crt", &pki.server_ca),
            ("client-ca.crt", &pki.client_ca),
            ("proxy-ca.crt", &pki.proxy_ca),
            ("server.crt", &pki.server.0),
            ("server.key", &pki.server.1),
            ("proxy.crt", &proxy.0),
            ("proxy.key", &proxy.1),
        ] {
            fs::write(pki.directory.join(name), text).unwrap();
        }
        pki
    }

    /// A flag and the file that it names.
    pub(crate) fn flag(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.directory.join(file).display())
    }

    /// What a server serves with, and whom it believes.
    pub(crate) fn server(&self) -> ServerTls {
        let (certificate, key) = &self.server;
        ServerTls::new(certificate.as_bytes(), key.as_bytes(), self.trust()).unwrap()
    }

    /// Whom a server believes.
    pub(crate) fn trust(&self) -> ClientTrust {
        let (clients, proxies) = (self.client_ca.as_bytes(), self.proxy_ca.as_bytes());
        ClientTrust::new(Some(clients), Some(proxies), vec![PROXY.to_owned()]).unwrap()
    }

    /// How a client connects, with the certificate of a user or with none.
    pub(crate) fn client(&self, as_user: bool, protocol: &[u8]) -> Arc<rustls::ClientConfig> {
        let (certificate, key) = &self.user;
        let user = as_user.then_some((certificate.as_bytes(), key.as_bytes()));
        ClientTls::new(self.server_ca.as_bytes(), user).unwrap().config(&[protocol])
    }
}

fn named(name: &str, alternatives: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(alternatives).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

pub(crate) fn authority(name: &str) -> Ca {
    let mut params = named(name, Vec::new());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub(crate) fn issue(ca: &Ca, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
    let server = usage == ExtendedKeyUsagePurpose::ServerAuth;
    let mut params = named(name, if server { vec![name.to_owned()] } else { Vec::new() });
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, ca).unwrap().pem(), key.serialize_pem())
}
