//! Client certificates of X.509 version 1, which kube-apiserver accepts.

use std::sync::Arc;
use std::time::Duration;

use mvp_net::{CertificateDer, CertificateUser, ClientTrust, Judgement, Limits, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};
use rustls_pki_types::pem::PemObject;
use testkit::certificates::{Ca, Leaf, cn, o, uid};

use crate::protocols::{only, presenting};
use crate::support::{Gateway, H1, get, http1, soon};

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// 2030-01-01.
fn now() -> UnixTime {
    at(1_893_456_000)
}

/// The judgement with `ca` as the client CA.
fn judge(ca: &str, chain: &[CertificateDer<'_>]) -> Judgement {
    ClientTrust::new(Some(ca.as_bytes()), None, Vec::new()).unwrap().judge(chain, now())
}

fn name(judgement: &Judgement) -> Option<&str> {
    judgement.user.as_ref().map(|user| user.as_ref().unwrap().name.as_str())
}

fn jane() -> Leaf {
    Leaf::new(&[cn("first"), o("dev"), cn("jane"), o("ops"), uid("u-1")])
}

/// Long enough for all lengths to take two bytes.
fn long() -> Leaf {
    Leaf::new(&[o(&"long".repeat(60)), cn("jane")])
}

/// The certificate `der` of version 3 with its version cut off, so that it is of version 1.
fn without_version(der: &[u8]) -> Vec<u8> {
    let (start, rest) = der.split_at(8);
    let rest = rest.strip_prefix(&[0xa0, 3, 2, 1, 2]).unwrap();
    let mut cut = [start, rest].concat();
    for length in [2, 6] {
        let value = u16::from_be_bytes([cut[length], cut[length + 1]]) - 5;
        cut[length..length + 2].copy_from_slice(&value.to_be_bytes());
    }
    cut
}

#[test]
fn the_user_is_that_of_version_3() {
    let ca = Ca::new("clients");
    let middle = ca.intermediate("middle");
    for issuer in [&ca, &middle] {
        for leaf in [jane(), jane().of_version_1(), jane().of_version_2()] {
            let pair = issuer.issue(leaf);
            let judgement = judge(ca.pem(), &pair.chain());
            let expected = CertificateUser {
                name: "jane".into(),
                groups: vec!["dev".into(), "ops".into()],
                uid: Some("u-1".into()),
                credential_id: pair.credential_id(),
            };
            assert_eq!(judgement.user, Some(Ok(expected)));
            assert!(!judgement.rejected);
        }
    }
    let alone = &middle.issue(jane().of_version_1()).chain()[..1];
    assert!(judge(ca.pem(), alone).rejected, "the intermediate is missing");
}

#[test]
fn a_front_proxy_needs_its_ca_and_its_name() {
    let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
    let (client, proxy) = (Some(clients.pem().as_bytes()), Some(proxies.pem().as_bytes()));
    let trust = ClientTrust::new(client, proxy, vec!["front-proxy-client".into()]).unwrap();
    let front_proxy = |ca: &Ca, name| {
        let judgement = trust.judge(&ca.issue(Leaf::named(name).of_version_1()).chain(), now());
        judgement.front_proxy
    };
    assert!(front_proxy(&proxies, "front-proxy-client"));
    assert!(!front_proxy(&proxies, "other"));
    assert!(!front_proxy(&clients, "front-proxy-client"));
    assert!(!front_proxy(&Ca::new("proxies"), "front-proxy-client"));
}

#[test]
fn time_decides() {
    // 2020-01-01 00:00:00 and 2020-12-31 00:00:00.
    let (first, last) = (1_577_836_800, 1_609_372_800);
    let ca = Ca::new("clients");
    let trust = ClientTrust::new(Some(ca.pem().as_bytes()), None, Vec::new()).unwrap();
    let chain = ca.issue(jane().valid((2020, 1, 1), (2020, 12, 31)).of_version_1()).chain();
    let judge = |seconds| {
        let judgement = trust.judge(&chain, at(seconds));
        (name(&judgement) == Some("jane"), judgement.valid_until.map(|until| until.as_secs()))
    };
    assert_eq!(judge(first - 1), (false, Some(first)));
    assert_eq!(judge(first), (true, Some(last + 1)));
    assert_eq!(judge(last), (true, Some(last + 1)));
    assert_eq!(judge(last + 1), (false, None));
}

#[test]
fn the_issuer_must_have_signed_these_bytes() {
    let ca = Ca::new("clients");
    let refused = |what: &str, der: Vec<u8>| {
        let judgement = judge(ca.pem(), &[CertificateDer::from(der)]);
        assert!(judgement.rejected && judgement.user.is_none(), "{what}");
    };
    let der = |ca: &Ca, leaf| ca.issue(leaf).chain()[0].to_vec();
    refused("another CA of the same name", der(&Ca::new("clients"), jane().of_version_1()));
    let mut changed = der(&ca, jane().of_version_1());
    *changed.last_mut().unwrap() ^= 1;
    refused("a changed signature", changed);
    let mut renamed = der(&ca, jane().of_version_1());
    let start = renamed.windows(4).position(|bytes| bytes == b"jane").unwrap();
    renamed[start..start + 4].copy_from_slice(b"root");
    refused("a changed name", renamed);
    let mut relabelled = der(&ca, jane().of_version_2());
    let start = relabelled.windows(5).position(|bytes| bytes == [0xa0, 3, 2, 1, 1]).unwrap();
    relabelled[start + 4] = 2;
    refused("version 2 as version 3", relabelled);
    refused("version 3 as version 1", without_version(&der(&ca, long())));
}

#[test]
fn what_is_not_strict_der_is_refused() {
    let ca = Ca::new("clients");
    let good = ca.issue(long().of_version_1()).chain()[0].to_vec();
    assert_eq!(name(&judge(ca.pem(), &[CertificateDer::from(good.clone())])), Some("jane"));
    let trailing = [&good[..], &[5, 0]].concat();
    let longer_header = [&[0x30, 0x83, 0], &good[2..]].concat();
    for der in [trailing, longer_header, good[..good.len() - 1].to_vec(), vec![0x30, 0]] {
        let judgement = judge(ca.pem(), &[CertificateDer::from(der)]);
        assert!(judgement.rejected && judgement.user.is_none());
    }
}

const OPENSSL_CA: &str = include_str!("openssl/ca.crt");
const OPENSSL_CA_OF_VERSION_1: &str = include_str!("openssl/ca-of-version-1.crt");
const OPENSSL_EVE_OF_JANE: &str = include_str!("openssl/eve-of-jane.crt");
const OPENSSL_JANE: &str = include_str!("openssl/jane.crt");
const OPENSSL_JANE_AS_A_CA: &str = include_str!("openssl/jane-as-a-ca.crt");
const OPENSSL_JANE_NOT_A_CA: &str = include_str!("openssl/jane-not-a-ca.crt");
const OPENSSL_JANE_OF_THAT_CA: &str = include_str!("openssl/jane-of-that-ca.crt");

/// As kube-apiserver: a CA of version 1 is trusted if it is in the bundle, never as an intermediate.
#[test]
fn certificates_of_openssl() {
    let (ca, old_ca) = (OPENSSL_CA, OPENSSL_CA_OF_VERSION_1);
    let (jane, eve) = (OPENSSL_JANE, OPENSSL_EVE_OF_JANE);
    let (not_a_ca, as_a_ca) = (OPENSSL_JANE_NOT_A_CA, OPENSSL_JANE_AS_A_CA);
    let cases: [(&str, &[&str], Option<&str>); 9] = [
        (ca, &[jane], Some("jane")),
        (ca, &[jane, ca], Some("jane")),
        (old_ca, &[OPENSSL_JANE_OF_THAT_CA], Some("jane")),
        (old_ca, &[OPENSSL_JANE_OF_THAT_CA, old_ca], Some("jane")),
        (old_ca, &[jane], None),
        (ca, &[eve], None),
        (ca, &[eve, jane], None),
        (ca, &[eve, not_a_ca], None),
        (ca, &[eve, as_a_ca], Some("eve")),
    ];
    for (index, (ca, chain, user)) in cases.into_iter().enumerate() {
        let der = |pem: &&str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let chain: Vec<_> = chain.iter().map(der).collect();
        let judgement = judge(ca, &chain);
        assert_eq!(name(&judgement), user, "case {index}");
        assert_eq!(judgement.rejected, user.is_none(), "case {index}");
    }
}

#[tokio::test]
async fn the_handshake_completes_and_a_session_is_resumed() {
    for version in [&TLS12, &TLS13] {
        let gateway = Gateway::start(Limits::default());
        let pair = gateway.authorities.clients.issue(jane().of_version_1());
        let config = only(&gateway.authorities, Some(&pair), version, &[H1]);
        for resumed in [false, true] {
            let stream = gateway.connect(Arc::clone(&config)).await;
            let kind = stream.get_ref().1.handshake_kind().unwrap();
            assert_eq!(kind == HandshakeKind::Resumed, resumed);
            soon(http1(stream).await.send_request(get("/"))).await.unwrap();
            let info = gateway.info("/");
            assert_eq!(name(info.judgement()), Some("jane"));
            assert_eq!(info.certificates(), pair.chain());
        }
        let stranger = gateway.authorities.strangers.issue(jane().of_version_1());
        let config = only(&gateway.authorities, Some(&stranger), version, &[H1]);
        assert!(is_served(&gateway, config).await);
        let info = gateway.info("/served");
        assert!(info.judgement().rejected && info.judgement().user.is_none());
    }
}

#[tokio::test]
async fn the_handshake_fails_without_the_key_and_if_the_certificate_is_malformed() {
    let gateway = Gateway::start(Limits::default());
    let clients = &gateway.authorities.clients;
    let good = clients.issue(jane().of_version_1());
    let other = clients.issue(jane().of_version_1());
    let extended = clients.issue(long().for_clients());
    let malformed = vec![CertificateDer::from(without_version(&extended.chain()[0]))];
    for version in [&TLS12, &TLS13] {
        let served = async |chain, key| {
            let identity = Some((chain, key));
            is_served(&gateway, presenting(&gateway.authorities, identity, version, &[H1])).await
        };
        assert!(served(good.chain(), &good.key).await);
        assert!(!served(good.chain(), &other.key).await, "another key");
        assert!(served(extended.chain(), &extended.key).await);
        assert!(!served(malformed.clone(), &extended.key).await, "version 1 has no extensions");
    }
}

/// With TLS 1.3 the client learns of a failed handshake only when it reads.
async fn is_served(gateway: &Gateway, config: Arc<ClientConfig>) -> bool {
    match soon(gateway.try_connect(config)).await {
        Err(_) => false,
        Ok(stream) => soon(http1(stream).await.send_request(get("/served"))).await.is_ok(),
    }
}
