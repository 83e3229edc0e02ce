//! Request lines and headers: byte for byte what is for the server, nothing of what is for one
//! connection, and the little that we add.

use http::{HeaderValue, Method, StatusCode};

use crate::client::{BOTH, Client, Protocol, ask, full, get, raw, request, with};
use crate::double::answer;
use crate::pki::pki;
use crate::world::{BARE, LOCAL, MVP, World};

const TARGETS: [&str; 14] = [
    "/apis/bare.example/v1/namespaces/default/things/a%2Fb?a=%zz&b=+%20&c=%2F",
    "/apis/bare.example/v1/namespaces/default/things/%E2%82%AC%41",
    "/apis/bare.example/v1/namespaces/default/things?",
    "/apis/bare.example/v1/namespaces/default/things?a=b?c=d&&;=",
    "/apis/bare.example/v1/namespaces/default/things/a:b@c!$&'()*+,=~",
    "/apis/bare.example/v1/namespaces/default/things?labelSelector=a%20in%20(b,c)&limit=500",
    "/apis/local.example/v1/namespaces/default/things/a%2fb?x=%00",
    "/apis/local.example/v1//namespaces/default//things",
    "//apis/local.example/v1/things",
    "/healthz//?verbose&a=%zz",
    "/logs/a/./b/../c",
    "/logs/..%2f..%2fetc",
    "/logs/a\"b{c}|d^e",
    "/version/?",
];

#[tokio::test]
async fn path_and_query_are_forwarded_byte_for_byte() {
    let world = World::start().await;
    let servers = [&world.local, &world.bare];
    for target in TARGETS {
        for (token, protocol) in
            [(true, BOTH[0]), (true, BOTH[1]), (false, BOTH[0]), (false, BOTH[1])]
        {
            let arrived = || {
                servers.map(|server| {
                    let of = server.requests.of(target);
                    of.iter().filter(|seen| seen.target == target).count()
                })
            };
            let before: usize = arrived().iter().sum();
            if protocol == Protocol::Http1 {
                let token = if token { "Authorization: Bearer of-carol\r\n" } else { "" };
                let text =
                    format!("GET {target} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n");
                raw(world.gateway.address, None, text.as_bytes()).await;
            } else {
                let mut request = get(target);
                if token {
                    request = with(request, "authorization", "Bearer of-carol");
                }
                ask(world.gateway.address, protocol, None, request).await;
            }
            let after: usize = arrived().iter().sum();
            assert_eq!(after, before + 1, "{target} over {protocol:?}");
        }
    }
}

#[tokio::test]
async fn options_asterisk_is_not_forwarded_as_root() {
    let world = World::start().await;
    let text = b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = raw(world.gateway.address, None, text).await;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    // What the root says is no answer to it.
    let of_the_root = world.local.requests.of("/");
    assert!(of_the_root.iter().all(|seen| seen.method != Method::OPTIONS), "{answer}");
}

#[tokio::test]
async fn hop_by_hop_request_headers_are_not_forwarded() {
    let world = World::start().await;
    let hop_by_hop = [
        "connection",
        "x-foo",
        "x-bar",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "upgrade",
    ];
    for path in [LOCAL, BARE, MVP] {
        for token in ["", "Authorization: Bearer of-carol\r\n"] {
            let path = format!("{path}?{}", token.len());
            let text = format!(
                "GET {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close, X-Foo\r\nconnection: x-bar,TE\r\n\
                 X-Foo: 1\r\nX-Bar: 2\r\nX-Kept: 3\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\n\
                 Proxy-Authorization: Basic x\r\nTE: deflate\r\n{token}\r\n"
            );
            raw(world.gateway.address, None, text.as_bytes()).await;
            let seen = world.server(&path).requests.only(&path);
            for name in hop_by_hop {
                assert_eq!(seen.header(name), None, "{name}");
            }
            assert_eq!(seen.header("x-kept"), Some("3"));
        }
    }
}

