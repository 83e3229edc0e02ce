//! The choice of a peer, and failover to others.

use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use mvp_core::Timestamp;

use crate::broken::{Front, Mode};
use crate::client::{BOTH, Client, ask, full, get, post, request};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;
use crate::soon;

const THINGS: &str = "/apis/shared.example/v1/namespaces/default/things";
const OTHERS: &str = "/apis/shared.example/v1/namespaces/default/others";
const OTHERS_SLOW: &str = "/apis/shared.example/v1/namespaces/default/others/slow";

/// Peers of these releases that serve the same API, through proxies that can break.
struct Cluster {
    peers: Vec<Double>,
    fronts: Vec<Front>,
    gateway: Gateway,
    _local: Double,
}

impl Cluster {
    async fn start(releases: &[&str]) -> Cluster {
        let local = Double::start("a", "v1.36.0", &[]).await;
        let mut plan = Gateway::beside("a", &local).await.unwatched();
        let (mut peers, mut fronts) = (Vec::new(), Vec::new());
        for (release, id) in releases.iter().zip(["b", "c", "d"]) {
            let peer = Double::start(id, release, &[("shared.example", "things others")]).await;
            let front = Front::before(&peer).await;
            plan = plan.bare(id, front.address);
            peers.push(peer);
            fronts.push(front);
        }
        Cluster { peers, fronts, gateway: plan.start().await, _local: local }
    }

    async fn client(&self) -> Client {
        Client::connect(self.gateway.address, BOTH[1], Some(&pki().alice)).await
    }

    /// The number of requests for this path at each peer.
    fn met(&self, path: &str) -> Vec<usize> {
        self.peers.iter().map(|peer| peer.requests.of(path).len()).collect()
    }

    /// Refreshes the views of members, as happens every second.
    async fn looks_around(&self) {
        let now = self.gateway.reader.now();
        let confirmed = |snapshot: &mvp_core::Snapshot| {
            ["b", "c"].iter().all(|id| {
                let view = snapshot.member_by_id(id).map(|member| &member.view);
                let apis = view.and_then(|view| view.apis.as_ref());
                apis.is_some_and(|seen| seen.confirmed >= now)
            })
        };
        soon(self.gateway.reader.refresh(Duration::from_secs(20), confirmed)).await;
    }
}

#[tokio::test]
async fn a_client_connection_sticks_to_one_member_per_resource_until_it_fails() {
    let cluster = Cluster::start(&["v1.36.0", "v1.36.0", "v1.36.0"]).await;
    let mut client = cluster.client().await;
    for _ in 0..6 {
        assert_eq!(client.send(get(THINGS)).await.status, StatusCode::OK);
    }
    let met = cluster.met(THINGS);
    let home = met.iter().position(|met| *met == 6).unwrap_or_else(|| panic!("{met:?}"));
    for name in ["one", "two"] {
        let created = client.send(post(THINGS, thing("shared.example", name))).await;
        assert_eq!(created.status, StatusCode::CREATED);
    }
    assert_eq!(cluster.met(THINGS)[home], 8, "writes too");
    // Other client connections use other peers.
    for _ in 0..6 {
        assert_eq!(cluster.client().await.send(get(THINGS)).await.status, StatusCode::OK);
    }
    assert!(cluster.met(THINGS)[home] < 14, "{:?}", cluster.met(THINGS));

    cluster.fronts[home].becomes(Mode::Reset);
    let before = cluster.met(THINGS);
    for _ in 0..6 {
        assert_eq!(client.send(get(THINGS)).await.status, StatusCode::OK);
    }
    let mut gained: Vec<_> = cluster.met(THINGS).iter().zip(before).map(|(a, b)| a - b).collect();
    gained.sort_unstable();
    assert_eq!(gained, [0, 0, 6], "it stays with another");
}

#[tokio::test]
async fn a_write_goes_to_the_newest_member_and_later_reads_follow_it() {
    let cluster = Cluster::start(&["v1.35.0", "v1.36.0", "v1.35.0"]).await;
    for _ in 0..4 {
        let mut client = cluster.client().await;
        assert_eq!(client.send(get(OTHERS)).await.status, StatusCode::OK);
        let before = cluster.met(OTHERS)[1];
        let create = request(Method::POST, OTHERS, full("{}"));
        client.send(create).await;
        assert_eq!(client.send(get(OTHERS)).await.status, StatusCode::OK);
        assert_eq!(cluster.met(OTHERS)[1], before + 2);
    }
}

#[tokio::test]
async fn requests_go_to_the_least_loaded_member() {
    let cluster = Cluster::start(&["v1.36.0", "v1.36.0"]).await;
    for peer in &cluster.peers {
        peer.rule(THINGS, |_| std::future::pending());
        peer.rule(OTHERS_SLOW, |_| std::future::pending());
    }
    // Four on one connection, which stay together, then four on others. None is ever answered.
    let Client::Http2(staying) = cluster.client().await else { panic!("HTTP/2 was asked for") };
    let mut waiting = Vec::new();
    for index in 0..8 {
        let mut client =
            if index < 4 { Client::Http2(staying.clone()) } else { cluster.client().await };
        // It sticks to the peer that answered first.
        if index == 0 {
            client.send(get(OTHERS)).await;
        }
        let path = if index < 4 { OTHERS_SLOW } else { THINGS };
        waiting.push(tokio::spawn(async move { client.try_open(get(path)).await }));
        let arrived = || cluster.met(OTHERS_SLOW).iter().chain(&cluster.met(THINGS)).sum::<usize>();
        crate::until(|| arrived() == index + 1).await;
    }
    let mut met = cluster.met(OTHERS_SLOW);
    let busy = met.iter().position(|met| *met == 4).unwrap_or_else(|| panic!("{met:?}"));
    met = cluster.met(THINGS);
    assert_eq!((met[busy], met[1 - busy]), (0, 4));
    for waiting in waiting {
        waiting.abort();
    }
}

