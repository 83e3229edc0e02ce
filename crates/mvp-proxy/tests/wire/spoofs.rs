//! What only gateways and front proxies may say, said by others: it reaches no server, however it
//! is written.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Frame;
use mvp_proxy::RemoteHeaders;
use testkit::certificates::Pair;

use crate::client::{BOTH, Client, Protocol, ask, get, raw, request, streamed, with};
use crate::pki::pki;
use crate::world::{BARE, LOCAL, MVP, World};

/// Names as they are written in HTTP/1.1; in HTTP/2 they are in lower case.
const NAMES: [&str; 14] = [
    "X-Remote-User",
    "x-remote-user",
    "X-REMOTE-USER",
    "X_Remote_User",
    "x-remote_user",
    "X-Remote-Group",
    "x_remote_group",
    "X-Remote-Uid",
    "X_Remote-UID",
    "X-Remote-Extra-Foo",
    "X-REMOTE-EXTRA-Foo",
    "x_remote_extra_foo",
    "X-Remote-Extra-Authentication.kubernetes.io%2fCredential-Id",
    "X-Remote-",
];

fn callers() -> [(Option<&'static Pair>, Option<&'static str>); 4] {
    [
        (None, None),
        (None, Some("Bearer of-carol")),
        (Some(&pki().alice), None),
        (Some(&pki().stranger), Some("Bearer of-carol")),
    ]
}

/// Nothing of what was marked so arrived anywhere.
fn assert_nothing_spoofed(world: &World, expected: usize) {
    let arrived = world.arrived();
    assert_eq!(arrived.len(), expected);
    for seen in arrived {
        for map in [&seen.headers, &seen.trailers.clone().unwrap_or_default()] {
            for (name, value) in map {
                assert!(!value.to_str().unwrap().contains("spoofed"), "{name} in {seen:?}");
            }
        }
    }
}

#[tokio::test]
async fn spoofed_http1_headers_are_removed() {
    let world = World::start().await;
    for (who, token) in callers() {
        for path in [LOCAL, BARE, MVP] {
            let mut text = format!("GET {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n");
            for name in NAMES {
                text += &format!("{name}: spoofed\r\n{name}:  spoofed-again \r\n");
            }
            if let Some(token) = token {
                text += &format!("Authorization: {token}\r\n");
            }
            let answer = raw(world.gateway.address, who, format!("{text}\r\n").as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    assert_nothing_spoofed(&world, 4 * (3 + 1));
}

#[tokio::test]
async fn spoofed_http2_headers_are_removed() {
    let world = World::start().await;
    for (who, token) in callers() {
        for path in [LOCAL, BARE, MVP] {
            let mut request = get(path);
            for name in NAMES {
                let name: HeaderName = name.parse().unwrap();
                request.headers_mut().append(name.clone(), HeaderValue::from_static("spoofed"));
                request.headers_mut().append(name, HeaderValue::from_static("spoofed"));
            }
            if let Some(token) = token {
                request = with(request, "authorization", token);
            }
            let answer = ask(world.gateway.address, Protocol::Http2, who, request).await;
            assert_eq!(answer.status, StatusCode::OK);
        }
    }
    assert_nothing_spoofed(&world, 4 * (3 + 1));
}

#[tokio::test]
async fn identity_headers_named_in_connection_are_removed() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: gateway\r\nX-Remote-User: spoofed\r\n\
             Connection: close, X-Remote-User, x-remote-group, X-Remote-Uid, \
             x-kubernetes-peer-proxied, x-remote-extra-authentication.kubernetes.io%2fcredential-id\r\n\r\n"
        );
        let answer = raw(world.gateway.address, Some(&pki().alice), text.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // What we say ourselves is not touched by it.
        let seen = world.server(path).requests.only(path);
        assert_eq!(seen.all("x-remote-user"), ["alice"]);
        assert_eq!(seen.all("x-remote-uid"), ["uid-of-alice"]);
        assert!(seen.all("x-remote-group").contains(&"developers"));
        if path != LOCAL {
            assert_eq!(seen.all("x-kubernetes-peer-proxied"), ["true"]);
        }
    }
    assert_nothing_spoofed(&world, 4);
}

#[tokio::test]
async fn a_token_named_in_connection_is_not_sent_anonymously_on_shared_connections() {
    let world = World::start().await;
    for path in [LOCAL, BARE] {
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer of-carol\r\n\
             Connection: close, authorization\r\n\r\n"
        );
        raw(world.gateway.address, None, text.as_bytes()).await;
        let seen = world.server(path).requests.only(path);
        // With the token, or without it where nobody else's requests travel.
        let nameless = seen.header("authorization").is_none();
        assert!(!nameless || seen.version == http::Version::HTTP_11, "{seen:?}");
    }
}

