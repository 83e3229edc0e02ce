//! What a chain proves, without a socket: time is an argument.

use std::time::Duration;

use mvp_net::{
    BadName, CertificateDer, CertificateUser, ClientTrust, Judgement, TlsError, UnixTime,
};
use testkit::certificates::{Attribute, Ca, Leaf, bmp_cn, cn, o, printable_cn, uid};

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// 2026-01-01.
fn now() -> UnixTime {
    at(1_767_225_600)
}

fn trust(client: &Ca, front_proxy: &Ca, names: &[&str]) -> ClientTrust {
    let names = names.iter().map(ToString::to_string).collect();
    ClientTrust::new(Some(client.pem().as_bytes()), Some(front_proxy.pem().as_bytes()), names)
        .unwrap()
}

/// The user that the client CA's certificate with `subject` names.
fn user(subject: &[Attribute]) -> Option<Result<CertificateUser, BadName>> {
    let ca = Ca::new("clients");
    let trust = ClientTrust::new(Some(ca.pem().as_bytes()), None, Vec::new()).unwrap();
    trust.judge(&ca.client(subject).chain(), now()).user
}

#[test]
fn no_certificate_proves_nothing() {
    let trust = trust(&Ca::new("clients"), &Ca::new("proxies"), &[]);
    assert_eq!(trust.judge(&[], now()), Judgement::default());
    assert!(!Judgement::default().presented);
}

#[test]
fn a_certificate_of_the_client_ca_names_a_user() {
    let ca = Ca::new("clients");
    let trust = trust(&ca, &Ca::new("proxies"), &["proxy"]);
    let pair = ca.client(&[cn("jane"), o("system:masters"), o("dev team"), uid("u-1")]);
    let judgement = trust.judge(&pair.chain(), now());
    assert!(judgement.presented);
    assert!(!judgement.front_proxy);
    assert_eq!(
        judgement.user,
        Some(Ok(CertificateUser {
            name: "jane".into(),
            groups: vec!["system:masters".into(), "dev team".into()],
            uid: Some("u-1".into()),
            credential_id: pair.credential_id(),
        }))
    );
}

#[test]
fn groups_and_uid_may_be_absent() {
    let user = user(&[cn("jane")]).unwrap().unwrap();
    assert_eq!((user.groups, user.uid), (vec![], None));
}

#[test]
fn the_last_common_name_counts_as_in_go() {
    assert_eq!(user(&[cn("first"), cn("last")]).unwrap().unwrap().name, "last");
    assert_eq!(user(&[cn("first"), cn("")]), None);
    let ca = Ca::new("proxies");
    let trust = trust(&Ca::new("clients"), &ca, &["first"]);
    let pair = ca.client(&[cn("first"), cn("last")]);
    assert!(!trust.judge(&pair.chain(), now()).front_proxy);
}

#[test]
fn a_name_that_a_header_would_change_is_refused() {
    let cases: &[(&[Attribute], BadName)] = &[
        (&[cn(" jane")], BadName::Padded("CN")),
        (&[cn("jane ")], BadName::Padded("CN")),
        (&[cn(" ")], BadName::Padded("CN")),
        (&[printable_cn("jane ")], BadName::Padded("CN")),
        (&[cn("jane"), o(" system:masters")], BadName::Padded("O")),
        (&[cn("jane"), o("ok"), o("system:masters ")], BadName::Padded("O")),
        (&[cn("jane"), uid("1 ")], BadName::Padded("UID")),
        (&[cn("jane\t")], BadName::Unsafe("CN")),
        (&[cn("jane\r\nX-Remote-User: root")], BadName::Unsafe("CN")),
        (&[cn("jane\0root")], BadName::Unsafe("CN")),
        (&[cn("jane\u{7f}")], BadName::Unsafe("CN")),
        (&[cn("jane"), uid("1\n")], BadName::Unsafe("UID")),
        (&[bmp_cn("jane\r\n")], BadName::Unsafe("CN")),
        (&[bmp_cn("jane ")], BadName::Padded("CN")),
        (&[cn("jane"), uid("")], BadName::EmptyUid),
    ];
    for (subject, expected) in cases {
        assert_eq!(user(subject), Some(Err(*expected)), "{subject:?}");
    }
}

#[test]
fn every_visible_character_and_inner_spaces_are_fine() {
    let visible: String = (b'!'..=b'~').map(char::from).collect();
    assert_eq!(user(&[cn(&visible)]).unwrap().unwrap().name, visible);
    assert_eq!(user(&[cn("jane  doe")]).unwrap().unwrap().name, "jane  doe");
}

/// Go accepts these in headers, and trims only spaces and tabs.
#[test]
fn names_beyond_ascii_are_kept() {
    for name in ["jörg", "\u{a0}jane", "Ωmega", "名前", "\u{1f600}", "system:\u{200b}masters"] {
        let user = user(&[cn(name), o(name), uid(name)]).unwrap().unwrap();
        assert_eq!((&*user.name, &*user.groups[0], user.uid.as_deref()), (name, name, Some(name)));
    }
    assert_eq!(user(&[bmp_cn("jörg")]).unwrap().unwrap().name, "jörg");
}

