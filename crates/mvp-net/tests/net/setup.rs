//! What is wrong with certificates and keys is said.

use mvp_net::{ClientTls, ClientTrust, TlsError, server_config};
use testkit::certificates::Ca;

const DAMAGED: &str = "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n";
const NOT_X509: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
const NOT_A_KEY: &str = "-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n";

fn trust() -> ClientTrust {
    ClientTrust::new(None, None, Vec::new()).unwrap()
}

/// The same complaint of both directions.
fn pair(certificate: &str, key: &str) -> TlsError {
    let server = server_config(certificate.as_bytes(), key.as_bytes(), &trust()).unwrap_err();
    let roots = Ca::new("servers");
    let identity = Some((certificate.as_bytes(), key.as_bytes()));
    let client = ClientTls::new(roots.pem().as_bytes(), identity).unwrap_err();
    assert_eq!(server.to_string(), client.to_string());
    server
}

#[test]
fn certificate_and_key() {
    let (one, other) = (Ca::new("ca").server(&["localhost"]), Ca::new("ca").server(&["localhost"]));
    assert!(server_config(one.certificate.as_bytes(), one.key.as_bytes(), &trust()).is_ok());
    assert!(matches!(pair(&one.certificate, &other.key), TlsError::KeyMismatch));
    for no_certificate in ["", "garbage", &one.key] {
        assert!(matches!(pair(no_certificate, &one.key), TlsError::NoCertificate));
    }
    for no_key in ["", "garbage", &one.certificate] {
        assert!(matches!(pair(&one.certificate, no_key), TlsError::NoPrivateKey));
    }
    assert!(matches!(pair(DAMAGED, &one.key), TlsError::BadPem(_)));
    assert!(matches!(pair(NOT_X509, &one.key), TlsError::BadCertificate(_)));
    assert!(matches!(pair(&one.certificate, NOT_A_KEY), TlsError::BadPrivateKey(_)));
}

#[test]
fn ca_bundles() {
    let ca = Ca::new("ca");
    let good = ca.pem();
    let bundle = |pem: &str| {
        let client = ClientTrust::new(Some(pem.as_bytes()), None, Vec::new()).unwrap_err();
        let front_proxy = ClientTrust::new(None, Some(pem.as_bytes()), Vec::new()).unwrap_err();
        let roots = ClientTls::new(pem.as_bytes(), None).unwrap_err();
        assert_eq!(client.to_string(), front_proxy.to_string());
        assert_eq!(client.to_string(), roots.to_string());
        client
    };
    assert!(matches!(bundle(""), TlsError::EmptyCaBundle));
    assert!(matches!(bundle("garbage"), TlsError::EmptyCaBundle));
    assert!(matches!(bundle(&format!("{good}{DAMAGED}")), TlsError::BadPem(_)));
    let second = bundle(&format!("{good}{NOT_X509}"));
    assert!(matches!(second, TlsError::BadCa { position: 2, .. }), "{second}");
}

#[test]
fn text_around_the_pem_is_fine() {
    let ca = Ca::new("ca");
    let good = ca.pem();
    let pem = format!("# the cluster's CA\n\n{good}\n# end\n");
    assert!(ClientTrust::new(Some(pem.as_bytes()), None, Vec::new()).is_ok());
}
