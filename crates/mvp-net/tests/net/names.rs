//! Certificates by server name, the lowest TLS version and the cipher suites, as clients meet them.

use std::net::SocketAddr;
use std::sync::Arc;

use mvp_net::{CipherSuites, Limits, ServerTls, SniCertificate, TlsError, TlsPolicy, TlsVersion};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, ClientConfig, ProtocolVersion, version};
use rustls_pki_types::ServerName;
use testkit::certificates::{Ca, Leaf, Pair, SERVER_NAME};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Gateway, soon};

/// The listener of a gateway with these certificates and this policy.
fn gateway(pairs: &[(&Pair, &[&str])], policy: &TlsPolicy) -> Gateway {
    let gateway = Gateway::start(Limits::default());
    gateway.tls.replace(tls(&gateway, pairs, policy).unwrap());
    gateway
}

fn tls(
    gateway: &Gateway,
    pairs: &[(&Pair, &[&str])],
    policy: &TlsPolicy,
) -> Result<ServerTls, TlsError> {
    let default = gateway.authorities.servers.server(&[SERVER_NAME]);
    let names: Vec<Vec<String>> =
        pairs.iter().map(|(_, names)| names.iter().map(ToString::to_string).collect()).collect();
    let more: Vec<SniCertificate<'_>> = pairs
        .iter()
        .zip(&names)
        .map(|((pair, _), names)| SniCertificate {
            certificate_pem: pair.pem().0,
            key_pem: pair.pem().1,
            names,
        })
        .collect();
    let (certificate, key) = default.pem();
    ServerTls::with(certificate, key, gateway.authorities.trust(), &more, policy)
}

/// What a client sees in a handshake.
struct Hello {
    version: ProtocolVersion,
    suite: CipherSuite,
    leaf: Vec<u8>,
}

