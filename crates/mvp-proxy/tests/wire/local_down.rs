//! Row 9: the local server is down, or came back and is not ready. Clients of this address survive
//! it wherever a peer can take their requests.

use http::{Method, Response, StatusCode};
use mvp_core::decide::LocalHealth;

use crate::broken::{Front, Mode};
use crate::client::{Answer, BOTH, Client, ask, full, get, post, request, with};
use crate::double::Double;
use crate::gateway::{Gateway, Plan};
use crate::pki::pki;
use crate::rows::thing;

/// Served by the local server and by a peer as new as it.
const BOTH_SERVE: &str = "/apis/both.example/v1/namespaces/default/things";
/// Served by the local server and by a peer that is older.
const OLDER: &str = "/apis/older.example/v1/namespaces/default/things";
/// Served by the local server alone.
const ALONE: &str = "/apis/alone.example/v1/namespaces/default/things";

/// A local server over a way that breaks, a peer as new as it and one that is older.
struct Cluster {
    local: Double,
    front: Front,
    same: Double,
    older: Double,
    gateway: Gateway,
}

impl Cluster {
    async fn start() -> Cluster {
        Cluster::with(|plan| plan).await
    }

    async fn with(change: impl FnOnce(Plan) -> Plan) -> Cluster {
        let (both, older, alone) =
            (("both.example", "things"), ("older.example", "things"), ("alone.example", "things"));
        let local = Double::start("a", "v1.36.0", &[both, older, alone]).await;
        let same = Double::start("b", "v1.36.0", &[both]).await;
        let older = Double::start("c", "v1.35.0", &[older]).await;
        let front = Front::before(&local).await;
        let plan = Gateway::beside_address("a", front.address).await;
        let plan = plan.bare("b", same.address).bare("c", older.address);
        let gateway = change(plan).start().await;
        Cluster { local, front, same, older, gateway }
    }

    async fn ask(&self, request: http::Request<crate::client::TestBody>) -> Answer {
        ask(self.gateway.address, BOTH[1], Some(&pki().alice), request).await
    }

    /// Only requests of the tests', not those by which members are asked what they serve.
    fn met(server: &Double, path: &str) -> usize {
        let mine = |seen: &&crate::record::Recorded| {
            seen.header("user-agent").is_none_or(|agent| !agent.starts_with("mvp/"))
        };
        server.requests.of(path).iter().filter(mine).count()
    }
}

#[tokio::test]
async fn reads_go_to_peers_and_writes_only_to_members_that_are_not_older() {
    for down in [Mode::Reset, Mode::Refuse] {
        let cluster = Cluster::start().await;
        // The first request after it may find out itself.
        cluster.front.becomes(down);
        for (index, protocol) in BOTH.into_iter().enumerate() {
            for (who, token) in [(None, None), (Some(&pki().alice), None), (None, Some(()))] {
                let mut read = get(BOTH_SERVE);
                if token.is_some() {
                    read = with(read, "authorization", "Bearer of-carol");
                }
                let answer = ask(cluster.gateway.address, protocol, who, read).await;
                assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
                let older = ask(cluster.gateway.address, protocol, who, get(OLDER)).await;
                assert_eq!(older.status, StatusCode::OK, "{}", older.text());
            }
            let name = format!("thing-{index}");
            let created = cluster.ask(post(BOTH_SERVE, thing("both.example", &name))).await;
            assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
            let refused = cluster.ask(post(OLDER, thing("older.example", &name))).await;
            refused.assert_refusal();
            assert!(refused.text().contains("too old"), "{}", refused.text());
            cluster.ask(get(ALONE)).await.assert_refusal();
        }
        assert_eq!(cluster.same.server().processed(&Method::POST), 2);
        assert_eq!(cluster.older.server().processed(&Method::POST), 0);
        assert_eq!(cluster.gateway.state.get(), LocalHealth::Unreachable);
        let health = |state| format!("mvp_local_health{{state=\"{state}\"}}");
        assert_eq!(cluster.gateway.metric(&health("unreachable")).unwrap(), "1");
        assert_eq!(cluster.gateway.metric(&health("ready")).unwrap(), "0");
    }
}

#[tokio::test]
async fn what_a_server_says_of_itself_no_peer_says_for_it() {
    let cluster = Cluster::start().await;
    cluster.front.becomes(Mode::Reset);
    for path in ["/readyz", "/livez", "/healthz", "/version", "/metrics", "/"] {
        for protocol in BOTH {
            ask(cluster.gateway.address, protocol, None, get(path)).await.assert_refusal();
        }
        for peer in [&cluster.same, &cluster.older] {
            let version = peer.requests.of(path).into_iter().filter(|seen| seen.target == path);
            let asked = version.filter(|seen| seen.header("user-agent").is_none()).count();
            assert_eq!(asked, 0, "{path}");
        }
    }
}