/// kube-apiserver asks both CAs: one that rejects the certificate makes the caller unauthorized, if
/// nothing else identifies the caller.
#[test]
fn a_certificate_that_one_of_the_cas_did_not_sign_is_rejected() {
    let (clients, proxies) = (Ca::new("c"), Ca::new("p"));
    let both = trust(&clients, &proxies, &["proxy"]);
    let only_clients = ClientTrust::new(Some(clients.pem().as_bytes()), None, vec![]).unwrap();
    let only_proxies = ClientTrust::new(None, Some(proxies.pem().as_bytes()), vec![]).unwrap();
    let rejected = |trust: &ClientTrust, ca: &Ca, name| {
        trust.judge(&ca.client(&[cn(name)]).chain(), now()).rejected
    };
    assert!(rejected(&both, &clients, ""));
    assert!(rejected(&both, &proxies, "proxy"));
    assert!(rejected(&both, &Ca::new("other"), "proxy"));
    assert!(!rejected(&only_clients, &clients, ""));
    assert!(!rejected(&only_proxies, &proxies, ""));
    assert!(rejected(&only_clients, &proxies, "proxy"));
    assert!(!both.judge(&[], now()).rejected, "there is no certificate");
}

#[test]
fn without_a_common_name_there_is_no_user() {
    assert_eq!(user(&[o("system:masters")]), None);
    assert_eq!(user(&[cn(""), o("system:masters")]), None);
    assert_eq!(user(&[]), None);
}

#[test]
fn a_front_proxy_needs_its_ca_and_its_name() {
    let (clients, proxies, strangers) = (Ca::new("c"), Ca::new("p"), Ca::new("p"));
    let named = trust(&clients, &proxies, &["front-proxy-client", "peer"]);
    let any = trust(&clients, &proxies, &[]);
    let judge = |trust: &ClientTrust, ca: &Ca, name| {
        trust.judge(&ca.client(&[cn(name)]).chain(), now()).front_proxy
    };
    assert!(judge(&named, &proxies, "front-proxy-client"));
    assert!(judge(&named, &proxies, "peer"));
    assert!(!judge(&named, &proxies, "other"));
    assert!(!judge(&named, &proxies, " peer"));
    assert!(!judge(&named, &clients, "peer"), "the client CA makes no front proxies");
    assert!(!judge(&named, &strangers, "peer"), "a CA of the same name is another CA");
    assert!(judge(&any, &proxies, "other"));
    assert!(judge(&any, &proxies, ""));
    let user = named.judge(&proxies.client(&[cn("peer")]).chain(), now()).user;
    assert_eq!(user, None, "the request-header CA names no users");
}

#[test]
fn an_intermediate_is_followed_only_when_it_is_shown() {
    let root = Ca::new("root");
    let trust = trust(&root, &Ca::new("p"), &[]);
    let pair = root.intermediate("middle").client(&[cn("jane")]);
    let shown = pair.chain();
    assert_eq!(shown.len(), 2);
    assert!(trust.judge(&shown, now()).user.unwrap().is_ok());
    assert_eq!(trust.judge(&shown[..1], now()).user, None);
}

#[test]
fn what_is_not_for_this_use_proves_nothing() {
    let ca = Ca::new("clients");
    let trust = trust(&ca, &Ca::new("p"), &[]);
    let jane = || Leaf::named("jane");
    for leaf in [jane().for_servers(), jane().for_clients().with_unknown_critical_extension()] {
        let judgement = trust.judge(&ca.issue(leaf).chain(), now());
        assert!(judgement.presented && judgement.user.is_none());
    }
    let garbage = CertificateDer::from(vec![1, 2, 3]);
    let judgement = trust.judge(&[garbage], now());
    assert!(judgement.presented && judgement.user.is_none() && !judgement.front_proxy);
}

#[test]
fn time_decides_and_the_judgement_says_until_when() {
    // 2020-01-01 00:00:00 and 2020-12-31 00:00:00.
    let (first, last) = (1_577_836_800, 1_609_372_800);
    let ca = Ca::new("clients");
    let trust = trust(&ca, &Ca::new("p"), &[]);
    let leaf = Leaf::named("jane").for_clients().valid((2020, 1, 1), (2020, 12, 31));
    let chain = ca.issue(leaf).chain();
    let judge = |seconds| {
        let judgement = trust.judge(&chain, at(seconds));
        (judgement.user.is_some(), judgement.valid_until.map(|until| until.as_secs()))
    };
    assert_eq!(judge(first - 1), (false, Some(first)));
    assert_eq!(judge(first), (true, Some(last + 1)));
    assert_eq!(judge(last), (true, Some(last + 1)));
    assert_eq!(judge(last + 1), (false, None));
}

#[test]
fn a_shared_ca_needs_names() {
    let (ca, other) = (Ca::new("shared"), Ca::new("other"));
    let bundle = format!("{}{}", other.pem(), ca.pem());
    let new = |names: &[&str]| {
        let names = names.iter().map(ToString::to_string).collect();
        ClientTrust::new(Some(bundle.as_bytes()), Some(ca.pem().as_bytes()), names)
    };
    let error = new(&[]).unwrap_err();
    assert!(matches!(error, TlsError::SharedCa));
    assert!(error.to_string().contains("allowed names"), "{error}");
    let trust = new(&["proxy"]).unwrap();
    let judge = |name| trust.judge(&ca.client(&[cn(name)]).chain(), now());
    assert!(judge("proxy").front_proxy);
    assert!(!judge("jane").front_proxy);
    assert!(judge("jane").user.is_some());
}

#[test]
fn a_renewed_ca_is_the_same_ca() {
    let ca = Ca::new("shared");
    let renewed = ca.renewed("shared");
    assert_ne!(ca.pem(), renewed.pem());
    let new = |other: &Ca| {
        ClientTrust::new(Some(ca.pem().as_bytes()), Some(other.pem().as_bytes()), Vec::new())
    };
    assert!(matches!(new(&renewed), Err(TlsError::SharedCa)));
    assert!(new(&Ca::new("shared")).is_ok(), "another key is another CA");
}
