//! The identity of the caller: the four rules, through the local server, a bare peer and a peer
//! with a gateway.

use std::convert::Infallible;

use http::header::AUTHORIZATION;
use http::{HeaderName, Method, Request, Response, StatusCode, Version};
use mvp_net::{ClientTrust, ConnectionInfo, UnixTime};
use mvp_proxy::{AuthenticateLayer, Body, Identity, RemoteHeaders};
use testkit::certificates::{FRONT_PROXY_NAME, Pair, cn, o, uid};
use tower::ServiceExt;
use tower_layer::Layer;

use crate::client::{BOTH, ask, get, with};
use crate::pki::pki;
use crate::record::Recorded;
use crate::world::{BARE, LOCAL, MVP, World};

const CREDENTIAL: &str = "x-remote-extra-authentication.kubernetes.io%2fcredential-id";

fn assert_vouched_for(seen: &Recorded, user: &str, groups: &[&str]) {
    assert!(seen.connection.front_proxy, "on the proxy certificate: {seen:?}");
    assert_eq!(seen.all("x-remote-user"), [user]);
    let mut said = seen.all("x-remote-group");
    said.sort_unstable();
    assert_eq!(said, groups);
    assert_eq!(seen.header("authorization"), None);
}

fn assert_speaks_for_itself(seen: &Recorded, token: Option<&str>) {
    let remote = seen.headers.keys().find(|name| name.as_str().starts_with("x-remote"));
    assert_eq!(remote, None);
    assert_eq!(seen.header("authorization"), token);
}

#[tokio::test]
async fn a_client_certificate_is_forwarded_as_x_remote_headers() {
    let world = World::start().await;
    let alice = &pki().alice;
    for protocol in BOTH {
        for path in [LOCAL, BARE, MVP] {
            let path = format!("{path}?by={protocol:?}");
            let request = with(get(&path), "authorization", "Bearer not-for-others");
            let answer = ask(world.gateway.address, protocol, Some(alice), request).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());

            let seen = world.server(&path).requests.only(&path);
            assert_vouched_for(&seen, "alice", &["developers", "system:authenticated"]);
            assert_eq!(seen.all("x-remote-uid"), ["uid-of-alice"]);
            assert_eq!(seen.all(CREDENTIAL), [alice.credential_id()]);
            if path.starts_with(MVP) {
                let between = world.mvp.requests.only(&path);
                assert_vouched_for(&between, "alice", &["developers", "system:authenticated"]);
                assert_eq!(between.all("x-kubernetes-peer-proxied"), ["true"]);
            }
        }
    }
}

#[tokio::test]
async fn a_front_proxy_names_the_user() {
    let world = World::start().await;
    for protocol in BOTH {
        for path in [LOCAL, BARE, MVP] {
            let path = format!("{path}?by={protocol:?}");
            let mut request = with(get(&path), "x-remote-user", "bob");
            for (name, value) in [
                ("x-remote-group", "one"),
                ("x-remote-group", "two"),
                ("x-remote-uid", "uid-of-bob"),
                ("x-remote-extra-scopes", "first"),
                ("x-remote-extra-scopes", "second"),
                ("x-remote-extra-example.com%2fkey", "value"),
                ("authorization", "Bearer of-the-front-proxy"),
            ] {
                request = with(request, name, value);
            }
            let answer = ask(world.gateway.address, protocol, Some(&pki().proxy), request).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            let seen = world.server(&path).requests.only(&path);
            assert_vouched_for(&seen, "bob", &["one", "two"]);
            assert_eq!(seen.all("x-remote-uid"), ["uid-of-bob"]);
            assert_eq!(seen.all("x-remote-extra-scopes"), ["first", "second"]);
            assert_eq!(seen.all("x-remote-extra-example.com%2fkey"), ["value"]);
        }
    }
}

/// The rules after the first: `who`, with or without a token, is identified as itself.
async fn passes_for_itself(who: Option<&Pair>, token: Option<&'static str>) {
    let world = World::start().await;
    for protocol in BOTH {
        for path in [LOCAL, BARE, MVP] {
            let path = format!("{path}?by={protocol:?}");
            let mut request = get(&path);
            if let Some(token) = token {
                request = with(request, "authorization", token);
            }
            let answer = ask(world.gateway.address, protocol, who, request).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());

            let seen = world.server(&path).requests.only(&path);
            assert_speaks_for_itself(&seen, token);
            assert!(!seen.connection.presented, "no certificate beside it: {seen:?}");
            // kube-apiserver ends HTTP/2 connections after requests without credentials.
            if token.is_none() {
                assert_eq!(seen.version, Version::HTTP_11, "{path}");
            }
            if path.starts_with(MVP) {
                let between = world.mvp.requests.only(&path);
                assert_speaks_for_itself(&between, token);
                assert!(between.connection.front_proxy, "known for a peer: {between:?}");
                assert_eq!(between.all("x-kubernetes-peer-proxied"), ["true"]);
            }
        }
    }
}

