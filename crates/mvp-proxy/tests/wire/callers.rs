//! Who called which resource, and which false 404s were averted.

use http::{Method, Request, StatusCode};
use mvp_core::Timestamp;
use mvp_core::decide::LocalHealth;
use mvp_proxy::{CallersReport, RecordedCaller};

use crate::broken::{Front, Mode};
use crate::client::{BOTH, TestBody, ask, get, with};
use crate::double::Double;
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::world::{BARE, LOCAL, MVP, World};

/// `{"alg":"none"}.{"sub":"system:serviceaccount:default:robot"}.` and a signature.
const JWT: &str = "Bearer eyJhbGciOiJub25lIn0.\
                   eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6ZGVmYXVsdDpyb2JvdCJ9.c2ln";
const ROBOT: &str = "system:serviceaccount:default:robot";

fn report(gateway: &Gateway, addresses: bool) -> CallersReport {
    gateway.metrics.callers().unwrap().report(gateway.reader.now(), addresses)
}

/// The callers of `things` of a group.
fn callers(gateway: &Gateway, group: &str) -> Vec<RecordedCaller> {
    let resources = report(gateway, false).resources.into_iter();
    let of_group =
        resources.filter(|r| (r.group.as_str(), r.resource.as_str()) == (group, "things"));
    of_group.flat_map(|resource| resource.callers).collect()
}

fn agent(request: Request<TestBody>, agent: &'static str) -> Request<TestBody> {
    with(request, "user-agent", agent)
}

#[tokio::test]
async fn callers_are_recorded_once_where_they_connected() {
    let world = World::with(|plan| plan).await;
    let gateway = &world.gateway;
    for path in [LOCAL, BARE, MVP] {
        for protocol in BOTH {
            let request = agent(get(path), "kubectl/v1.34");
            let answer = ask(gateway.address, protocol, Some(&pki().alice), request).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}");
        }
    }
    for group in ["local.example", "bare.example", "mvp.example"] {
        let expected = RecordedCaller {
            user: Some("alice".to_owned()),
            user_source: "authenticated".to_owned(),
            user_agent: "kubectl/v1.34".to_owned(),
            requests: 2,
            last_seen_seconds_ago: 0,
            address: None,
        };
        assert_eq!(callers(gateway, group), [expected], "{group}");
    }
    // The gateway of the peer got the request, too, and the polls of this one.
    assert_eq!(world.mvp.requests.of(MVP).len(), 2);
    assert_eq!(report(&world.mvp, false).resources, []);
    let shown = report(gateway, true).resources.remove(0).callers.remove(0);
    assert_eq!(shown.address.as_deref(), Some("127.0.0.1"));
}

#[tokio::test]
async fn tokens_are_named_after_a_response_that_proves_them() {
    let world = World::with(|plan| plan).await;
    let gateway = &world.gateway;
    let send = async |path: &str, token: &'static str| {
        let request = with(agent(get(path), "robot/1"), "authorization", token);
        ask(gateway.address, BOTH[1], None, request).await.status.as_u16()
    };
    let seen = |group: &str| -> Vec<(String, String, u64)> {
        let callers = callers(gateway, group).into_iter();
        callers.map(|c| (c.user.unwrap(), c.user_source, c.requests)).collect()
    };
    world.local.says(LOCAL, 401, "application/json", "{}");
    assert_eq!(send(LOCAL, JWT).await, 401);
    assert_eq!(seen("local.example"), [], "it was rejected");
    world.local.says(LOCAL, 429, "application/json", "{}");
    assert_eq!(send(LOCAL, JWT).await, 429);
    let [(hash, source, 1)] = &seen("local.example")[..] else {
        panic!("{:?}", callers(gateway, "local.example"))
    };
    assert_eq!((hash.len(), source.as_str()), (8, "token-hash"), "nobody has verified it");
    world.local.says(LOCAL, 200, "application/json", "{}");
    assert_eq!(send(LOCAL, JWT).await, 200);
    assert_eq!(send(LOCAL, JWT).await, 200);
    let named = (ROBOT.to_owned(), "jwt-unverified".to_owned(), 2);
    assert!(seen("local.example").contains(&named), "{:?}", seen("local.example"));
    // A token that is no JWT never has a name, and is never shown.
    assert_eq!(send(BARE, "Bearer opaque-secret").await, 200);
    let [(hash, source, 1)] = &seen("bare.example")[..] else { panic!() };
    assert_eq!((hash.len(), source.as_str()), (8, "token-hash"));
    let text = serde_json::to_string(&report(gateway, true)).unwrap();
    assert!(!text.contains("opaque-secret") && !text.contains("eyJ"), "{text}");
}

#[tokio::test]
async fn callers_without_credentials_are_not_callers() {
    let world = World::with(|plan| plan).await;
    let gateway = &world.gateway;
    world.local.says(LOCAL, 403, "application/json", "{}");
    assert_eq!(ask(gateway.address, BOTH[1], None, get(LOCAL)).await.status, StatusCode::FORBIDDEN);
    // A server may answer it before it looks at the token.
    world.local.says(LOCAL, 204, "application/json", "");
    let mut preflight = with(get(LOCAL), "authorization", JWT);
    *preflight.method_mut() = Method::OPTIONS;
    ask(gateway.address, BOTH[1], None, preflight).await;
    assert_eq!(callers(gateway, "local.example"), []);
}

