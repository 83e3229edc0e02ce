//! Requests for an upgrade: who asks, who agrees, and what is never sent twice.

use http::{HeaderValue, Method, StatusCode, Version};
use testkit::certificates::Pair;

use crate::broken::{Front, Mode};
use crate::client::{BOTH, Client, Protocol, ask, full, get, request, with};
use crate::double::{Double, NOT_ROUTED};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::switched::{is_open, switching, try_tunnel, tunnel, websocket};
use crate::world::{BARE, LOCAL, MVP, World};

/// `of-carol`, as browsers send it.
const TOKEN_PROTOCOL: &str = "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.b2YtY2Fyb2w";

#[tokio::test]
async fn upgrades_carry_the_identity_of_the_caller() {
    let world = World::start().await;
    let alice = Some(&pki().alice);
    let stranger = Some(&pki().stranger);
    type Case = (&'static str, Option<&'static Pair>, Option<(&'static str, &'static str)>);
    let cases: [Case; 6] = [
        ("certificate", alice, Some(("authorization", "Bearer not-for-others"))),
        ("token", None, Some(("authorization", "Bearer of-carol"))),
        ("protocol", None, Some(("sec-websocket-protocol", TOKEN_PROTOCOL))),
        ("stranger-token", stranger, Some(("authorization", "Bearer of-carol"))),
        ("stranger-protocol", stranger, Some(("sec-websocket-protocol", TOKEN_PROTOCOL))),
        ("nobody", None, None),
    ];
    for path in [LOCAL, BARE, MVP] {
        let mut served = world.server(path).upgrades(path);
        for (case, who, credential) in cases {
            let path = format!("{path}?watch=1&by={case}");
            let mut asked = websocket(&path);
            if let Some((name, value)) = credential {
                asked = with(asked, name, value);
            }
            let (mut client, headers) = tunnel(world.gateway.address, who, asked).await;
            let mut server = served.next().await;
            is_open(&mut client, &mut server).await;
            assert_eq!(headers["upgrade"], "websocket");
            assert_eq!(headers["connection"], "Upgrade");
            assert_eq!(headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            assert_eq!(headers["sec-websocket-protocol"], "v5.channel.k8s.io");
            assert!(!headers.contains_key("keep-alive"));

            let seen = world.server(&path).requests.only(&path);
            assert_eq!(seen.version, Version::HTTP_11);
            assert_eq!(seen.all("upgrade"), ["websocket"]);
            assert_eq!(seen.all("connection"), ["Upgrade"]);
            assert_eq!(seen.all("sec-websocket-key"), ["dGhlIHNhbXBsZSBub25jZQ=="]);
            assert_eq!(seen.all("sec-websocket-version"), ["13"]);
            let between = path.starts_with(MVP).then(|| world.mvp.requests.only(&path));
            if let Some(between) = &between {
                assert!(between.connection.front_proxy, "known for a peer: {between:?}");
                assert_eq!(between.all("x-kubernetes-peer-proxied"), ["true"]);
                assert_eq!(between.version, Version::HTTP_11);
            }
            for seen in [Some(seen.clone()), between.clone()].into_iter().flatten() {
                if case == "certificate" {
                    assert!(seen.connection.front_proxy, "{seen:?}");
                    assert_eq!(seen.all("x-remote-user"), ["alice"]);
                    assert_eq!(seen.header("authorization"), None);
                    continue;
                }
                assert_eq!(seen.header("x-remote-user"), None);
                for name in ["authorization", "sec-websocket-protocol"] {
                    let sent = credential.filter(|sent| sent.0 == name).map(|sent| sent.1);
                    assert_eq!(seen.header(name), sent, "{case} at {path}");
                }
            }
            if case != "certificate" {
                assert!(!seen.connection.presented, "no certificate beside it: {seen:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_websocket_protocol_token_is_used_only_for_websockets() {
    let world = World::start().await;
    let stranger = Some(&pki().stranger);
    let empty = "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.";
    for asked in [
        websocket(LOCAL),
        with(websocket(LOCAL), "sec-websocket-protocol", empty),
        with(get(LOCAL), "sec-websocket-protocol", TOKEN_PROTOCOL),
    ] {
        let answer = try_tunnel(world.gateway.address, stranger, asked).await.unwrap_err();
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    assert!(world.arrived().is_empty());
    // What is no WebSocket has no credentials, and must not be on the connection of those who do.
    let asked = with(get(LOCAL), "sec-websocket-protocol", TOKEN_PROTOCOL);
    ask(world.gateway.address, BOTH[1], None, asked).await;
    assert_eq!(world.local.requests.only(LOCAL).version, Version::HTTP_11);
    // Nobody can take another's token away by naming it in `Connection`.
    let mut served = world.local.upgrades(LOCAL);
    let path = format!("{LOCAL}?named");
    let asked = with(websocket(&path), "sec-websocket-protocol", TOKEN_PROTOCOL);
    let asked = with(asked, "connection", "sec-websocket-protocol");
    let (mut client, _) = tunnel(world.gateway.address, stranger, asked).await;
    is_open(&mut client, &mut served.next().await).await;
    let seen = world.local.requests.only(&path);
    assert_eq!(seen.header("sec-websocket-protocol"), Some(TOKEN_PROTOCOL));
}

#[tokio::test]
async fn spdy_is_upgraded() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        let mut served = world.server(path).upgrades(path);
        let mut asked = request(Method::POST, path, full(""));
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v5.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ] {
            asked = with(asked, name, value);
        }
        let alice = Some(&pki().alice);
        let (mut client, headers) = tunnel(world.gateway.address, alice, asked).await;
        assert_eq!(headers["upgrade"], "SPDY/3.1");
        is_open(&mut client, &mut served.next().await).await;
        let seen = world.server(path).requests.only(path);
        assert_eq!(seen.method, Method::POST);
        assert_eq!(seen.all("upgrade"), ["SPDY/3.1"]);
        let versions = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
        assert_eq!(seen.all("x-stream-protocol-version"), versions);
    }
}

#[tokio::test]
async fn other_upgrade_protocols_are_not_forwarded() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        for (number, upgrade) in ["h2c", "SPDY/3", "websockets", "TLS/1.2, h2c"].iter().enumerate()
        {
            let path = format!("{path}?{number}");
            let asked = with(with(get(&path), "connection", "Upgrade"), "upgrade", upgrade);
            let answer = ask(world.gateway.address, Protocol::Http1, None, asked).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            let seen = world.server(&path).requests.only(&path);
            assert_eq!((seen.header("upgrade"), seen.header("connection")), (None, None));
        }
        // Nor without `Connection`, which makes it the business of this connection.
        let path = format!("{path}?unconnected");
        let asked = with(get(&path), "upgrade", "websocket");
        let answer = ask(world.gateway.address, Protocol::Http1, None, asked).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(world.server(&path).requests.only(&path).header("upgrade"), None);
    }
    // Of several, those that are known are.
    let mut served = world.local.upgrades(LOCAL);
    let path = format!("{LOCAL}?several");
    let asked = with(with(get(&path), "connection", "Upgrade"), "upgrade", "h2c, WebSocket");
    let (mut client, _) = tunnel(world.gateway.address, None, asked).await;
    is_open(&mut client, &mut served.next().await).await;
    assert_eq!(world.local.requests.only(&path).all("upgrade"), ["WebSocket"]);
}

#[tokio::test]
async fn a_rejected_upgrade_passes_through_and_keeps_the_connection() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        world.server(path).says(path, 403, "application/json", "{\"why\":\"not you\"}");
        for who in [None, Some(&pki().alice)] {
            let mut client = Client::connect(world.gateway.address, Protocol::Http1, who).await;
            for _ in 0..2 {
                let answer = client.send(websocket(path)).await;
                assert_eq!(answer.status, StatusCode::FORBIDDEN);
                assert_eq!(answer.text(), "{\"why\":\"not you\"}");
                assert_eq!(answer.headers["content-type"], "application/json");
                let answer = client.send(get(path)).await;
                assert_eq!(answer.status, StatusCode::FORBIDDEN);
            }
        }
    }
}

