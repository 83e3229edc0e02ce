//! The four rules, without a socket: every kind of certificate with every kind of request.

use mvp_net::{BadName, Judgement};
use testkit::certificates::{Ca, cn};

use super::*;
use crate::identity::Screen;

/// What the certificate of a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certificate {
    None,
    /// From a CA that nobody knows.
    Stranger,
    /// Of a front proxy or a peer.
    Proxy,
    /// Of the user `alice`.
    Alice,
    /// Of a user whose name cannot be sent in a header.
    Padded,
    /// Of a front proxy from a CA that also signs users: it names the user `alice`, too.
    Both,
    /// From the only CA, without a common name.
    Nameless,
}

use Certificate::{Alice, Both, Nameless, Padded, Proxy, Stranger};

/// As `ClientTrust` judges it. With two CAs, one of them rejects what the other one signed.
fn judgement(certificate: Certificate) -> Judgement {
    let user = CertificateUser {
        name: "alice".to_owned(),
        groups: vec!["developers".to_owned()],
        uid: None,
        credential_id: "X509SHA256=0".to_owned(),
    };
    let presented = Judgement { presented: true, ..Judgement::default() };
    let rejected = Judgement { rejected: true, ..presented.clone() };
    match certificate {
        Certificate::None => Judgement::default(),
        Stranger => rejected,
        Proxy => Judgement { front_proxy: true, ..rejected },
        Alice => Judgement { user: Some(Ok(user)), ..rejected },
        Padded => Judgement { user: Some(Err(BadName::Padded("common name"))), ..rejected },
        Both => Judgement { front_proxy: true, user: Some(Ok(user)), ..presented },
        Nameless => presented,
    }
}

/// The headers that a client sends.
type Sent = &'static [(&'static str, &'static str)];

const PEER: (&str, &str) = ("x-kubernetes-peer-proxied", "true");
const BOB: (&str, &str) = ("x-remote-user", "bob");
const NOBODY: (&str, &str) = ("x-remote-user", "");
const GROUP: (&str, &str) = ("x_remote_group", "system:masters");
const TOKEN: (&str, &str) = ("authorization", "Bearer of-carol");
const BASIC: (&str, &str) = ("authorization", "Basic x");
const UPGRADE: (&str, &str) = ("upgrade", "websocket");
const CONNECTION: (&str, &str) = ("connection", "upgrade");
const PROTOCOL: (&str, &str) =
    ("sec-websocket-protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r");
const NO_PROTOCOL: (&str, &str) =
    ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.");