#[tokio::test]
async fn hop_by_hop_response_headers_are_not_forwarded() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        world.server(path).rule(path, |_| {
            let mut response = answer(StatusCode::OK, full("fine"));
            for (name, value) in [
                ("connection", "x-foo"),
                ("x-foo", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-connection", "close"),
                ("x-kept", "3"),
                ("warning", "299 - \"kept\""),
            ] {
                response.headers_mut().append(name, HeaderValue::from_static(value));
            }
            std::future::ready(response)
        });
        // Without credentials: HTTP/1.1 as far as the server, where such headers can be at all.
        let answer = ask(world.gateway.address, Protocol::Http2, None, get(path)).await;
        assert_eq!(answer.text(), "fine");
        assert_eq!(answer.headers["x-kept"], "3");
        assert_eq!(answer.headers["warning"], "299 - \"kept\"");
        for name in ["connection", "x-foo", "keep-alive", "proxy-connection", "transfer-encoding"] {
            assert_eq!(answer.headers.get(name), None, "{name}");
        }
    }
}

#[tokio::test]
async fn the_host_header_is_preserved() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        for token in ["", "Authorization: Bearer of-carol\r\n"] {
            let path = format!("{path}?{}", token.len());
            let text = format!(
                "GET {path} HTTP/1.1\r\nHost: api.example:8443\r\nConnection: close\r\n{token}\r\n"
            );
            raw(world.gateway.address, None, text.as_bytes()).await;
            assert_eq!(world.server(&path).requests.only(&path).host, "api.example:8443");
        }
    }
}

#[tokio::test]
async fn x_forwarded_for_is_appended() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        // Each gateway adds the address of whom it heard it from.
        let hops = if path == MVP { "127.0.0.1, 127.0.0.1" } else { "127.0.0.1" };
        for protocol in BOTH {
            let plain = format!("{path}?plain{protocol:?}");
            ask(world.gateway.address, protocol, None, get(&plain)).await;
            let seen = world.server(path).requests.only(&plain);
            assert_eq!(seen.all("x-forwarded-for"), [hops]);

            let chained = format!("{path}?chained{protocol:?}");
            let request = with(get(&chained), "x-forwarded-for", "10.0.0.1, 10.0.0.2");
            let request = with(request, "x-forwarded-for", "10.0.0.3");
            ask(world.gateway.address, protocol, None, request).await;
            let seen = world.server(path).requests.only(&chained);
            assert_eq!(
                seen.all("x-forwarded-for"),
                [format!("10.0.0.1, 10.0.0.2, 10.0.0.3, {hops}")]
            );
        }
    }
}

#[tokio::test]
async fn audit_id_is_kept_or_created() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        for protocol in BOTH {
            let fresh = format!("{path}?fresh{protocol:?}");
            ask(world.gateway.address, protocol, None, get(&fresh)).await;
            let seen = world.server(path).requests.only(&fresh);
            let id = seen.header("audit-id").unwrap();
            assert_eq!(id.len(), 36, "{id}");
            assert!(id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()), "{id}");
            if path == MVP {
                assert_eq!(world.mvp.requests.only(&fresh).header("audit-id"), Some(id));
            }

            let kept = format!("{path}?kept{protocol:?}");
            let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            let request = with(get(&kept), "audit-id", "mine");
            let request = with(request, "traceparent", trace);
            ask(world.gateway.address, protocol, Some(&pki().alice), request).await;
            let seen = world.server(path).requests.only(&kept);
            assert_eq!(seen.all("audit-id"), ["mine"]);
            assert_eq!(seen.all("traceparent"), [trace]);
        }
    }
}

#[tokio::test]
async fn head_returns_the_headers_of_get_without_a_body() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        world.server(path).rule(path, |_| {
            let mut response = answer(StatusCode::OK, full(""));
            response.headers_mut().insert("content-length", HeaderValue::from_static("1234"));
            std::future::ready(response)
        });
        for protocol in BOTH {
            let mut client =
                Client::connect(world.gateway.address, protocol, Some(&pki().alice)).await;
            let answer = client.send(request(Method::HEAD, path, full(""))).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(answer.headers["content-length"], "1234", "{path} {protocol:?}");
            assert!(answer.body.is_empty());
        }
    }
}
