//! Whose fault it is: a server answers for what it does itself, not for what its client sends, and
//! not for taking its time.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use mvp_core::decide::LocalHealth;

use crate::broken::{Front, Mode};
use crate::client::{BOTH, Client, ask, full, post, raw, request, streamed, with};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;
use crate::switched::{try_tunnel, websocket};
use crate::until;

/// Served by two peers, the first of them newer.
const THEIRS: &str = "/apis/theirs.example/v1/namespaces/default/things";
/// Served by the local server and by a peer.
const OURS: &str = "/apis/ours.example/v1/namespaces/default/things";

struct Cluster {
    local: Double,
    newer: Double,
    older: Double,
    gateway: Gateway,
}

impl Cluster {
    /// All servers read what they are sent to its end.
    async fn start() -> Cluster {
        let (ours, theirs) = (("ours.example", "things"), ("theirs.example", "things"));
        let local = Double::start("a", "v1.36.0", &[ours]).await;
        let newer = Double::start("b", "v1.37.0", &[ours, theirs]).await;
        let older = Double::start("c", "v1.36.0", &[ours, theirs]).await;
        for (server, path) in [(&local, OURS), (&newer, THEIRS), (&older, THEIRS)] {
            server.rule(path, |request| async {
                let _ = request.into_body().collect().await;
                answer(StatusCode::OK, full("fine"))
            });
        }
        let plan = Gateway::beside("a", &local).await;
        let plan = plan.bare("b", newer.address).bare("c", older.address);
        Cluster { gateway: plan.start().await, local, newer, older }
    }

    /// Nobody is blamed, and nobody else was asked.
    fn assert_well(&self) {
        let metric = |name: &str| self.gateway.metric(name);
        assert_eq!(metric("mvp_ejections_total{member=\"b\"}"), None);
        for after in ["sent", "not-sent"] {
            for outcome in ["answered", "failed"] {
                let failovers =
                    format!("mvp_failovers_total{{after=\"{after}\",outcome=\"{outcome}\"}}");
                assert_eq!(metric(&failovers), None, "{failovers}");
            }
        }
        assert_eq!(self.gateway.state.get(), LocalHealth::Ready);
        assert_eq!(self.older.requests.of(THEIRS).len(), 0, "the older one was asked");
        assert_eq!(self.newer.requests.of(OURS).len(), 0, "a peer was asked for the local server");
    }
}

#[tokio::test]
async fn a_request_body_aborted_by_the_client_ejects_no_server() {
    let cluster = Cluster::start().await;
    for path in [THEIRS, OURS] {
        for who in [None, Some(&pki().alice)] {
            for method in ["POST", "PUT", "PATCH", "POST"] {
                let text = format!(
                    "{method} {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nno number\r\n"
                );
                let said = raw(cluster.gateway.address, who, text.as_bytes()).await;
                assert!(said.starts_with("HTTP/1.1 400 "), "{path}: {said}");
                assert!(said.contains("\"reason\":\"BadRequest\""), "{path}: {said}");
            }
        }
    }
    cluster.assert_well();
    assert!(!cluster.local.requests.of(OURS).is_empty());
    let write = post(THEIRS, thing("theirs.example", "one"));
    let said = ask(cluster.gateway.address, BOTH[1], Some(&pki().alice), write).await;
    assert_eq!(said.text(), "fine");
    cluster.assert_well();
}

#[tokio::test]
async fn a_client_that_disconnects_during_its_body_ejects_no_server() {
    let cluster = Cluster::start().await;
    for path in [THEIRS, OURS] {
        for protocol in BOTH {
            for _ in 0..4 {
                let met = || {
                    cluster.local.requests.of(path).len() + cluster.newer.requests.of(path).len()
                };
                let before = met();
                let (sender, body) = streamed();
                let upload = with(request(Method::POST, path, body), "authorization", "Bearer x");
                let mut client = Client::connect(cluster.gateway.address, protocol, None).await;
                let leave = async {
                    sender.send(Frame::data(Bytes::from_static(b"a part"))).await.unwrap();
                    until(|| met() > before).await;
                };
                tokio::select! {
                    said = client.try_open(upload) => panic!("{said:?}"),
                    () = leave => {}
                }
            }
        }
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.assert_well();
}

#[tokio::test]
async fn a_server_that_accepts_no_new_connections_finishes_open_requests() {
    let theirs = [("theirs.example", "things")];
    let local = Double::start("a", "v1.36.0", &[]).await;
    let peer = Double::start("b", "v1.36.0", &theirs).await;
    peer.rule(THEIRS, |_| async {
        // Longer than until the first look whether it hangs.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        answer(StatusCode::CREATED, full("at last"))
    });
    let front = Front::before(&peer).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", front.address).start().await;
    // Nobody's requests travel over HTTP/1.1.
    let write = ask(gateway.address, BOTH[0], None, post(THEIRS, thing("theirs.example", "one")));
    let close = async {
        until(|| peer.requests.of(THEIRS).len() == 1).await;
        front.closes();
    };
    let (said, ()) = tokio::join!(write, close);
    assert_eq!((said.status, said.text().as_str()), (StatusCode::CREATED, "at last"));
}

#[tokio::test]
async fn a_hanging_server_is_detected_by_an_upgrade_request() {
    let theirs = [("theirs.example", "things")];
    let local = Double::start("a", "v1.36.0", &[]).await;
    let peer = Double::start("b", "v1.36.0", &theirs).await;
    peer.rule(THEIRS, |_| std::future::pending());
    let front = Front::before(&peer).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", front.address).start().await;
    let path = format!("{THEIRS}?watch=1");
    let hang = async {
        until(|| peer.requests.of(THEIRS).len() == 1).await;
        front.becomes(Mode::Hang);
    };
    let asked = try_tunnel(gateway.address, Some(&pki().alice), websocket(&path));
    let asked = tokio::time::timeout(Duration::from_secs(12), asked);
    let (said, ()) = tokio::join!(asked, hang);
    said.expect("in time").unwrap_err().assert_refusal();
}