#[tokio::test]
async fn a_bearer_token_is_forwarded_unchanged() {
    passes_for_itself(None, Some("Bearer of-carol")).await;
}

#[tokio::test]
async fn a_front_proxy_without_remote_user_may_send_a_token() {
    passes_for_itself(Some(&pki().proxy), Some("Bearer of-carol")).await;
}

#[tokio::test]
async fn a_token_is_used_beside_an_untrusted_certificate() {
    passes_for_itself(Some(&pki().stranger), Some("Bearer of-carol")).await;
}

#[tokio::test]
async fn an_anonymous_request_is_forwarded_without_credentials() {
    passes_for_itself(None, None).await;
}

#[tokio::test]
async fn a_client_certificate_without_a_common_name_may_come_with_a_token() {
    let nameless = pki().clients.client(&[o("system:masters")]);
    passes_for_itself(Some(&nameless), Some("Bearer of-carol")).await;
}

/// Go accepts any UTF-8 in a header value, and kube-apiserver takes it for the user's name.
#[tokio::test]
async fn names_beyond_ascii_are_forwarded_as_utf_8() {
    let world = World::start().await;
    let who = pki().clients.client(&[cn("jörg"), o("Ärzte"), uid("名")]);
    for protocol in BOTH {
        for path in [LOCAL, BARE, MVP] {
            let path = format!("{path}?by={protocol:?}");
            let answer = ask(world.gateway.address, protocol, Some(&who), get(&path)).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
            let seen = world.server(&path).requests.only(&path);
            assert_eq!(seen.headers["x-remote-user"].as_bytes(), "jörg".as_bytes());
            assert_eq!(seen.headers["x-remote-group"].as_bytes(), "Ärzte".as_bytes());
            assert_eq!(seen.headers["x-remote-uid"].as_bytes(), "名".as_bytes());
        }
    }
}

#[tokio::test]
async fn a_certificate_that_identifies_nobody_is_401_without_a_token() {
    let world = World::start().await;
    // The CA of front proxies, but not an allowed name.
    let pretender = pki().front_proxies.client(&[cn("somebody"), o("system:masters")]);
    // kube-apiserver asks both CAs, and the other one rejects these.
    let nameless = pki().clients.client(&[o("system:masters")]);
    let proxy = &pki().proxy;
    for protocol in BOTH {
        for who in [&pki().stranger, &pretender, &nameless, proxy] {
            for path in [LOCAL, BARE, "/healthz", "/apis"] {
                let remote_user = if std::ptr::eq(who, proxy) { "" } else { "admin" };
                let request = with(get(path), "x-remote-user", remote_user);
                let answer = ask(world.gateway.address, protocol, Some(who), request).await;
                assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
                assert_eq!(answer.headers["content-type"], "application/json");
                let status = answer.json();
                assert_eq!(status["kind"], "Status");
                assert_eq!(status["reason"], "Unauthorized");
                assert_eq!(status["message"], "Unauthorized");
                assert_eq!(status["code"], 401);
            }
        }
    }
    assert!(world.arrived().is_empty());
}

#[tokio::test]
async fn certificate_names_unsafe_in_headers_are_401() {
    let world = World::start().await;
    for subject in [
        vec![cn(" alice")],
        vec![cn("alice ")],
        vec![cn("alice"), o(" system:masters")],
        vec![cn("alice"), o("system:masters ")],
        vec![cn("alice"), uid(" 1")],
        vec![cn("al\u{7f}ice")],
        vec![cn("alice\r\nX-Remote-Group: system:masters")],
        vec![cn("alice"), o("a\tb")],
    ] {
        let who = pki().clients.client(&subject);
        for token in [false, true] {
            let mut request = get(LOCAL);
            if token {
                request = with(request, "authorization", "Bearer of-carol");
            }
            let answer = ask(world.gateway.address, BOTH[1], Some(&who), request).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{subject:?}");
        }
    }
    assert!(world.arrived().is_empty());
}

