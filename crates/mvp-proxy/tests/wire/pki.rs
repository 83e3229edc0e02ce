//! Certificates of one cluster, made once for all tests. Entry: [`pki`].

use std::sync::OnceLock;

use mvp_net::{ClientTls, ClientTrust, ReloadableTls, ServerTls};
use mvp_proxy::OutboundTls;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// The name that every server's certificate is for.
pub const SERVER_NAME: &str = "kubernetes.default.svc";
/// The name of the proxy client certificate, the only one that front proxies may have.
pub const PROXY_NAME: &str = "front-proxy-client";

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
    /// What kube-apiserver makes of the certificate's bytes.
    pub credential_id: String,
}

pub struct Ca {
    params: CertificateParams,
    key: KeyPair,
    pub pem: String,
}

/// The authorities of a cluster, and one that nobody trusts.
pub struct Pki {
    pub servers: Ca,
    pub clients: Ca,
    pub front_proxies: Ca,
    server: Pair,
    /// The proxy client certificate.
    pub proxy: Pair,
    /// A user with a group and a UID.
    pub alice: Pair,
    /// A user whom no CA of the cluster vouches for.
    pub stranger: Pair,
}

/// The one of all tests.
pub fn pki() -> &'static Pki {
    static PKI: OnceLock<Pki> = OnceLock::new();
    PKI.get_or_init(|| {
        let servers = Ca::new("servers");
        let clients = Ca::new("clients");
        let front_proxies = Ca::new("front-proxies");
        Pki {
            server: servers.server(),
            proxy: front_proxies.client(&[cn(PROXY_NAME)]),
            alice: clients.client(&[cn("alice"), o("developers"), uid("uid-of-alice")]),
            stranger: Ca::new("strangers").client(&[cn("alice"), o("system:masters")]),
            servers,
            clients,
            front_proxies,
        }
    })
}

impl Pki {
    /// What every server of the cluster listens with.
    pub fn server_tls(&self) -> ReloadableTls {
        let trust = ClientTrust::new(
            Some(self.clients.pem.as_bytes()),
            Some(self.front_proxies.pem.as_bytes()),
            vec![PROXY_NAME.to_owned()],
        );
        let (certificate, key) = (self.server.certificate.as_bytes(), self.server.key.as_bytes());
        ReloadableTls::new(ServerTls::new(certificate, key, trust.unwrap()).unwrap())
    }

    /// What a client connects with.
    pub fn client_tls(&self, identity: Option<&Pair>) -> ClientTls {
        let identity = identity.map(|pair| (pair.certificate.as_bytes(), pair.key.as_bytes()));
        ClientTls::new(self.servers.pem.as_bytes(), identity).unwrap()
    }

    /// What a gateway sends with.
    pub fn outbound(&self) -> OutboundTls {
        OutboundTls {
            plain: self.client_tls(None),
            vouched: Some(self.client_tls(Some(&self.proxy))),
        }
    }
}

impl Ca {
    fn new(name: &str) -> Ca {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Ca { params, key, pem }
    }

    fn server(&self) -> Pair {
        let names = [SERVER_NAME.to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// A client certificate with this subject.
    pub fn client(&self, subject: &[(DnType, DnValue)]) -> Pair {
        let mut params = CertificateParams::new([]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).unwrap();
        Pair {
            certificate: leaf.pem(),
            key: key.serialize_pem(),
            credential_id: credential_id(leaf.der()),
        }
    }
}

fn credential_id(leaf: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(leaf);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("X509SHA256={hex}")
}

pub fn cn(value: &str) -> (DnType, DnValue) {
    (DnType::CommonName, DnValue::Utf8String(value.to_owned()))
}

pub fn o(value: &str) -> (DnType, DnValue) {
    (DnType::OrganizationName, DnValue::Utf8String(value.to_owned()))
}

pub fn uid(value: &str) -> (DnType, DnValue) {
    (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), DnValue::Utf8String(value.to_owned()))
}