/// An authenticating proxy adds who its client is, and may pass on the `Connection` of that client.
/// Whoever takes such a header away makes the client the proxy. kube-apiserver does not.
#[tokio::test]
async fn a_client_of_a_front_proxy_cannot_remove_its_identity_headers() {
    let world = World::start().await;
    let proxy = Some(&pki().proxy);
    let cases = [
        (Some(&pki().alice), "Impersonate-User: dave", "impersonate-user", ""),
        (None, "Impersonate-Group: few", "impersonate-group", "Authorization: Bearer of-proxy\r\n"),
        (proxy, "X-Remote-User: dave", "x-remote-user", "Authorization: Bearer of-proxy\r\n"),
        (proxy, "X-Remote-User: dave", "x-remote-user", ""),
    ];
    for (index, (who, header, name, token)) in cases.into_iter().enumerate() {
        for path in [LOCAL, BARE, MVP] {
            let path = format!("{path}?{index}");
            let text = format!(
                "GET {path} HTTP/1.1\r\nHost: gateway\r\n{header}\r\n{token}\
                 Connection: close, {name}\r\n\r\n"
            );
            raw(world.gateway.address, who, text.as_bytes()).await;
            // Refused, or with the name; never without it.
            for seen in world.server(&path).requests.of(&path) {
                let value = header.split(": ").nth(1).unwrap();
                assert_eq!(seen.all(name), [value], "{seen:?}");
            }
        }
    }
}

#[tokio::test]
async fn spoofed_trailers_are_removed() {
    for headers in [RemoteHeaders::default(), custom()] {
        let world = World::with(|plan| plan.headers(headers)).await;
        let mut expected = 0;
        for protocol in BOTH {
            for (who, token) in callers() {
                for path in [LOCAL, BARE, MVP] {
                    let (sender, body) = streamed();
                    let mut request = request(Method::POST, path, body);
                    if let Some(token) = token {
                        request = with(request, "authorization", token);
                    }
                    let announced = "x-remote-user, x_remote_group, x-kubernetes-peer-proxied, x-my-user, x-fine";
                    let request = with(request, "trailer", announced);
                    let mut client = Client::connect(world.gateway.address, protocol, who).await;
                    let sending = async {
                        sender.send(Frame::data(Bytes::from_static(b"{}"))).await.unwrap();
                        sender.send(Frame::trailers(trailers())).await.unwrap();
                        drop(sender);
                    };
                    let (_, answer) = tokio::join!(sending, client.send(request));
                    assert!(answer.status.is_client_error(), "{}", answer.text());
                    let seen = world.server(path).requests.of(path).pop().unwrap();
                    let fine = seen.trailers.as_ref().and_then(|trailers| trailers.get("x-fine"));
                    assert_eq!(fine.unwrap(), "fine", "{seen:?}");
                    expected += if path == MVP { 2 } else { 1 };
                }
            }
        }
        assert_nothing_spoofed(&world, expected);
    }
}

fn custom() -> RemoteHeaders {
    let username = vec![HeaderName::from_static("x-my-user")];
    RemoteHeaders { username, ..RemoteHeaders::default() }
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let value = HeaderValue::from_static("spoofed");
    for name in ["x-remote-user", "x_remote_group", "x-kubernetes-peer-proxied"] {
        trailers.append(name, value.clone());
        trailers.append(name, value.clone());
    }
    trailers.insert("x-fine", HeaderValue::from_static("fine"));
    trailers
}

#[tokio::test]
async fn configured_identity_headers_are_removed_in_every_spelling() {
    let world = World::with(|plan| plan.headers(custom())).await;
    for path in [LOCAL, BARE] {
        let text = format!(
            "POST {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nX-My-User: spoofed\r\n\
             X_MY_USER: spoofed\r\nx-my_user: spoofed\r\nTrailer: X-My-User\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nX-My-User: spoofed\r\n\r\n"
        );
        raw(world.gateway.address, None, text.as_bytes()).await;
    }
    assert_nothing_spoofed(&world, 2);
}

#[tokio::test]
async fn a_peer_mark_without_its_certificate_only_prevents_proxying() {
    let world = World::start().await;
    for (who, token) in callers() {
        for protocol in BOTH {
            let marked = |path: &str| {
                let mut request = with(get(path), "x-kubernetes-peer-proxied", "true");
                if let Some(token) = token {
                    request = with(request, "authorization", token);
                }
                request
            };
            let before = world.local.requests.of(LOCAL).len();
            let answer = ask(world.gateway.address, protocol, who, marked(LOCAL)).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(world.local.requests.of(LOCAL).len(), before + 1);
            for path in [BARE, MVP] {
                ask(world.gateway.address, protocol, who, marked(path)).await.assert_refusal();
            }
        }
    }
    for path in [BARE, MVP] {
        assert!(world.bare.requests.of(path).is_empty());
        assert!(world.behind.requests.of(path).is_empty());
    }
    for seen in world.arrived() {
        assert_eq!(seen.header("x-kubernetes-peer-proxied"), None);
    }
    let odd = with(get(BARE), "x_kubernetes_peer_proxied", "spoofed");
    ask(world.gateway.address, BOTH[0], None, odd).await;
    assert_eq!(world.bare.requests.only(BARE).header("x_kubernetes_peer_proxied"), None);
}
