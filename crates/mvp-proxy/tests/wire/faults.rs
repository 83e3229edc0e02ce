//! Every stage at which a connection can break, every kind of request, both protocols, at a peer
//! and at the local server: no write is sent twice, and reads are retried.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use mvp_core::decide::LocalHealth;
use testkit::certificates::Pair;

use crate::broken::{Front, Mode};
use crate::client::{Answer, BOTH, Client, Protocol, TestBody, full, get, request, with};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::soon;

const THINGS: &str = "/apis/shared.example/v1/namespaces/default/things";
const FINE: &str = "fine";
/// How long a peer is ejected for the first time.
const FIRST_EJECTION: Duration = Duration::from_secs(1);

/// A kind of request, and whether it may be retried after it may have been processed.
const KINDS: [(&str, Method, &str, bool); 9] = [
    ("get", Method::GET, "/one", true),
    ("list", Method::GET, "", true),
    ("watch", Method::GET, "?watch=true", true),
    ("create", Method::POST, "", false),
    ("update", Method::PUT, "/one", false),
    ("patch", Method::PATCH, "/one", false),
    ("delete", Method::DELETE, "/one", false),
    ("exec", Method::GET, "/one/exec?command=ls", false),
    ("proxy", Method::GET, "/one/proxy/path", false),
];

/// How far a request gets before the connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It was provably not processed.
    Nothing,
    /// It may have been processed.
    Sent,
    /// A part of the response arrived.
    Answered,
}

const MODES: [(Mode, Reach, &[Protocol]); 9] = [
    (Mode::Refuse, Reach::Nothing, &BOTH),
    (Mode::Reset, Reach::Nothing, &BOTH),
    (Mode::RefuseStream, Reach::Nothing, &[Protocol::Http2]),
    (Mode::GoAway, Reach::Nothing, &[Protocol::Http2]),
    (Mode::MidBody, Reach::Sent, &BOTH),
    (Mode::AfterSending, Reach::Sent, &BOTH),
    (Mode::PartHead, Reach::Sent, &BOTH),
    (Mode::GoAwayProcessed, Reach::Sent, &[Protocol::Http2]),
    (Mode::MidAnswer, Reach::Answered, &BOTH),
];

/// A server through a proxy that breaks, and a healthy one.
struct Cluster {
    gateway: Gateway,
    front: Front,
    fine: Double,
    _others: Vec<Double>,
}

impl Cluster {
    /// The broken one is a peer, which is tried first because it is the newest.
    async fn of_peers() -> Cluster {
        let groups = [("shared.example", "things")];
        let local = Double::start("a", "v1.36.0", &[]).await;
        let broken = Double::start("b", "v1.37.0", &groups).await;
        let fine = fine("c").await;
        let front = Front::before(&broken).await;
        let plan = Gateway::beside("a", &local).await.unwatched();
        let gateway = plan.bare("b", front.address).bare("c", fine.address).start().await;
        Cluster { gateway, front, fine, _others: vec![local, broken] }
    }

    /// The broken one is the local server.
    async fn of_local() -> Cluster {
        let local = Double::start("a", "v1.36.0", &[("shared.example", "things")]).await;
        let fine = fine("c").await;
        let front = Front::before(&local).await;
        let plan = Gateway::beside_address("a", front.address).await.unwatched();
        let gateway = plan.bare("c", fine.address).start().await;
        Cluster { gateway, front, fine, _others: vec![local] }
    }

    async fn send(
        &self,
        client: Protocol,
        who: Option<&Pair>,
        request: Request<TestBody>,
    ) -> Result<Answer, hyper::Error> {
        let mut client = Client::connect(self.gateway.address, client, who).await;
        Answer::read(soon(client.try_open(request)).await?).await
    }
}

