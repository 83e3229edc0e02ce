//! What is known of a caller, and the headers that servers receive.

use http::HeaderValue;
use http::header::HeaderName;
use mvp_net::CertificateUser;

use super::*;

fn user(name: &'static str, groups: &[&'static str]) -> User {
    User {
        name: Some(HeaderValue::from_static(name)),
        groups: groups.iter().copied().map(HeaderValue::from_static).collect(),
        ..User::default()
    }
}

fn identity(name: &'static str, groups: &[&'static str]) -> Identity {
    Identity::User(Arc::new(user(name, groups)))
}

/// The headers as text, sorted.
fn written(identity: &Identity, names: &RemoteHeaders) -> Vec<String> {
    let mut headers = HeaderMap::new();
    identity.write(&mut headers, names);
    let text =
        |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    let mut headers: Vec<String> = headers.iter().map(text).collect();
    headers.sort();
    headers
}

fn custom() -> RemoteHeaders {
    let names =
        |names: &[&'static str]| names.iter().copied().map(HeaderName::from_static).collect();
    RemoteHeaders {
        username: names(&["x-my-user", "x-other-user"]),
        group: names(&["x-my-group"]),
        uid: names(&["x-my-uid"]),
        extra_prefix: vec!["x-my-extra-".to_owned()],
    }
}

#[test]
fn servers_treat_some_named_users_as_unauthenticated() {
    let authenticated = ["system:authenticated"];
    for (caller, expected) in [
        (identity("alice", &authenticated), false),
        (identity("system:anonymous", &authenticated), true),
        (identity("alice", &["developers", "system:unauthenticated"]), true),
        (identity("system:anonymous", &["system:unauthenticated"]), true),
        // They have no name.
        (Identity::Token, false),
        (Identity::Anonymous, false),
        (Identity::System, false),
    ] {
        assert_eq!(caller.is_unauthenticated(), expected, "{caller:?}");
    }
}

#[test]
fn a_gateway_is_the_user_of_gateways_without_a_credential_of_its_own() {
    let groups = ["system:authenticated"];
    let with_credential = User {
        extra: vec![(HeaderName::from_static("x-remote-extra-a"), HeaderValue::from_static("b"))],
        ..user("system:apiserver", &groups)
    };
    for (caller, expected) in [
        (Identity::System, true),
        (identity("system:apiserver", &groups), true),
        (Identity::User(Arc::new(with_credential)), false),
        (identity("system:apiserver", &["system:masters"]), false),
        (identity("alice", &groups), false),
        (Identity::Token, false),
        (Identity::Anonymous, false),
    ] {
        assert_eq!(caller.is_gateway(), expected, "{caller:?}");
    }
}

#[test]
fn only_users_are_known_to_be_in_a_group() {
    let wanted = ["system:masters", "system:monitoring"];
    for (caller, expected) in [
        (identity("alice", &["developers", "system:monitoring"]), true),
        (identity("alice", &["system:masters"]), true),
        (identity("alice", &["developers"]), false),
        (identity("system:masters", &[]), false),
        (Identity::Token, false),
        (Identity::Anonymous, false),
        (Identity::System, false),
    ] {
        assert_eq!(caller.is_of(&wanted), expected, "{caller:?}");
    }
}

/// A request with the name of its user travels on our certificate, and no other request does.
#[test]
fn those_whom_headers_name_need_our_certificate() {
    for (caller, expected) in [
        (identity("alice", &[]), true),
        (Identity::System, true),
        (Identity::Token, false),
        (Identity::Anonymous, false),
    ] {
        assert_eq!(caller.needs_certificate(), expected, "{caller:?}");
        let is_named = !written(&caller, &RemoteHeaders::default()).is_empty();
        assert_eq!(is_named, expected, "{caller:?}");
    }
}

#[test]
fn a_user_is_written_under_the_first_name_of_each_header() {
    let extra = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let alice = Identity::User(Arc::new(User {
        uid: Some(HeaderValue::from_static("7")),
        extra: vec![extra("x-remote-extra-team", "red"), extra("x-remote-extra-team", "blue")],
        ..user("alice", &["one", "two"])
    }));
    assert_eq!(
        written(&alice, &RemoteHeaders::default()),
        [
            "x-remote-extra-team: blue",
            "x-remote-extra-team: red",
            "x-remote-group: one",
            "x-remote-group: two",
            "x-remote-uid: 7",
            "x-remote-user: alice",
        ]
    );
    assert_eq!(
        written(&alice, &custom()),
        [
            "x-my-extra-team: blue",
            "x-my-extra-team: red",
            "x-my-group: one",
            "x-my-group: two",
            "x-my-uid: 7",
            "x-my-user: alice",
        ]
    );
    assert_eq!(
        written(&Identity::System, &RemoteHeaders::default()),
        ["x-remote-group: system:authenticated", "x-remote-user: system:apiserver"]
    );
}

/// kube-apiserver adds this group to all users that it authenticates itself.
#[test]
fn the_user_of_a_certificate_is_authenticated_once() {
    for (groups, expected) in [
        (vec![], vec!["system:authenticated"]),
        (vec!["developers"], vec!["developers", "system:authenticated"]),
        (vec!["system:authenticated", "b"], vec!["system:authenticated", "b"]),
    ] {
        let user = User::from_certificate(&CertificateUser {
            name: "alice".to_owned(),
            groups: groups.into_iter().map(str::to_owned).collect(),
            uid: None,
            credential_id: "X509SHA256=0".to_owned(),
        });
        assert_eq!(user.unwrap().groups, expected);
    }
}

#[test]
fn headers_of_front_proxies_are_reserved_in_every_spelling() {
    let (usual, custom) = (RemoteHeaders::default(), custom());
    for (name, of_usual, of_custom) in [
        ("x-remote-user", true, true),
        ("X_Remote-GROUP", true, true),
        // Whatever servers may read some day.
        ("x-remote-", true, true),
        ("x-remote-else", true, true),
        ("x-remote", false, false),
        ("x-kubernetes-peer-proxied", true, true),
        ("X_KUBERNETES_PEER_PROXIED", true, true),
        ("x-kubernetes-peer-proxied-by", false, false),
        ("x-my-user", false, true),
        ("x_other_user", false, true),
        ("x-my-user-agent", false, false),
        ("X-My-Extra-Team", false, true),
        ("accept", false, false),
    ] {
        assert_eq!(usual.reserves(name), of_usual, "{name}");
        assert_eq!(custom.reserves(name), of_custom, "{name}");
    }
    for (prefix, of_usual, of_custom) in [
        ("x-remote-", true, true),
        ("X-Remote-Extra-", true, true),
        ("x-my-extra-", false, true),
        ("x_my_extra_more-", false, true),
        ("x-my-", false, false),
        ("x-", false, false),
        ("", false, false),
    ] {
        assert_eq!(usual.reserves_all_of(prefix), of_usual, "{prefix}");
        assert_eq!(custom.reserves_all_of(prefix), of_custom, "{prefix}");
    }
}