#[tokio::test]
async fn one_that_comes_back_is_asked_again_when_it_is_ready() {
    let cluster = Cluster::start().await;
    let local = || Cluster::met(&cluster.local, BOTH_SERVE);
    assert_eq!(cluster.ask(get(BOTH_SERVE)).await.status, StatusCode::OK);
    assert_eq!(local(), 1);

    cluster.local.says("/readyz", 500, "text/plain", "[-]etcd failed\n");
    cluster.front.becomes(Mode::Reset);
    cluster.gateway.takes_local_for(LocalHealth::Unreachable).await;
    assert_eq!(cluster.ask(get(BOTH_SERVE)).await.status, StatusCode::OK);
    cluster.front.becomes(Mode::Through);
    cluster.gateway.takes_local_for(LocalHealth::Unready).await;
    for request in [get(BOTH_SERVE), post(BOTH_SERVE, thing("both.example", "one"))] {
        assert!(cluster.ask(request).await.status.is_success());
    }
    assert_eq!((local(), Cluster::met(&cluster.same, BOTH_SERVE)), (1, 3));
    // What it alone can answer, it does.
    for path in [ALONE, "/healthz", "/version"] {
        assert_eq!(cluster.ask(get(path)).await.status, StatusCode::OK, "{path}");
    }

    cluster.local.says("/readyz", 200, "text/plain", "ok");
    cluster.gateway.takes_local_for(LocalHealth::Ready).await;
    assert_eq!(cluster.ask(get(BOTH_SERVE)).await.status, StatusCode::OK);
    assert_eq!((local(), Cluster::met(&cluster.same, BOTH_SERVE)), (2, 3));
}

#[tokio::test]
async fn one_that_shuts_down_or_does_not_tell_is_treated_by_what_it_says() {
    let cluster = Cluster::start().await;
    for (status, health) in [
        (500, LocalHealth::Unready),
        (200, LocalHealth::Ready),
        (503, LocalHealth::Unready),
        (401, LocalHealth::Ready),
        (500, LocalHealth::Unready),
        (403, LocalHealth::Ready),
    ] {
        cluster.local.says("/readyz", status, "text/plain", "so it is");
        cluster.gateway.takes_local_for(health).await;
    }
    let seen = cluster.local.requests.of("/readyz").pop().unwrap();
    assert_eq!(seen.header("x-remote-user"), Some("system:apiserver"));
}

#[tokio::test]
async fn one_that_is_not_ready_answers_where_nobody_else_does() {
    let peer = Double::start("b", "v1.36.0", &[("both.example", "things")]).await;
    let front = Front::before(&peer).await;
    let local = Double::start("a", "v1.36.0", &[("both.example", "things")]).await;
    let plan = Gateway::beside("a", &local).await.bare("b", front.address);
    let gateway = plan.start().await;
    local.says("/readyz", 500, "text/plain", "[-]etcd failed\n");
    gateway.takes_local_for(LocalHealth::Unready).await;
    front.becomes(Mode::Reset);
    for protocol in BOTH {
        let name = format!("{protocol:?}").to_lowercase();
        let mut client = Client::connect(gateway.address, protocol, Some(&pki().alice)).await;
        let created = client.send(post(BOTH_SERVE, thing("both.example", &name))).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        assert_eq!(client.send(get(BOTH_SERVE)).await.status, StatusCode::OK);
    }
    assert_eq!(local.server().processed(&Method::POST), 2);
    // What may have reached the peer goes nowhere else.
    front.becomes(Mode::AfterSending);
    let lost = post(BOTH_SERVE, thing("both.example", "lost"));
    ask(gateway.address, BOTH[1], Some(&pki().alice), lost).await.assert_refusal();
    assert_eq!(local.server().processed(&Method::POST), 2);
}