async fn hello(
    gateway: &Gateway,
    name: &str,
    provider: CryptoProvider,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> std::io::Result<Hello> {
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    let stream = TcpStream::connect(gateway.address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = soon(TlsConnector::from(Arc::new(config)).connect(name, stream)).await?;
    let session = stream.get_ref().1;
    Ok(Hello {
        version: session.protocol_version().unwrap(),
        suite: session.negotiated_cipher_suite().unwrap().suite(),
        leaf: session.peer_certificates().unwrap()[0].to_vec(),
    })
}

const BOTH: &[&rustls::SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

const OLD: &[&rustls::SupportedProtocolVersion] = &[&version::TLS12];

async fn leaf(gateway: &Gateway, name: &str) -> Vec<u8> {
    hello(gateway, name, aws_lc_rs::default_provider(), BOTH).await.unwrap().leaf
}

#[tokio::test]
async fn the_certificate_is_that_of_the_name() {
    let ca = Ca::new("others");
    let own_names =
        ca.issue(Leaf::named("common.example").names(&["own.example", "*.own.example"]));
    let given = ca.server(&["ignored.example"]);
    let second = ca.server(&["own.example"]);
    let pairs: [(&Pair, &[&str]); 3] = [
        (&own_names, &[]),
        (&given, &["given.example", "*.given.example", "Exact.Own.example"]),
        // The first certificate wins between two that have a name themselves.
        (&second, &[]),
    ];
    let gateway = gateway(&pairs, &TlsPolicy::default());
    let default = leaf(&gateway, "nobody.example").await;
    let own = own_names.chain()[0].to_vec();
    let given = given.chain()[0].to_vec();
    assert!(default != own && default != given);
    for (name, expected) in [
        ("own.example", &own),
        ("OWN.example", &own),
        ("common.example", &own),
        ("a.own.example", &own),
        ("a.b.own.example", &default),
        ("given.example", &given),
        ("a.given.example", &given),
        ("exact.own.example", &given),
        ("ignored.example", &default),
        (SERVER_NAME, &default),
        // An address is not sent as a name.
        ("127.0.0.1", &default),
    ] {
        assert!(leaf(&gateway, name).await == *expected, "{name}");
    }
}

/// kube-apiserver: a name that a flag gives wins, whatever the order.
#[tokio::test]
async fn a_given_name_wins_over_that_of_an_earlier_certificate() {
    let ca = Ca::new("others");
    let (first, second) = (ca.server(&["both.example"]), ca.server(&["x.example"]));
    let pairs: [(&Pair, &[&str]); 2] = [(&first, &[]), (&second, &["both.example"])];
    let gateway = gateway(&pairs, &TlsPolicy::default());
    assert!(leaf(&gateway, "both.example").await == second.chain()[0].to_vec());
}

#[tokio::test]
async fn an_address_is_for_clients_without_a_name() {
    let ca = Ca::new("others");
    let pair = ca.server(&["x.example"]);
    let pairs: [(&Pair, &[&str]); 1] = [(&pair, &["127.0.0.1"])];
    let gateway = gateway(&pairs, &TlsPolicy::default());
    assert!(matches!(gateway.address, SocketAddr::V4(_)));
    let given = pair.chain()[0].to_vec();
    assert!(leaf(&gateway, "127.0.0.1").await == given);
    assert!(leaf(&gateway, SERVER_NAME).await != given);
    assert!(leaf(&gateway, "x.example").await != given);
}

#[tokio::test]
async fn certificates_of_names_are_replaced() {
    let ca = Ca::new("others");
    let (old, new) = (ca.server(&["x.example"]), ca.server(&["x.example"]));
    let gateway = gateway(&[(&old, &[])], &TlsPolicy::default());
    assert!(leaf(&gateway, "x.example").await == old.chain()[0].to_vec());
    gateway.tls.replace(tls(&gateway, &[(&new, &[])], &TlsPolicy::default()).unwrap());
    assert!(leaf(&gateway, "x.example").await == new.chain()[0].to_vec());
}

#[tokio::test]
async fn a_key_that_does_not_match_is_an_error() {
    let ca = Ca::new("others");
    let mut pair = ca.server(&["x.example"]);
    pair.key = ca.server(&["x.example"]).key;
    let gateway = Gateway::start(Limits::default());
    let error = tls(&gateway, &[(&pair, &[])], &TlsPolicy::default()).unwrap_err();
    assert!(matches!(error, TlsError::KeyMismatch), "{error}");
}

#[tokio::test]
async fn the_lowest_version_is_that_of_the_policy() {
    let provider = aws_lc_rs::default_provider;
    for (min_version, tls12) in [(TlsVersion::Tls12, true), (TlsVersion::Tls13, false)] {
        let gateway = gateway(&[], &TlsPolicy { min_version, ..TlsPolicy::default() });
        let old = hello(&gateway, SERVER_NAME, provider(), &[&version::TLS12]).await;
        assert_eq!(old.is_ok(), tls12, "{min_version:?}");
        let new = hello(&gateway, SERVER_NAME, provider(), BOTH).await.unwrap();
        assert_eq!(new.version, ProtocolVersion::TLSv1_3);
    }
}

#[tokio::test]
async fn only_the_cipher_suites_of_the_policy_are_offered() {
    let names = ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"];
    let suites = CipherSuites::named(names).unwrap();
    assert_eq!(suites.unavailable(), ["TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"]);
    let policy = TlsPolicy { cipher_suites: Some(suites), ..TlsPolicy::default() };
    let gateway = gateway(&[], &policy);
    let wanted = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let old = |keep: fn(CipherSuite) -> bool| {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|suite| keep(suite.suite()));
        hello(&gateway, SERVER_NAME, provider, OLD)
    };
    assert_eq!(old(|_| true).await.unwrap().suite, wanted);
    let others = |suite| suite != CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    assert!(old(others).await.is_err());
    // The suites of TLS 1.3 cannot be chosen, as in Go.
    let new = hello(&gateway, SERVER_NAME, aws_lc_rs::default_provider(), BOTH).await.unwrap();
    assert_eq!(new.version, ProtocolVersion::TLSv1_3);
}

#[test]
fn names_of_cipher_suites_are_those_of_go() {
    let named = |name: &str| CipherSuites::named([name]);
    for legacy in ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]
    {
        assert!(!named(legacy).unwrap().is_empty(), "{legacy}");
    }
    let new = named("TLS_AES_128_GCM_SHA256").unwrap();
    assert!(new.is_empty() && new.unavailable().is_empty());
    assert_eq!(named("TLS_RSA_WITH_AES_128_GCM_SHA256").unwrap().unavailable().len(), 1);
    for wrong in
        ["", "tls_aes_128_gcm_sha256", "ECDHE-RSA-AES128-GCM-SHA256", " TLS_AES_128_GCM_SHA256"]
    {
        assert_eq!(named(wrong).unwrap_err().0, wrong);
    }
}

/// Without a suite of TLS 1.2, the list means nothing unless TLS 1.3 is the lowest version.
#[tokio::test]
async fn a_list_without_a_usable_suite_is_an_error() {
    let gateway = Gateway::start(Limits::default());
    let cipher_suites = Some(CipherSuites::named(["TLS_RSA_WITH_AES_128_CBC_SHA"]).unwrap());
    let mut policy = TlsPolicy { cipher_suites, ..TlsPolicy::default() };
    let error = tls(&gateway, &[], &policy).unwrap_err();
    assert!(matches!(error, TlsError::NoCipherSuite), "{error}");
    policy.min_version = TlsVersion::Tls13;
    assert!(tls(&gateway, &[], &policy).is_ok());
}

/// Trusts every certificate: these tests are about which one is shown.
#[derive(Debug)]
struct Anyone;

impl rustls::client::danger::ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &mvp_net::CertificateDer<'_>,
        _: &[mvp_net::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: mvp_net::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &mvp_net::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, leaf, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &mvp_net::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, leaf, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