/// A certificate, headers, and the caller: `bob` and `alice` by name, `token`, `anonymous`, or `401`.
type Row = (Certificate, Sent, &'static str, Origin);

const ROWS: &[Row] = &[
    (Certificate::None, &[], "anonymous", Origin::Client),
    (Certificate::None, &[BOB, GROUP], "anonymous", Origin::Client),
    (Certificate::None, &[TOKEN], "token", Origin::Client),
    (Certificate::None, &[BASIC], "anonymous", Origin::Client),
    (Certificate::None, &[PEER], "anonymous", Origin::Marked),
    (Certificate::None, &[PEER, BOB, TOKEN], "token", Origin::Marked),
    (Certificate::None, &[CONNECTION, UPGRADE, PROTOCOL], "token", Origin::Client),
    (Certificate::None, &[CONNECTION, UPGRADE, NO_PROTOCOL], "anonymous", Origin::Client),
    (Certificate::None, &[PROTOCOL], "anonymous", Origin::Client),
    (Certificate::None, &[CONNECTION, UPGRADE], "anonymous", Origin::Client),
    // Rule 4.
    (Stranger, &[], "401", Origin::Client),
    (Stranger, &[BOB, GROUP], "401", Origin::Client),
    (Stranger, &[BASIC], "401", Origin::Client),
    (Stranger, &[PEER], "401", Origin::Marked),
    (Stranger, &[TOKEN], "token", Origin::Client),
    (Stranger, &[PEER, TOKEN], "token", Origin::Marked),
    (Stranger, &[CONNECTION, UPGRADE, PROTOCOL], "token", Origin::Client),
    // Rule 1.
    (Proxy, &[BOB], "bob", Origin::Client),
    (Proxy, &[BOB, TOKEN], "bob", Origin::Client),
    (Proxy, &[BOB, PEER], "bob", Origin::Peer),
    (Proxy, &[NOBODY], "401", Origin::Client),
    (Proxy, &[], "401", Origin::Client),
    (Proxy, &[TOKEN], "token", Origin::Client),
    (Proxy, &[PEER], "anonymous", Origin::Peer),
    (Proxy, &[PEER, NOBODY], "anonymous", Origin::Peer),
    (Proxy, &[PEER, TOKEN], "token", Origin::Peer),
    // Rule 2.
    (Alice, &[], "alice", Origin::Client),
    (Alice, &[BOB, GROUP], "alice", Origin::Client),
    (Alice, &[TOKEN], "alice", Origin::Client),
    (Alice, &[PEER], "alice", Origin::Marked),
    (Padded, &[], "401", Origin::Client),
    (Padded, &[TOKEN], "401", Origin::Client),
    (Both, &[], "alice", Origin::Client),
    (Both, &[BOB], "bob", Origin::Client),
    (Both, &[PEER], "anonymous", Origin::Peer),
    (Both, &[PEER, TOKEN], "token", Origin::Peer),
    (Both, &[PEER, BOB], "bob", Origin::Peer),
    (Nameless, &[], "anonymous", Origin::Client),
    (Nameless, &[TOKEN], "token", Origin::Client),
    (Nameless, &[PEER], "anonymous", Origin::Marked),
];

#[test]
fn each_certificate_and_each_header_identifies_whom_the_rules_say() {
    let names = Screen::default().names();
    let chain = Ca::new("unknown").client(&[cn("somebody")]).chain();
    for (certificate, sent, caller, origin) in ROWS {
        let case = format!("{certificate:?} {sent:?}");
        let mut headers = HeaderMap::new();
        for (name, value) in *sent {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let chain = if *certificate == Certificate::None { Vec::new() } else { chain.clone() };
        let remote = ([127, 0, 0, 1], 1).into();
        let connection = ConnectionInfo::new(remote, chain, judgement(*certificate));
        let reserved =
            headers.keys().filter(|name| names.reserves(name.as_str())).cloned().collect();
        let untrusted = Untrusted::default();
        let result = authenticate(Some(&connection), &mut headers, &names, reserved, &untrusted);

        let found = match &result {
            Err(_) => "401",
            Ok((Identity::Token, _)) => "token",
            Ok((Identity::Anonymous, _)) => "anonymous",
            Ok((Identity::User(user), _)) => user.name.as_ref().unwrap().to_str().unwrap(),
            Ok((Identity::System, _)) => panic!("{case}"),
        };
        assert_eq!(found, *caller, "{case}");
        if let Ok((_, found)) = result {
            assert_eq!(found, *origin, "{case}");
        }
        // Nothing is left for a server to misread.
        assert!(!headers.keys().any(|name| names.reserves(name.as_str())), "{case}");
        let sends_token = sent.iter().any(|(name, _)| *name == "authorization");
        let is_user = ["alice", "bob"].contains(caller);
        if *caller != "401" {
            assert_eq!(headers.contains_key(AUTHORIZATION), sends_token && !is_user, "{case}");
        }
        // A peer that nobody trusts is reported even if a token identifies the caller.
        let is_unknown = matches!(certificate, Stranger | Nameless);
        let of_peer = is_unknown && *origin == Origin::Marked;
        let of_client = is_unknown && *origin == Origin::Client && *caller == "401";
        let expected = (usize::from(of_peer), usize::from(of_client));
        assert_eq!(untrusted.reported(), expected, "{case}");
    }
}

/// A layer that is asked in process: there is no connection, and no certificate.
#[test]
fn without_a_connection_only_a_token_identifies_the_caller() {
    let names = Screen::default().names();
    for (sent, is_token) in [(&[BOB] as Sent, false), (&[TOKEN], true)] {
        let mut headers: HeaderMap = sent
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let reserved =
            headers.keys().filter(|name| names.reserves(name.as_str())).cloned().collect();
        let untrusted = Untrusted::default();
        let (identity, origin) =
            authenticate(None, &mut headers, &names, reserved, &untrusted).unwrap();
        assert_eq!(matches!(identity, Identity::Token), is_token);
        assert_eq!(matches!(identity, Identity::Anonymous), !is_token);
        assert_eq!(origin, Origin::Client);
        assert!(!headers.contains_key("x-remote-user"));
    }
}

#[test]
fn the_user_of_a_certificate_is_made_once_for_a_connection() {
    let connection = ConnectionInfo::new(([127, 0, 0, 1], 1).into(), Vec::new(), judgement(Alice));
    let names = Screen::default().names();
    let user = || {
        let headers = &mut HeaderMap::new();
        let untrusted = Untrusted::default();
        match authenticate(Some(&connection), headers, &names, Vec::new(), &untrusted) {
            Ok((Identity::User(user), _)) => user,
            other => panic!("{other:?}"),
        }
    };
    assert!(Arc::ptr_eq(&user(), &user()));
}

/// As kube-apiserver splits the header.
#[test]
fn a_bearer_token_is_the_second_word() {
    for (header, token) in [
        ("Bearer abc", Some("abc")),
        ("bearer abc", Some("abc")),
        ("  BEARER abc  ", Some("abc")),
        ("Bearer abc def", Some("abc")),
        ("Bearer  abc", None),
        ("Bearer ", None),
        ("Bearer", None),
        ("Basic abc", None),
        ("abc", None),
        ("", None),
    ] {
        let value = HeaderValue::from_static(header);
        assert_eq!(bearer(&value), token.map(str::as_bytes), "{header:?}");
    }
}

/// Filters that run before authentication answer 4xx and 5xx, too.
#[test]
fn only_answers_from_behind_authentication_prove_a_token() {
    for status in [101, 200, 201, 204, 403, 404, 409, 410, 422] {
        assert!(proves_token(StatusCode::from_u16(status).unwrap()), "{status}");
    }
    for status in [301, 400, 401, 405, 413, 429, 431, 500, 502, 503, 504] {
        assert!(!proves_token(StatusCode::from_u16(status).unwrap()), "{status}");
    }
}