async fn fine(id: &str) -> Double {
    let fine = Double::start(id, "v1.36.0", &[("shared.example", "things")]).await;
    fine.rule(THINGS, |request| async {
        request.into_body().collect().await.unwrap();
        answer(StatusCode::OK, full(FINE))
    });
    fine
}

/// Large enough to arrive in pieces.
fn upload() -> Bytes {
    Bytes::from(vec![b'x'; 40 << 10])
}

async fn check(broken: &str, mode: Mode, reach: Reach, upstream: Protocol, client: Protocol) {
    for (kind, method, rest, replayable) in KINDS {
        // Responses of containers and backends use private connections, with the client's protocol.
        let relayed = matches!(kind, "exec" | "proxy");
        if relayed && upstream == Protocol::Http2 && client == Protocol::Http1 {
            continue;
        }
        let case = format!("{kind}, {broken} {mode:?} over {upstream:?}, client {client:?}");
        let cluster = match broken {
            "peer" => Cluster::of_peers().await,
            _ => Cluster::of_local().await,
        };
        cluster.front.becomes(mode);
        // Anonymous requests use HTTP/1.1, all others HTTP/2.
        let who = (upstream == Protocol::Http2).then(|| &pki().alice);
        let path = format!("{THINGS}{rest}");
        let sent = match method {
            Method::GET => get(&path),
            _ => request(method.clone(), &path, full(upload())),
        };
        let answer = cluster.send(client, who, sent).await;
        let met = cluster.fine.requests.of(THINGS);
        let heads = cluster.front.heads();
        match (reach, replayable) {
            (Reach::Nothing, _) | (Reach::Sent, true) => {
                let answer = answer.expect(&case);
                assert_eq!((answer.status, &*answer.text()), (StatusCode::OK, FINE), "{case}");
                assert_eq!(met.len(), 1, "{case}");
                let whole = if method == Method::GET { Bytes::new() } else { upload() };
                assert_eq!(met[0].body, whole, "{case}");
            }
            (Reach::Sent, false) => {
                answer.expect(&case).assert_refusal();
                assert!(met.is_empty(), "{case}: sent to another");
            }
            (Reach::Answered, _) => {
                assert!(answer.is_err(), "{case}: a part looks whole: {answer:?}");
                assert!(met.is_empty(), "{case}: sent to another");
            }
        }
        if reach != Reach::Nothing {
            assert_eq!(heads, 1, "{case}: sent once");
        }
    }
}

#[tokio::test]
async fn every_fault_of_a_peer_is_handled() {
    for (mode, reach, protocols) in MODES {
        for upstream in protocols {
            for client in BOTH {
                check("peer", mode, reach, *upstream, client).await;
            }
        }
    }
}

#[tokio::test]
async fn every_fault_of_the_local_server_is_handled() {
    for (mode, reach, protocols) in MODES {
        for upstream in protocols {
            for client in BOTH {
                check("local", mode, reach, *upstream, client).await;
            }
        }
    }
}

#[tokio::test]
async fn an_upgrade_request_is_sent_once() {
    let cluster = Cluster::of_peers().await;
    cluster.front.becomes(Mode::AfterSending);
    let sent = with(with(get(THINGS), "upgrade", "websocket"), "connection", "upgrade");
    let answer = cluster.send(BOTH[0], Some(&pki().alice), sent).await;
    if let Ok(answer) = answer {
        assert_ne!(answer.text(), FINE);
    }
    assert!(cluster.fine.requests.of(THINGS).is_empty());
}