#[tokio::test]
async fn an_unrequested_101_is_an_error() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        // What was asked for is no reason for anything else, and nothing asked for even less.
        world
            .server(path)
            .rule(path, |_| std::future::ready(switching(HeaderValue::from_static("SPDY/3.1"))));
        for (who, asked) in [
            (None, get(path)),
            (None, websocket(path)),
            (Some(&pki().alice), websocket(path)),
            (None, with(with(get(path), "connection", "upgrade"), "upgrade", "h2c")),
        ] {
            let mut client = Client::connect(world.gateway.address, Protocol::Http1, who).await;
            client.send(asked).await.assert_refusal();
            // HTTP goes on here.
            assert_eq!(client.send(get("/version")).await.status, StatusCode::OK);
        }
        ask(world.gateway.address, Protocol::Http2, None, get(path)).await.assert_refusal();
    }
}

const SHARED: &str = "/apis/shared.example/v1/namespaces/default/things";

/// Two peers that serve the same, each over a way that breaks.
async fn pair() -> (Double, [Double; 2], [Front; 2], Gateway) {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &[]).await;
    let first = Double::start("b", "v1.36.0", &groups).await;
    let second = Double::start("c", "v1.36.0", &groups).await;
    let fronts = [Front::before(&first).await, Front::before(&second).await];
    let plan = Gateway::beside("a", &local).await;
    let plan = plan.bare("b", fronts[0].address).bare("c", fronts[1].address);
    let gateway = plan.start().await;
    (local, [first, second], fronts, gateway)
}