#[tokio::test]
async fn an_unreachable_peer_is_ejected_until_it_is_reachable() {
    let cluster = Cluster::start(&["v1.37.0", "v1.36.0"]).await;
    let ejected = "mvp_ejected{member=\"b\"}";
    cluster.fronts[0].becomes(Mode::Reset);
    for _ in 0..10 {
        assert_eq!(cluster.client().await.send(get(THINGS)).await.status, StatusCode::OK);
    }
    assert_eq!(cluster.met(THINGS), [0, 10]);
    assert_eq!(cluster.gateway.metric(ejected).unwrap(), "1");
    // As the only peer, it still gets requests.
    cluster.fronts[1].becomes(Mode::Reset);
    let refused = cluster.client().await.send(get(THINGS)).await;
    refused.assert_refusal();
    assert!(refused.text().contains("tried"), "{}", refused.text());

    cluster.fronts[0].becomes(Mode::Through);
    cluster.fronts[1].becomes(Mode::Through);
    cluster.looks_around().await;
    assert_eq!(cluster.gateway.metric(ejected).unwrap(), "0", "discovery found it well");
    let create = post(THINGS, thing("shared.example", "one"));
    assert_eq!(cluster.client().await.send(create).await.status, StatusCode::CREATED);
    assert_eq!(cluster.met(THINGS), [1, 10], "the newest is asked for writes again");
}

/// The most retries after so many requests: a hundred at the start, a fifth of the requests, and ten per
/// second since the gateway started, by its own clock.
fn retry_budget(gateway: &Gateway, requests: usize) -> usize {
    let since_start = gateway.reader.now().since(Timestamp::default());
    100 + requests / 5 + since_start.as_millis() as usize / 100
}

#[tokio::test]
async fn failovers_stay_within_the_retry_budget() {
    const REQUESTS: usize = 300;
    let cluster = Cluster::start(&["v1.36.0", "v1.36.0"]).await;
    for front in &cluster.fronts {
        front.becomes(Mode::AfterSending);
    }
    let mut client = cluster.client().await;
    for _ in 0..REQUESTS {
        client.send(get(THINGS)).await.assert_refusal();
    }
    let sent: usize = cluster.fronts.iter().map(Front::heads).sum();
    let bound = REQUESTS + retry_budget(&cluster.gateway, REQUESTS);
    assert!(sent > REQUESTS && sent <= bound, "{sent} of at most {bound}");
    let refusals = cluster.gateway.metric("mvp_retry_budget_refusals_total").unwrap();
    assert_eq!(refusals.parse::<usize>().unwrap(), 2 * REQUESTS - sent);
}

#[tokio::test]
async fn failovers_from_the_local_server_stay_within_the_retry_budget() {
    const REQUESTS: usize = 300;
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &groups).await;
    let peer = Double::start("b", "v1.36.0", &groups).await;
    let front = Front::before(&local).await;
    let plan = Gateway::beside_address("a", front.address).await.unwatched();
    let gateway = plan.bare("b", peer.address).start().await;
    front.becomes(Mode::AfterSending);
    let mut client = Client::connect(gateway.address, BOTH[1], Some(&pki().alice)).await;
    let mut answered = 0;
    for _ in 0..REQUESTS {
        let answer = client.send(get(THINGS)).await;
        match answer.status {
            StatusCode::OK => answered += 1,
            _ => answer.assert_refusal(),
        }
    }
    let bound = retry_budget(&gateway, REQUESTS);
    assert!(answered > 0 && answered <= bound, "{answered} of at most {bound}");
    assert_eq!(peer.requests.of(THINGS).len(), answered);
    let failovers = "mvp_failovers_total{after=\"sent\",outcome=\"answered\"}";
    assert_eq!(gateway.metric(failovers).unwrap(), answered.to_string());
}

#[tokio::test]
async fn a_stopped_peer_is_detected_for_anonymous_callers_too() {
    let cluster = Cluster::start(&["v1.37.0", "v1.36.0"]).await;
    let (said, mut hear) = tokio::sync::mpsc::channel(1);
    cluster.peers[0].rule(THINGS, move |request| {
        let said = said.clone();
        async move {
            request.into_body().collect().await.unwrap();
            said.send(()).await.unwrap();
            std::future::pending().await
        }
    });
    cluster.peers[1].says(THINGS, 200, "text/plain", "fine");
    // There are no PINGs over HTTP/1.1.
    let read = ask(cluster.gateway.address, BOTH[0], None, get(THINGS));
    let stop = async {
        soon(hear.recv()).await.unwrap();
        cluster.fronts[0].becomes(Mode::Hang);
    };
    let (read, ()) = tokio::join!(read, stop);
    assert_eq!(read.text(), "fine");
}

#[tokio::test]
async fn a_slow_response_is_not_a_hang() {
    let slow = async |who| {
        let cluster = Cluster::start(&["v1.37.0", "v1.36.0"]).await;
        cluster.peers[0].rule(THINGS, |_| async {
            // Longer than the detection of a hang.
            tokio::time::sleep(Duration::from_secs(5)).await;
            answer(StatusCode::OK, full("at last"))
        });
        cluster.peers[1].says(THINGS, 200, "text/plain", "too early");
        let read = ask(cluster.gateway.address, BOTH[1], who, get(THINGS)).await;
        assert_eq!(read.text(), "at last");
    };
    tokio::join!(slow(None), slow(Some(&pki().alice)));
}