#[tokio::test]
async fn unprocessed_requests_try_every_peer_and_sent_reads_fail_over_once() {
    for (mode, status) in [
        (Mode::Refuse, StatusCode::OK),
        (Mode::Reset, StatusCode::OK),
        (Mode::AfterSending, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let groups = [("shared.example", "things")];
        let local = Double::start("a", "v1.36.0", &[]).await;
        let dead = [
            Double::start("b", "v1.37.0", &groups).await,
            Double::start("c", "v1.37.0", &groups).await,
        ];
        let fronts = [Front::before(&dead[0]).await, Front::before(&dead[1]).await];
        let fine = fine("d").await;
        // A probe would find out first, and count as a head.
        let plan = Gateway::beside("a", &local).await.unwatched();
        let plan = plan.bare("b", fronts[0].address).bare("c", fronts[1].address);
        let gateway = plan.bare("d", fine.address).start().await;
        for front in &fronts {
            front.becomes(mode);
        }
        let mut client = Client::connect(gateway.address, BOTH[1], Some(&pki().alice)).await;
        let began = gateway.reader.now();
        assert_eq!(client.send(get(THINGS)).await.status, status, "{mode:?}");
        if status != StatusCode::OK {
            assert_eq!([fronts[0].heads(), fronts[1].heads()], [1, 1], "two tries in all");
            continue;
        }
        assert_eq!(gateway.metric("mvp_ejections_total{member=\"b\"}").unwrap(), "1");
        assert_eq!(gateway.metric("mvp_ejections_total{member=\"c\"}").unwrap(), "1");
        let failovers = "mvp_failovers_total{after=\"not-sent\",outcome=\"answered\"}";
        assert_eq!(gateway.metric(failovers).unwrap(), "1");
        // Now it is known to be down: nobody tries it again, not even for a write. On a slow machine the
        // ejections are over by now, and this write may try both again.
        let create = request(Method::POST, THINGS, full("{}"));
        assert_eq!(client.send(create).await.status, status);
        if gateway.reader.now().since(began) < FIRST_EJECTION {
            assert_eq!(gateway.metric(failovers).unwrap(), "1");
        }
    }
}

#[tokio::test]
async fn a_hanging_server_is_detected_by_ping_and_tls_timeouts() {
    let cluster = Cluster::of_peers().await;
    // An idle watch and a read in flight, on connections that stay open.
    let mut watcher = Client::connect(cluster.gateway.address, BOTH[1], Some(&pki().alice)).await;
    let watch = watcher.open(get(&format!("{THINGS}?watch=true"))).await;
    assert_eq!(watch.status(), StatusCode::OK);
    let (said, mut hear) = tokio::sync::mpsc::channel(8);
    let said = Mutex::new(Some(said));
    cluster._others[1].rule("/apis/shared.example/v1/namespaces/default/things/slow", move |_| {
        let said = said.lock().unwrap().take();
        async move {
            if let Some(said) = said {
                said.send(()).await.unwrap();
            }
            std::future::pending().await
        }
    });
    let slow = watcher.send(get(&format!("{THINGS}/slow")));
    let hang = async {
        soon(hear.recv()).await.unwrap();
        cluster.front.becomes(Mode::Hang);
    };
    let (answer, ()) = tokio::join!(slow, hang);
    assert_eq!(answer.text(), FINE, "the read went on");
    assert!(soon(watch.into_body().collect()).await.is_err(), "the watch ended");
    // A new connection is accepted by the kernel only.
    let create = request(Method::POST, THINGS, full("{}"));
    let answer = cluster.send(BOTH[1], Some(&pki().alice), create).await.unwrap();
    assert_eq!(answer.text(), FINE);
}

#[tokio::test]
async fn a_hanging_local_server_is_detected() {
    let cluster = Cluster::of_local().await;
    let mut client = Client::connect(cluster.gateway.address, BOTH[1], Some(&pki().alice)).await;
    assert_ne!(client.send(get(THINGS)).await.text(), FINE, "it answers itself");
    cluster.front.becomes(Mode::Hang);
    // Over the open connection, then over a new one.
    assert_eq!(client.send(get(THINGS)).await.text(), FINE);
    assert_eq!(client.send(request(Method::POST, THINGS, full("{}"))).await.text(), FINE);
    assert_eq!(cluster.gateway.state.get(), LocalHealth::Unreachable);
}