#[tokio::test]
async fn names_that_clients_invent_are_not_recorded() {
    let world = World::with(|plan| plan).await;
    for path in ["/apis/made.up/v1/things", "/apis/local.example/v9/things", "/healthz", "/apis"] {
        ask(world.gateway.address, BOTH[0], Some(&pki().alice), get(path)).await;
    }
    let report = report(&world.gateway, false);
    assert_eq!((report.resources.len(), report.more_requests), (0, 0));
    let long = agent(get(LOCAL), Box::leak("x".repeat(5000).into_boxed_str()));
    ask(world.gateway.address, BOTH[0], Some(&pki().alice), long).await;
    assert_eq!(callers(&world.gateway, "local.example")[0].user_agent.len(), 128);
}

#[tokio::test]
async fn nothing_is_recorded_unless_asked_for() {
    let local = Double::start("a", "v1.36.0", &[("local.example", "things")]).await;
    let gateway = Gateway::beside("a", &local).await.without_callers().start().await;
    ask(gateway.address, BOTH[0], Some(&pki().alice), get(LOCAL)).await;
    assert!(gateway.metrics.callers().is_none());
}

#[tokio::test]
async fn expired_callers_are_dropped() {
    let world = World::with(|plan| plan).await;
    ask(world.gateway.address, BOTH[0], Some(&pki().alice), get(LOCAL)).await;
    let recorded = world.gateway.metrics.callers().unwrap();
    let later = |seconds| world.gateway.reader.now().after(std::time::Duration::from_secs(seconds));
    let count = |now: Timestamp| {
        let mut count = 0;
        recorded.count(now, |_, _, _, callers| count += callers);
        count
    };
    assert_eq!((count(later(0)), count(later(3590)), count(later(3601))), (1, 1, 0));
}

/// The value of the counter for `things` of a group.
fn averted(gateway: &Gateway, group: &str) -> u64 {
    let version = if group.is_empty() { "" } else { "v1" };
    let resource = if group.is_empty() { "" } else { "things" };
    let labels = format!(r#"{{group="{group}",version="{version}",resource="{resource}"}}"#);
    let value = gateway.metric(&format!("mvp_false_not_found_averted_total{labels}"));
    value.map_or(0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn answers_of_peers_for_what_the_local_server_lacks_are_counted() {
    let world = World::with(|plan| plan).await;
    let gateway = &world.gateway;
    for path in [LOCAL, BARE, MVP, MVP] {
        ask(gateway.address, BOTH[1], Some(&pki().alice), get(path)).await;
    }
    let counts = ["local.example", "bare.example", "mvp.example"].map(|g| averted(gateway, g));
    assert_eq!(counts, [0, 1, 2]);
    assert_eq!(averted(&world.mvp, "mvp.example"), 0, "only where the client connected");
    // A true 404 is none that was averted, and a 403 would have come from the local server, too.
    for status in [404, 403] {
        let body = r#"{"kind":"Status","details":{"name":"x"}}"#;
        let path = "/apis/bare.example/v1/namespaces/default/things/x";
        world.bare.says(path, status, "application/json", body);
        let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get(path)).await;
        assert_eq!(answer.status.as_u16(), status);
    }
    assert_eq!(averted(gateway, "bare.example"), 1);
    // An API that no member has is a true 404.
    let none = "/apis/made.up/v1/namespaces/default/things";
    let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get(none)).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(averted(gateway, "made.up") + averted(gateway, ""), 0);
}

#[tokio::test]
async fn a_withheld_404_is_counted_under_bounded_labels() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let peer = Double::start("b", "v1.36.0", &[("bare.example", "things")]).await;
    let front = Front::before(&peer).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", front.address).start().await;
    front.becomes(Mode::Refuse);
    ask(gateway.address, BOTH[1], Some(&pki().alice), get(BARE)).await.assert_refusal();
    assert_eq!(averted(&gateway, "bare.example"), 1);
    // The peer cannot confirm that it lacks this one. Clients choose such names.
    let none = "/apis/made.up/v1/namespaces/default/things";
    ask(gateway.address, BOTH[1], Some(&pki().alice), get(none)).await.assert_refusal();
    assert_eq!((averted(&gateway, "made.up"), averted(&gateway, "")), (0, 1));
}

#[tokio::test]
async fn failover_from_a_local_server_that_is_not_ready_is_not_counted() {
    let groups = [("bare.example", "things")];
    let local = Double::start("a", "v1.36.0", &groups).await;
    let peer = Double::start("b", "v1.36.0", &groups).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    local.says("/readyz", 500, "text/plain", "[-]etcd failed\n");
    gateway.takes_local_for(LocalHealth::Unready).await;
    let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get(BARE)).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(peer.requests.of(BARE).len(), 1, "a peer answered");
    assert_eq!(averted(&gateway, "bare.example"), 0);
}
