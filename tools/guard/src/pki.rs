//! Certificates for one gateway, one server and one user.

use mvp_net::{ClientTls, ClientTrust, ServerTls};
use mvp_proxy::OutboundTls;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A certificate, the same as PEM, and its key.
struct Pair {
    der: CertificateDer<'static>,
    pem: String,
    key: String,
}

pub(crate) struct Pki {
    ca: String,
    front_proxy_ca: String,
    server: Pair,
    proxy: Pair,
    user: Pair,
}

impl Pki {
    pub(crate) fn new() -> anyhow::Result<Pki> {
        let (ca, front_proxy_ca) = (authority("kubernetes")?, authority("front-proxy-ca")?);
        Ok(Pki {
            server: leaf(&ca, "kube-apiserver", &["kubernetes.default.svc"])?,
            proxy: leaf(&front_proxy_ca, "front-proxy-client", &[])?,
            user: leaf(&ca, "system:kube-controller-manager", &[])?,
            ca: ca.pem(),
            front_proxy_ca: front_proxy_ca.pem(),
        })
    }

    pub(crate) fn trust(&self) -> anyhow::Result<ClientTrust> {
        let allowed = vec!["front-proxy-client".to_owned()];
        let (ca, front) = (self.ca.as_bytes(), self.front_proxy_ca.as_bytes());
        Ok(ClientTrust::new(Some(ca), Some(front), allowed)?)
    }

    pub(crate) fn server(&self) -> anyhow::Result<ServerTls> {
        let Pair { pem, key, .. } = &self.server;
        Ok(ServerTls::new(pem.as_bytes(), key.as_bytes(), self.trust()?)?)
    }

    pub(crate) fn outbound(&self) -> anyhow::Result<OutboundTls> {
        let proxy = (self.proxy.pem.as_bytes(), self.proxy.key.as_bytes());
        Ok(OutboundTls::new(self.ca.as_bytes(), Some(proxy))?)
    }

    pub(crate) fn user(&self) -> anyhow::Result<ClientTls> {
        let user = (self.user.pem.as_bytes(), self.user.key.as_bytes());
        Ok(ClientTls::new(self.ca.as_bytes(), Some(user))?)
    }

    pub(crate) fn user_chain(&self) -> anyhow::Result<Vec<CertificateDer<'static>>> {
        Ok(vec![self.user.der.clone()])
    }
}

fn authority(name: &str) -> anyhow::Result<Authority> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn leaf(authority: &Authority, name: &str, server_names: &[&str]) -> anyhow::Result<Pair> {
    let names: Vec<String> = server_names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = named(name);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    let (der, pem) = (certificate.der().clone(), certificate.pem());
    Ok(Pair { der, pem, key: key.serialize_pem() })
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
