//! Judgements of certificates that a test CA issues.

use std::time::Duration;

use testkit::certificates::{Ca, FRONT_PROXY_NAME, Pair, SERVER_NAME};

use super::*;

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + NOW
}

fn file(pem: &str) -> CertificateFile {
    use rustls_pki_types::pem::PemObject;
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
    CertificateFile {
        key: "file",
        path: "file.crt".into(),
        pem: pem.as_bytes().to_vec(),
        certificates: certificates.collect::<Result<_, _>>().unwrap(),
    }
}

fn chain(pair: &Pair) -> CertificateFile {
    file(&pair.certificate)
}

fn leaf() -> testkit::certificates::Leaf {
    testkit::certificates::Leaf::named(FRONT_PROXY_NAME)
}

#[test]
fn dates_fail_or_warn() {
    let now = unix_seconds(now());
    let found = |from: i64, until: i64| {
        dated((now + from, now + until), now).map(|finding| (finding.fatal, finding.what))
    };
    assert_eq!(found(-DAY, 31 * DAY), None);
    assert_eq!(found(-DAY, 29 * DAY), Some((false, "it expires in 29 days".to_owned())));
    assert_eq!(found(-DAY, 7200), Some((false, "it expires in 2 hours".to_owned())));
    assert_eq!(found(-9 * DAY, -2 * DAY), Some((true, "it expired 2 days ago".to_owned())));
    let (fatal, what) = found(3 * DAY, 9 * DAY).unwrap();
    assert!(fatal && what.contains("not valid yet, for another 3 days"), "{what}");
}

#[test]
fn usages_are_told_apart() {
    let ca = Ca::new("ca");
    let [servers, clients, any] =
        [leaf().for_servers(), leaf().for_clients(), leaf()].map(|leaf| chain(&ca.issue(leaf)));
    assert_eq!(usage(&servers, Purpose::Server), None);
    assert_eq!(usage(&clients, Purpose::Client), None);
    assert_eq!(usage(&any, Purpose::Server), None);
    assert!(usage(&servers, Purpose::Client).unwrap().what.contains("clientAuth"));
    assert!(usage(&clients, Purpose::Server).unwrap().what.contains("serverAuth"));
}

#[test]
fn issuers_are_judged_whatever_the_dates() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let old = leaf().valid((2000, 1, 1), (2001, 1, 1));
    for issued in [leaf(), old] {
        let issued = chain(&ca.intermediate("between").issue(issued));
        assert_eq!(server_issuer(&issued, &file(ca.pem())), None);
        assert_eq!(client_issuer(&issued, &file(ca.pem())), None);
        let found = server_issuer(&issued, &file(other.pem())).unwrap();
        assert!(found.what.contains("its issuer is \"CN=between\""), "{}", found.what);
        assert!(client_issuer(&issued, &file(other.pem())).is_some());
    }
    // A wrong usage is a finding of its own, and hides the issuer.
    let clients = chain(&ca.issue(leaf().for_clients()));
    assert_eq!(server_issuer(&clients, &file(ca.pem())), None);
}

#[test]
fn serving_names() {
    let ca = Ca::new("ca");
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let good = chain(&ca.server(&[SERVER_NAME, "10.0.0.1"]));
    assert_eq!(server_names(&good, &[ip("10.0.0.1")], true), []);
    let found = server_names(&good, &[ip("10.0.0.1"), ip("fd00::1")], true);
    assert_eq!(found.len(), 1);
    assert!(!found[0].fatal && found[0].what.contains("fd00::1"), "{found:?}");
    let nameless = chain(&ca.server(&["localhost"]));
    assert!(server_names(&nameless, &[], true)[0].fatal, "peers verify the name");
    assert!(!server_names(&nameless, &[], false)[0].fatal, "there are no peers");
}

#[test]
fn front_proxies_are_allowed_by_name_and_are_no_users() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let proxy = chain(&ca.issue(leaf().for_clients()));
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(allowed(&proxy, &names(&[])), None);
    assert_eq!(allowed(&proxy, &names(&[""])), None, "an empty name allows all, as no name does");
    assert_eq!(allowed(&proxy, &names(&["x", FRONT_PROXY_NAME])), None);
    let found = allowed(&proxy, &names(&["x"])).unwrap();
    assert!(found.what.contains("\"front-proxy-client\" is not in"), "{}", found.what);
    assert_eq!(user(&proxy, &file(other.pem()), UnixTime::now()), None);
    let found = user(&proxy, &file(ca.pem()), UnixTime::now()).unwrap();
    assert!(found.what.contains("user \"front-proxy-client\""), "{}", found.what);
}

#[test]
fn a_bundle_has_cas() {
    let ca = Ca::new("ca");
    assert_eq!(authorities(&file(ca.pem()), now()), []);
    let both = format!("{}{}", ca.pem(), ca.server(&[SERVER_NAME]).certificate);
    let found = authorities(&file(&both), now());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].aspect, Aspect::Authority);
}
