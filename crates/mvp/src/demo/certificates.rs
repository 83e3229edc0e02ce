//! The certificates of the demo's cluster, created at each start. Entry: [`Certificates`].

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// The certificates of the cluster and its clients, as PEM.
pub(super) struct Certificates {
    /// The CA of servers and users.
    pub(super) ca: String,
    /// The CA of front proxies, which may act for users.
    pub(super) front_proxy_ca: String,
    /// The serving certificate of every server.
    pub(super) server: Pair,
    /// The client certificate between servers.
    pub(super) proxy: Pair,
    /// The client certificate of a user.
    pub(super) admin: Pair,
    /// The client certificate of controllers.
    pub(super) controller: Pair,
}

/// A certificate and its key, as PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Certificates {
    pub(super) fn new() -> anyhow::Result<Certificates> {
        Certificates::make().context("cannot create the certificates of the demo")
    }

    fn make() -> Result<Certificates, rcgen::Error> {
        let ca = authority("mvp-demo-ca")?;
        let front_proxy_ca = authority("mvp-demo-front-proxy-ca")?;
        let server_names = ["kubernetes.default.svc", "localhost", "127.0.0.1"];
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        Ok(Certificates {
            server: leaf(&ca, "kube-apiserver", None, &server_names, server)?,
            proxy: leaf(&front_proxy_ca, "front-proxy-client", None, &[], client.clone())?,
            admin: leaf(&ca, "demo-admin", Some("system:masters"), &[], client.clone())?,
            controller: leaf(&ca, CONTROLLER, Some("system:controllers"), &[], client)?,
            ca: ca.pem(),
            front_proxy_ca: front_proxy_ca.pem(),
        })
    }
}

/// The user of controllers, as in real clusters.
const CONTROLLER: &str = "system:kube-controller-manager";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn leaf(
    authority: &Authority,
    name: &str,
    group: Option<&str>,
    server_names: &[&str],
    usage: ExtendedKeyUsagePurpose,
) -> Result<Pair, rcgen::Error> {
    let names: Vec<String> = server_names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = named(name, group);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn named(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    if let Some(group) = group {
        distinguished.push(DnType::OrganizationName, group);
    }
    distinguished.push(DnType::CommonName, name);
    distinguished
}