#[tokio::test]
async fn a_sent_upgrade_is_not_retried() {
    for who in [None, Some(&pki().alice)] {
        let (_local, _servers, fronts, gateway) = pair().await;
        for front in &fronts {
            front.becomes(Mode::CloseAtHead);
        }
        for sent in 1..=4 {
            let path = format!("{SHARED}?watch=1");
            let answer = try_tunnel(gateway.address, who, websocket(&path)).await.unwrap_err();
            answer.assert_refusal();
            assert_eq!(fronts[0].heads() + fronts[1].heads(), sent);
        }
    }
}

#[tokio::test]
async fn an_unsent_upgrade_goes_to_the_next_peer() {
    for mode in [Mode::Refuse, Mode::Reset] {
        let (_local, servers, fronts, gateway) = pair().await;
        fronts[0].becomes(mode);
        let mut served = servers[1].upgrades(SHARED);
        for _ in 0..2 {
            let path = format!("{SHARED}?watch=1");
            let alice = Some(&pki().alice);
            let (mut client, _) = tunnel(gateway.address, alice, websocket(&path)).await;
            is_open(&mut client, &mut served.next().await).await;
        }
    }
}

#[tokio::test]
async fn an_unrouted_404_is_verified_before_an_upgrade() {
    let world = World::start().await;
    // Listed here, and denied: whoever came to serve it meanwhile gets it.
    world.local.denies(LOCAL);
    world.bare.becomes("v1.36.0", &[("bare.example", "things"), ("local.example", "things")]);
    let mut served = world.bare.upgrades(LOCAL);
    let alice = Some(&pki().alice);
    let (mut client, _) = tunnel(world.gateway.address, alice, websocket(LOCAL)).await;
    is_open(&mut client, &mut served.next().await).await;
    assert_eq!(world.local.requests.of(LOCAL).len(), 1);
    // Listed by nobody, and new on a peer.
    const NEW: &str = "/apis/new.example/v1/namespaces/default/things";
    world.bare.becomes("v1.36.0", &[("bare.example", "things"), ("new.example", "things")]);
    let mut served = world.bare.upgrades(NEW);
    let (mut client, _) = tunnel(world.gateway.address, alice, websocket(NEW)).await;
    is_open(&mut client, &mut served.next().await).await;
    // Listed by a peer alone, which denies it: never the 404.
    world.behind.says(MVP, 404, "application/json", NOT_ROUTED);
    let answer = try_tunnel(world.gateway.address, alice, websocket(MVP)).await.unwrap_err();
    answer.assert_refusal();
    // Served by nobody at all.
    let nowhere = websocket("/apis/nowhere.example/v1/things");
    let answer = try_tunnel(world.gateway.address, alice, nowhere).await.unwrap_err();
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_object_404_of_an_upgrade_is_not_verified_again() {
    const NEW: &str = "/apis/new.example/v1/namespaces/default/things/one/status";
    let missing = "{\"kind\":\"Status\",\"details\":{\"name\":\"one\"},\"code\":404}";
    let world = World::start().await;
    world.local.says(NEW, 404, "application/json", missing);
    let alice = Some(&pki().alice);
    // Nobody else has it: it is the answer.
    let answer = try_tunnel(world.gateway.address, alice, websocket(NEW)).await.unwrap_err();
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
    assert_eq!(world.local.requests.of(NEW).len(), 1);
    // Somebody has it, as it turns out; but what was begun here must not be begun there too.
    world.bare.becomes("v1.36.0", &[("bare.example", "things"), ("new.example", "things")]);
    let mut served = world.bare.upgrades(NEW);
    let answer = try_tunnel(world.gateway.address, alice, websocket(NEW)).await.unwrap_err();
    answer.assert_refusal();
    assert_eq!(world.local.requests.of(NEW).len(), 2);
    assert!(world.bare.requests.of(NEW).is_empty());
    // The next time it goes there at once.
    let (mut client, _) = tunnel(world.gateway.address, alice, websocket(NEW)).await;
    is_open(&mut client, &mut served.next().await).await;
    assert_eq!(world.local.requests.of(NEW).len(), 2);
}