#[tokio::test]
async fn what_one_that_starts_forbids_is_not_believed() {
    let cluster = Cluster::start().await;
    let forbids = |path| {
        let body = r#"{"kind":"Status","reason":"Forbidden","code":403}"#;
        cluster.local.says(path, 403, "application/json", body);
    };
    [BOTH_SERVE, OLDER, ALONE].into_iter().for_each(forbids);
    // Its own word, while it is ready.
    assert_eq!(cluster.ask(get(BOTH_SERVE)).await.status, StatusCode::FORBIDDEN);
    cluster.front.becomes(Mode::Reset);
    cluster.gateway.takes_local_for(LocalHealth::Unreachable).await;
    cluster.local.says("/readyz", 500, "text/plain", "[-]rbac failed\n");
    cluster.front.becomes(Mode::Through);
    cluster.gateway.takes_local_for(LocalHealth::Unready).await;

    // A write that no peer may take, and what nobody else has: it is asked, and not believed.
    cluster.ask(post(OLDER, thing("older.example", "one"))).await.assert_refusal();
    cluster.ask(get(ALONE)).await.assert_refusal();
    let (asked, written) =
        (Cluster::met(&cluster.local, OLDER), Cluster::met(&cluster.older, OLDER));
    assert_eq!((asked, written), (1, 0));
    cluster.local.says("/readyz", 200, "text/plain", "ok");
    cluster.gateway.takes_local_for(LocalHealth::Ready).await;
    for path in [OLDER, ALONE] {
        assert_eq!(cluster.ask(get(path)).await.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn a_peer_whose_server_is_down_refuses_and_another_is_asked() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.37.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let front = Front::before(&b).await;
    let gateway_c = Gateway::beside("c", &c).await.start().await;
    let plan = Gateway::beside_address("b", front.address).await;
    let gateway_b = plan.mvp("c", gateway_c.address).start().await;
    let plan = Gateway::beside("a", &a).await;
    let plan = plan.mvp("b", gateway_b.address).mvp("c", gateway_c.address);
    let gateway_a = plan.start().await;
    front.becomes(Mode::Reset);
    gateway_b.takes_local_for(LocalHealth::Unreachable).await;

    let proxied =
        with(with(get(path), "x-remote-user", "bob"), "x-kubernetes-peer-proxied", "true");
    let answer = ask(gateway_b.address, BOTH[1], Some(&pki().proxy), proxied).await;
    answer.assert_refusal();
    assert_eq!(answer.headers["x-mvp-refused"], "local-down");
    assert!(gateway_c.requests.of(path).is_empty(), "it was not passed on");
    // A client's own request is.
    assert_eq!(
        ask(gateway_b.address, BOTH[1], Some(&pki().alice), get(path)).await.status,
        StatusCode::OK
    );

    let (before_b, before_c) =
        (gateway_b.requests.of(path).len(), gateway_c.requests.of(path).len());
    let create = post(path, thing("shared.example", "one"));
    let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    assert!(answer.headers.get("x-mvp-refused").is_none());
    // B, as the newest, was asked first, once; C served it; nothing came back to A.
    assert_eq!(gateway_b.requests.of(path).len(), before_b + 1);
    assert_eq!(gateway_c.requests.of(path).len(), before_c + 1);
    assert_eq!(gateway_a.requests.of(path).len(), 1);
    // From now on it comes last.
    for _ in 0..4 {
        let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), get(path)).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    assert_eq!(gateway_b.requests.of(path).len(), before_b + 1);
    assert_eq!(c.server().processed(&Method::POST), 1);
}

#[tokio::test]
async fn a_peer_whose_server_is_not_ready_answers_only_what_nobody_else_does() {
    let lone = "/apis/lone.example/v1/namespaces/default/things";
    let shared = "/apis/shared.example/v1/namespaces/default/things";
    let groups = [("shared.example", "things"), ("lone.example", "things")];
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.37.0", &groups).await;
    let c = Double::start("c", "v1.37.0", &groups[..1]).await;
    let plan = Gateway::beside("b", &b).await.bare("c", c.address);
    let gateway_b = plan.start().await;
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", gateway_b.address).bare("c", c.address).start().await;
    b.says("/readyz", 500, "text/plain", "[-]shutdown failed\n");
    gateway_b.takes_local_for(LocalHealth::Unready).await;
    for path in [shared, lone] {
        for group in ["one", "two"] {
            let create = post(path, thing(path.split('/').nth(2).unwrap(), group));
            let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        }
    }
    assert_eq!((b.requests.of(shared).len(), b.requests.of(lone).len()), (0, 2));
    assert_eq!(c.requests.of(shared).len(), 2);
    // It is there, and does what it can: it is not taken for one that gives no answer.
    assert!(gateway_a.metric("mvp_ejections_total{member=\"b\"}").is_none());
}

#[tokio::test]
async fn a_refusal_does_not_say_that_nothing_was_processed_where_something_may_have_been() {
    let cluster = Cluster::with(Plan::unwatched).await;
    cluster.front.becomes(Mode::AfterSending);
    for method in [Method::GET, Method::POST] {
        let sent = request(method.clone(), BOTH_SERVE, full("{}"));
        let sent = with(with(sent, "x-remote-user", "bob"), "x-kubernetes-peer-proxied", "true");
        let answer = ask(cluster.gateway.address, BOTH[1], Some(&pki().proxy), sent).await;
        answer.assert_refusal();
        assert!(answer.headers.get("x-mvp-refused").is_none(), "{method}");
    }
    assert_eq!(cluster.front.heads(), 2);
}

#[tokio::test]
async fn two_whose_servers_are_down_do_not_play_ping_pong() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let (a, b) = (
        Double::start("a", "v1.36.0", &groups).await,
        Double::start("b", "v1.36.0", &groups).await,
    );
    let (front_a, front_b) = (Front::before(&a).await, Front::before(&b).await);
    let plan_a = Gateway::beside_address("a", front_a.address).await;
    let plan_b = Gateway::beside_address("b", front_b.address).await;
    let (address_a, address_b) = (plan_a.address(), plan_b.address());
    let gateway_a = plan_a.mvp("b", address_b).start_blind();
    let gateway_b = plan_b.mvp("a", address_a).start().await;
    gateway_a.has_seen(&["a", "b"]).await;
    front_a.becomes(Mode::Reset);
    front_b.becomes(Mode::Reset);
    for method in [Method::GET, Method::POST] {
        let before = (gateway_a.requests.of(path).len(), gateway_b.requests.of(path).len());
        let sent = request(method, path, full("{}"));
        ask(gateway_a.address, BOTH[1], Some(&pki().alice), sent).await.assert_refusal();
        let after = (gateway_a.requests.of(path).len(), gateway_b.requests.of(path).len());
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
    }
}

