//! Row 9: the local server is down, or back but not ready. Its clients are served wherever a peer
//! can serve them.

use http::{Method, StatusCode};
use mvp_core::decide::LocalHealth;

use crate::broken::{Front, Mode};
use crate::client::{Answer, BOTH, Client, ask, full, get, post, request, with};
use crate::double::Double;
use crate::gateway::{Gateway, Plan};
use crate::pki::pki;
use crate::rows::thing;

/// Served by the local server and by a peer of the same version.
const BOTH_SERVE: &str = "/apis/both.example/v1/namespaces/default/things";
/// Served by the local server and by an older peer.
const OLDER: &str = "/apis/older.example/v1/namespaces/default/things";
/// Served by the local server alone.
const ALONE: &str = "/apis/alone.example/v1/namespaces/default/things";

/// A local server through a proxy that breaks, a peer of the same version and an older one.
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

    /// The number of requests of the test, without discovery fetches.
    fn met(server: &Double, path: &str) -> usize {
        let mine = |seen: &&crate::record::Recorded| {
            seen.header("user-agent").is_none_or(|agent| !agent.starts_with("mvp/"))
        };
        server.requests.of(path).iter().filter(mine).count()
    }
}

#[tokio::test]
async fn local_down_reads_go_to_peers_and_writes_to_members_not_older() {
    for down in [Mode::Reset, Mode::Refuse] {
        let cluster = Cluster::start().await;
        // The first request may notice the failure itself.
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
async fn local_down_non_resource_paths_are_not_proxied() {
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
async fn a_local_server_that_seems_to_be_down_still_answers_for_itself() {
    // Nobody probes it, so it counts as unreachable after it responds again.
    let cluster = Cluster::with(Plan::unwatched).await;
    cluster.front.becomes(Mode::Reset);
    cluster.ask(get(ALONE)).await.assert_refusal();
    assert_eq!(cluster.gateway.state.get(), LocalHealth::Unreachable);
    cluster.front.becomes(Mode::Through);
    for path in ["/livez", "/readyz", "/version"] {
        for protocol in BOTH {
            let answer = ask(cluster.gateway.address, protocol, None, get(path)).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}");
        }
    }
}

#[tokio::test]
async fn a_returned_local_server_is_used_once_ready() {
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
    // It answers what only it serves.
    for path in [ALONE, "/healthz", "/version"] {
        assert_eq!(cluster.ask(get(path)).await.status, StatusCode::OK, "{path}");
    }

    cluster.local.says("/readyz", 200, "text/plain", "ok");
    cluster.gateway.takes_local_for(LocalHealth::Ready).await;
    assert_eq!(cluster.ask(get(BOTH_SERVE)).await.status, StatusCode::OK);
    assert_eq!((local(), Cluster::met(&cluster.same, BOTH_SERVE)), (2, 3));
}

#[tokio::test]
async fn local_health_follows_readyz() {
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
async fn an_unready_local_server_answers_what_no_peer_serves() {
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
    // A request that may have reached the peer is not retried.
    front.becomes(Mode::AfterSending);
    let lost = post(BOTH_SERVE, thing("both.example", "lost"));
    ask(gateway.address, BOTH[1], Some(&pki().alice), lost).await.assert_refusal();
    assert_eq!(local.server().processed(&Method::POST), 2);
}

#[tokio::test]
async fn a_403_from_a_starting_server_is_withheld() {
    let cluster = Cluster::start().await;
    let forbids = |path| {
        let body = r#"{"kind":"Status","reason":"Forbidden","code":403}"#;
        cluster.local.says(path, 403, "application/json", body);
    };
    [BOTH_SERVE, OLDER, ALONE].into_iter().for_each(forbids);
    // Its own response is used while it is ready.
    assert_eq!(cluster.ask(get(BOTH_SERVE)).await.status, StatusCode::FORBIDDEN);
    cluster.front.becomes(Mode::Reset);
    cluster.gateway.takes_local_for(LocalHealth::Unreachable).await;
    cluster.local.says("/readyz", 500, "text/plain", "[-]rbac failed\n");
    cluster.front.becomes(Mode::Through);
    cluster.gateway.takes_local_for(LocalHealth::Unready).await;

    // A write that no peer may accept, and an API of no other member: its 403 is withheld.
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
async fn a_possibly_processed_request_is_not_marked_as_refused() {
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
async fn local_down_discovery_is_authorized_by_a_peer() {
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
    // A request marked as proxied is not proxied again, not even to authorize.
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
async fn local_down_discovery_without_an_authorizing_peer_is_503() {
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
async fn local_unready_discovery_is_authorized_by_a_peer() {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &groups).await;
    let b = Double::start("b", "v1.36.0", &groups).await;
    let plan = Gateway::beside("a", &local).await;
    let gateway = plan.bare("b", b.address).start().await;
    local.says("/readyz", 500, "text/plain", "[-]poststarthook/rbac/bootstrap-roles failed\n");
    gateway.takes_local_for(LocalHealth::Unready).await;
    // Its RBAC rules are not loaded yet.
    local.says("/apis", 403, "text/plain", "forbidden");
    let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get("/apis")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    // A 403 of the peer is passed through.
    b.says("/apis", 403, "text/plain", "forbidden");
    let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get("/apis")).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}