#[tokio::test]
async fn front_proxy_headers_are_configurable() {
    let names =
        |names: &[&'static str]| names.iter().copied().map(HeaderName::from_static).collect();
    let headers = RemoteHeaders {
        username: names(&["x-my-user", "x-other-user"]),
        group: names(&["x-my-group"]),
        uid: names(&["x-my-uid"]),
        extra_prefix: vec!["x-my-extra-".to_owned()],
    };
    let world = World::with_headers(headers).await;
    let custom = |path: &str| {
        let mut request = get(path);
        for (name, value) in [
            ("x-other-user", "other"),
            ("x-my-user", "bob"),
            ("x-my-group", "one"),
            ("x-my-uid", "7"),
            ("x-my-extra-team", "red"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
        ] {
            request = with(request, name, value);
        }
        request
    };
    for path in [LOCAL, BARE, MVP] {
        let by_proxy = format!("{path}?proxy");
        let proxy = Some(&pki().proxy);
        ask(world.gateway.address, BOTH[1], proxy, custom(&by_proxy)).await;
        let seen = world.server(path).requests.only(&by_proxy);
        assert!(seen.connection.front_proxy, "on the proxy certificate: {seen:?}");
        assert_eq!(seen.all("x-my-user"), ["bob"]);
        assert_eq!(seen.all("x-my-group"), ["one"]);
        assert_eq!(seen.all("x-my-uid"), ["7"]);
        assert_eq!(seen.all("x-my-extra-team"), ["red"]);
        let usual = seen.headers.keys().find(|name| name.as_str().starts_with("x-remote-"));
        assert_eq!(usual, None, "{seen:?}");

        let by_token = format!("{path}?token");
        let request = with(custom(&by_token), "authorization", "Bearer of-carol");
        ask(world.gateway.address, BOTH[1], None, request).await;
        let seen = world.server(path).requests.only(&by_token);
        assert_speaks_for_itself(&seen, Some("Bearer of-carol"));
        let mine =
            |name: &&HeaderName| name.as_str().starts_with("x-my-") || *name == "x-other-user";
        assert_eq!(seen.headers.keys().find(mine), None, "{seen:?}");
    }
}

#[tokio::test]
async fn impersonation_headers_are_forwarded_to_the_server() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        let mut request = get(path);
        for (name, value) in [
            ("impersonate-user", "dave"),
            ("impersonate-group", "one"),
            ("impersonate-group", "two"),
            ("impersonate-uid", "9"),
            ("impersonate-extra-scopes", "s"),
        ] {
            request = with(request, name, value);
        }
        *request.method_mut() = Method::GET;
        ask(world.gateway.address, BOTH[0], Some(&pki().alice), request).await;
        let seen = world.server(path).requests.only(path);
        assert_eq!(seen.all("impersonate-user"), ["dave"]);
        assert_eq!(seen.all("impersonate-group"), ["one", "two"]);
        assert_eq!(seen.all("impersonate-uid"), ["9"]);
        assert_eq!(seen.all("impersonate-extra-scopes"), ["s"]);
        assert_eq!(seen.all("x-remote-user"), ["alice"]);
        assert!(!seen.headers.contains_key(AUTHORIZATION));
    }
}

/// If one CA signs users and proxies, the certificate of a peer also names a user.
#[tokio::test]
async fn a_peer_certificate_never_identifies_the_caller() {
    let shared = &pki().clients;
    let pair = shared.client(&[cn(FRONT_PROXY_NAME), o("system:masters")]);
    let ca = Some(shared.pem().as_bytes());
    let trust = ClientTrust::new(ca, ca, vec![FRONT_PROXY_NAME.to_owned()]).unwrap();
    let chain = pair.chain();
    let judgement = trust.judge(&chain, UnixTime::now());
    assert!(judgement.front_proxy && judgement.user.is_some(), "{judgement:?}");
    let connection = ConnectionInfo::new(([127, 0, 0, 1], 1).into(), chain, judgement);

    let identity_of = async |headers: &[(&'static str, &'static str)]| {
        let mut request = with(get(LOCAL), "host", "gateway");
        for (name, value) in headers {
            request = with(request, name, value);
        }
        request.extensions_mut().insert(connection.clone());
        let seen = std::sync::Mutex::new(None);
        let inner = tower::service_fn(|request: Request<_>| {
            *seen.lock().unwrap() = request.extensions().get::<Identity>().cloned();
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())))
        });
        AuthenticateLayer::default().layer(inner).oneshot(request).await.unwrap();
        seen.into_inner().unwrap().unwrap()
    };
    let peer = ("x-kubernetes-peer-proxied", "true");
    assert!(matches!(identity_of(&[peer]).await, Identity::Anonymous));
    let token = ("authorization", "Bearer of-carol");
    assert!(matches!(identity_of(&[peer, token]).await, Identity::Token));
    // As in kube-apiserver: a front proxy without `X-Remote-User` is the user of its certificate.
    assert!(matches!(identity_of(&[]).await, Identity::User(_)));
    let Identity::User(user) = identity_of(&[peer, ("x-remote-user", "bob")]).await else {
        panic!("a peer names the user");
    };
    assert_eq!(user.name.as_ref().unwrap(), "bob");
}
