//! Certificates that must not be accepted, of clients and of servers, and chains that are made to be
//! expensive.

use std::sync::Arc;

use mvp_net::{ClientTls, Limits};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use testkit::certificates::{Attribute, Ca, KeyKind, Leaf, Pair, SERVER_NAME, cn, o};
use tokio::io::duplex;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::protocols::presenting;
use crate::support::{Gateway, H1, get, http1, soon};

const LINKS: usize = 100;
/// As many as fit into a handshake.
const PATHS: usize = 30;

fn jane() -> Leaf {
    Leaf::named("jane").for_clients()
}

/// A CA under this many others.
fn below(ca: &Ca, links: usize) -> Ca {
    let mut last = ca.intermediate("link");
    for _ in 1..links {
        last = last.intermediate("link");
    }
    last
}

/// What it is, the certificate, and the user whom it proves.
fn clients(ca: &Ca) -> Vec<(&'static str, Pair, Option<&'static str>)> {
    let masters: Vec<Attribute> = vec![cn("jane"), o("system:masters")];
    let keyed = |kind| ca.issue(jane().with_key(kind));
    vec![
        ("expired", ca.issue(jane().valid((2020, 1, 1), (2021, 1, 1))), None),
        ("not yet valid", ca.issue(jane().valid((2090, 1, 1), (2091, 1, 1))), None),
        ("for servers", ca.issue(Leaf::named("jane").for_servers()), None),
        ("self-signed", Pair::self_signed(&["jane"]), None),
        ("another CA of that name", Ca::new("clients").client(&masters), None),
        ("P-384", keyed(KeyKind::P384), Some("jane")),
        ("P-521", keyed(KeyKind::P521), Some("jane")),
        ("Ed25519", keyed(KeyKind::Ed25519), Some("jane")),
        ("RSA", keyed(KeyKind::Rsa2048), Some("jane")),
        ("two intermediates", below(ca, 2).issue(jane()), Some("jane")),
        ("a chain of 20", below(ca, 20).issue(jane()), None),
    ]
}

#[tokio::test]
async fn no_client_is_who_its_certificate_does_not_prove() {
    let gateway = Gateway::start(Limits::default());
    for (name, pair, user) in clients(&gateway.authorities.clients) {
        let info = gateway.info_of(Some(&pair)).await;
        let judgement = info.judgement();
        assert!(judgement.presented && !judgement.front_proxy, "{name}");
        let proved = judgement.user.as_ref().map(|user| user.as_ref().unwrap().name.as_str());
        assert_eq!(proved, user, "{name}");
    }
}

/// All of them have the same name and key, so that each could be the issuer of each.
#[tokio::test]
async fn a_chain_with_very_many_paths_is_given_up() {
    let gateway = Gateway::start(Limits::default());
    let stranger = Ca::new("link");
    let mut pair = stranger.issue(jane());
    for _ in 0..PATHS {
        pair.certificate += stranger.renewed("link").pem();
    }
    let info = gateway.info_of(Some(&pair)).await;
    assert!(info.judgement().user.is_none());
    assert_eq!(info.certificates().len(), PATHS + 1);
}

/// A certificate of a megabyte, a thousand of them, and a chain of 100: more than TLS takes.
#[tokio::test]
async fn a_huge_certificate_proves_nobody_and_harms_nobody() {
    let gateway = Gateway::start(Limits::default());
    let authorities = &gateway.authorities;
    let names: Vec<String> = (0..40_000).map(|n| format!("name-{n}.example.com")).collect();
    let huge = authorities.clients.issue(jane().names(&names));
    let mut many = authorities.clients.issue(jane());
    many.certificate += &authorities.clients.pem().repeat(1000);
    let long = below(&authorities.clients, LINKS).issue(jane());
    for pair in [huge, many, long] {
        for version in [&TLS12, &TLS13] {
            let identity = Some((pair.chain(), pair.key.as_str()));
            let config = presenting(authorities, identity, version, &[H1]);
            // With TLS 1.3 the client learns of it after its own handshake.
            if let Ok(stream) = soon(gateway.try_connect(config)).await {
                let mut sender = http1(stream).await;
                if soon(sender.send_request(get("/"))).await.is_ok() {
                    assert!(gateway.info("/").judgement().user.is_none());
                }
            }
        }
    }
    gateway.info_of(None).await;
}

/// What it is, the certificate, and whether our client accepts it.
fn servers(ca: &Ca) -> Vec<(&'static str, Pair, bool)> {
    let server = || Leaf::named(SERVER_NAME).names(&[SERVER_NAME]).for_servers();
    let named = |names: &[&str]| ca.server(names);
    vec![
        ("good", ca.issue(server()), true),
        ("Ed25519", ca.issue(server().with_key(KeyKind::Ed25519)), true),
        ("RSA", ca.issue(server().with_key(KeyKind::Rsa2048)), true),
        ("two intermediates", below(ca, 2).issue(server()), true),
        ("expired", ca.issue(server().valid((2020, 1, 1), (2021, 1, 1))), false),
        ("not yet valid", ca.issue(server().valid((2090, 1, 1), (2091, 1, 1))), false),
        (
            "for clients",
            ca.issue(Leaf::named(SERVER_NAME).names(&[SERVER_NAME]).for_clients()),
            false,
        ),
        ("another name", named(&["kubernetes.default"]), false),
        ("a suffix of the name", named(&["svc"]), false),
        ("a longer name", named(&["kubernetes.default.svc.evil.example"]), false),
        ("a wildcard for two labels", named(&["*.svc"]), false),
        ("an address", named(&["127.0.0.1"]), false),
        (
            "the name as a common name alone",
            ca.issue(Leaf::named(SERVER_NAME).for_servers()),
            false,
        ),
        ("self-signed", Pair::self_signed(&[SERVER_NAME]), false),
        ("another CA of that name", Ca::new("servers").server(&[SERVER_NAME]), false),
        ("version 1", ca.issue(Leaf::named(SERVER_NAME).of_version_1()), false),
        ("a critical extension", ca.issue(server().with_unknown_critical_extension()), false),
        ("a chain of 100", below(ca, LINKS).issue(server()), false),
    ]
}

#[tokio::test]
async fn no_server_is_trusted_without_its_name_ca_time_and_usage() {
    let ca = Ca::new("servers");
    let tls =
        ClientTls::new(ca.pem().as_bytes(), None).unwrap().explained("--peer-ca-file").unwrap();
    for (name, pair, good) in servers(&ca) {
        for version in [&TLS12, &TLS13] {
            let (near, far) = duplex(1 << 20);
            let server = TlsAcceptor::from(server(&pair, version));
            tokio::spawn(async move { server.accept(far).await.is_ok() });
            let client = TlsConnector::from(tls.config(&[H1]));
            let connected = client.connect(ServerName::try_from(SERVER_NAME).unwrap(), near);
            let connected = soon(connected).await;
            assert_eq!(connected.is_ok(), good, "{name}: {:?}", connected.err());
        }
    }
}

/// A server with any certificate.
fn server(pair: &Pair, version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
    let shown = rustls::sign::CertifiedKey::new(pair.chain(), key);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(shown)));
    Arc::new(config)
}