#[tokio::test]
async fn discovery_is_answered_while_a_peer_consents() {
    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let cluster = Cluster::start().await;
    let mut before = Vec::new();
    let paths = ["/api", "/apis", "/apis/alone.example", "/apis/alone.example/v1"];
    let discover =
        |path| with(get(path), "accept", if path.len() > 5 { "application/json" } else { V2 });
    for path in paths {
        before.push(cluster.ask(discover(path)).await.body);
    }
    cluster.front.becomes(Mode::Reset);
    for (path, before) in paths.into_iter().zip(before) {
        let answer = cluster.ask(discover(path)).await;
        assert_eq!((answer.status, answer.body), (StatusCode::OK, before), "{path}");
        let asked = [&cluster.same, &cluster.older].map(|peer| peer.requests.of(path));
        let asked: Vec<_> = asked
            .iter()
            .flatten()
            .filter(|seen| seen.header("x-remote-user") == Some("alice"))
            .collect();
        assert!(!asked.is_empty(), "{path}");
        for seen in asked {
            assert!(seen.header("accept").unwrap().contains("profile=nopeer"));
            assert_eq!(seen.header("x-kubernetes-peer-proxied"), Some("true"));
            let root = matches!(&*seen.target, "/api" | "/apis");
            assert_eq!(seen.header("if-none-match").is_some(), root, "{}", seen.target);
        }
    }
    // What says that it was passed on is not passed on, not even to ask.
    let marked = with(discover("/apis"), "x-kubernetes-peer-proxied", "true");
    cluster.ask(marked).await.assert_refusal();
    for status in [401, 403, 429, 500, 503] {
        for peer in [&cluster.same, &cluster.older] {
            peer.says("/api", status, "text/plain", "not for you");
        }
        for path in paths {
            let answer = cluster.ask(discover(path)).await;
            assert_eq!((answer.status.as_u16(), &*answer.text()), (status, "not for you"));
        }
    }
}

#[tokio::test]
async fn discovery_is_refused_while_nobody_can_consent() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let peer = Double::start("b", "v1.36.0", &[]).await;
    let fronts = (Front::before(&local).await, Front::before(&peer).await);
    let plan = Gateway::beside_address("a", fronts.0.address).await;
    let gateway = plan.bare("b", fronts.1.address).start().await;
    fronts.0.becomes(Mode::Reset);
    fronts.1.becomes(Mode::Reset);
    for protocol in BOTH {
        for path in ["/api", "/apis", "/api/v1"] {
            ask(gateway.address, protocol, Some(&pki().alice), get(path)).await.assert_refusal();
        }
    }
}

#[tokio::test]
async fn a_server_that_answers_as_a_gateway_refuses_is_not_believed() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.37.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let gateway_b = Gateway::beside("b", &b).await.start().await;
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", gateway_b.address).bare("c", c.address).start().await;
    // It processes what it gets, such as an extension server might, and says that it did not.
    b.rule(path, |_| {
        let response = Response::builder().status(503).header("x-mvp-refused", "local-down");
        std::future::ready(response.body(full("{}".to_owned())).unwrap())
    });
    let create = post(path, thing("shared.example", "one"));
    let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers.get("x-mvp-refused").is_none());
    assert_eq!(b.requests.of(path).len(), 1);
    assert!(c.requests.of(path).is_empty(), "a write was sent twice");
}

#[tokio::test]
async fn a_peer_that_is_not_ready_costs_others_nothing() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.36.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let gateway_b = Gateway::beside("b", &b).await.bare("c", c.address).start().await;
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", gateway_b.address).bare("c", c.address).start().await;
    b.says("/readyz", 500, "text/plain", "[-]shutdown failed\n");
    gateway_b.takes_local_for(LocalHealth::Unready).await;
    let mut client = Client::connect(gateway_a.address, BOTH[1], Some(&pki().alice)).await;
    // Many more than there are failovers to spare.
    for round in 0..600 {
        let read = client.send(get(path)).await;
        assert_eq!(read.status, StatusCode::OK, "read {round}: {}", read.text());
        let create = post(path, thing("shared.example", &format!("thing-{round}")));
        let write = client.send(create).await;
        assert_eq!(write.status, StatusCode::CREATED, "write {round}: {}", write.text());
    }
    let asked = gateway_b.requests.of(path).len();
    assert!(asked < 100, "it was asked {asked} times");
    assert!(gateway_a.metric("mvp_ejections_total{member=\"b\"}").is_none());
}

#[tokio::test]
async fn discovery_is_given_by_a_peers_consent_while_the_local_server_is_not_ready() {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &groups).await;
    let b = Double::start("b", "v1.36.0", &groups).await;
    let plan = Gateway::beside("a", &local).await;
    let gateway = plan.bare("b", b.address).start().await;
    local.says("/readyz", 500, "text/plain", "[-]poststarthook/rbac/bootstrap-roles failed\n");
    gateway.takes_local_for(LocalHealth::Unready).await;
    // It has no rules yet.
    local.says("/apis", 403, "text/plain", "forbidden");
    let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get("/apis")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    // Who is forbidden by the peer, too, stays so.
    b.says("/apis", 403, "text/plain", "forbidden");
    let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get("/apis")).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_read_that_was_lost_behind_a_peers_gateway_goes_to_another_and_a_write_does_not() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.37.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let front = Front::before(&b).await;
    let plan = Gateway::beside_address("b", front.address).await;
    let gateway_b = plan.bare("c", c.address).unwatched().start().await;
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", gateway_b.address).bare("c", c.address).start().await;
    front.becomes(Mode::AfterSending);
    // The first choice changes from read to read: one of two comes to b.
    for _ in 0..2 {
        let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), get(path)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    assert!(!gateway_b.requests.of(path).is_empty(), "nothing was lost");
    // As the newest, b gets a write first, and may have processed it.
    let create = post(path, thing("shared.example", "one"));
    let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
    answer.assert_refusal();
    assert!(answer.headers.get("x-mvp-lost").is_none());
    assert_eq!(c.server().processed(&Method::POST), 0);
}

#[tokio::test]
async fn where_nobody_is_ready_somebody_answers_all_the_same() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.36.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let (plan_b, plan_c) = (Gateway::beside("b", &b).await, Gateway::beside("c", &c).await);
    let (address_b, address_c) = (plan_b.address(), plan_c.address());
    let gateway_b = plan_b.mvp("c", address_c).start_blind();
    let gateway_c = plan_c.mvp("b", address_b).start_blind();
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", address_b).mvp("c", address_c).start().await;
    for (server, gateway) in [(&b, &gateway_b), (&c, &gateway_c)] {
        gateway.has_seen(&["b", "c"]).await;
        server.says("/readyz", 500, "text/plain", "[-]etcd failed\n");
        gateway.takes_local_for(LocalHealth::Unready).await;
    }
    for round in 0..3 {
        let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), get(path)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let create = post(path, thing("shared.example", &format!("thing-{round}")));
        let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    }
    let made = b.server().processed(&Method::POST) + c.server().processed(&Method::POST);
    assert_eq!(made, 3);
    // A client cannot insist, and no server hears of it.
    for server in [&b, &c] {
        for seen in server.requests.of(path) {
            assert_eq!(seen.header("x-mvp-insists"), None);
        }
    }
}
