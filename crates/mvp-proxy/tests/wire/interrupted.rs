//! Exchanges that are broken off: a part never looks like the whole, and what was not processed is
//! sent again.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;

use crate::broken::{End, Front, Mode};
use crate::client::{BOTH, Client, Protocol, ask, get, post, request, streamed, tls, with};
use crate::double::Double;
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;
use crate::soon;

const THEIRS: &str = "/apis/theirs.example/v1/namespaces/default/things";
const OURS: &str = "/apis/ours.example/v1/namespaces/default/things";

/// A gateway with one peer, both servers over ways that break.
struct Cluster {
    ours: Front,
    theirs: Front,
    gateway: Gateway,
    _servers: [Double; 2],
}

async fn cluster() -> Cluster {
    let local = Double::start("a", "v1.36.0", &[("ours.example", "things")]).await;
    let peer = Double::start("b", "v1.36.0", &[("theirs.example", "things")]).await;
    let (ours, theirs) = (Front::before(&local).await, Front::before(&peer).await);
    let plan = Gateway::beside_address("a", ours.address).await;
    let gateway = plan.bare("b", theirs.address).start().await;
    Cluster { ours, theirs, gateway, _servers: [local, peer] }
}

impl Cluster {
    fn becomes(&self, mode: Mode) {
        self.ours.becomes(mode);
        self.theirs.becomes(mode);
    }

    fn front(&self, path: &str) -> &Front {
        if path == OURS { &self.ours } else { &self.theirs }
    }
}

#[tokio::test]
async fn a_request_unprocessed_after_goaway_is_retried() {
    // kube-apiserver says GOAWAY at times, to spread its clients or after a 401.
    for (path, group) in [(OURS, "ours.example"), (THEIRS, "theirs.example")] {
        for (index, method) in [Method::GET, Method::POST].into_iter().enumerate() {
            let cluster = cluster().await;
            cluster.becomes(Mode::GoAwayOnce);
            let request = match method {
                Method::GET => get(path),
                _ => post(path, thing(group, &format!("again-{index}"))),
            };
            let answer = ask(cluster.gateway.address, BOTH[1], Some(&pki().alice), request).await;
            assert!(answer.status.is_success(), "{path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn an_aborted_upload_is_not_complete_for_the_server() {
    for path in [OURS, THEIRS] {
        for protocol in BOTH {
            let cluster = cluster().await;
            cluster.becomes(Mode::Listen);
            let (sender, body) = streamed();
            let request = request(Method::POST, path, body);
            let alice = Some(&pki().alice);
            let mut client = Client::connect(cluster.gateway.address, protocol, alice).await;
            let sending = async {
                sender.send(Frame::data(Bytes::from(vec![7; 10 << 10]))).await.unwrap();
                // The first piece was taken when the second can be put.
                sender.send(Frame::data(Bytes::from(vec![7; 10 << 10]))).await.unwrap();
            };
            let exchange = client.try_open(request);
            tokio::select! {
                answer = exchange => panic!("an answer: {answer:?}"),
                () = async { sending.await; cluster.front(path).heard().await } => {}
            }
            drop(client);
            assert_eq!(cluster.front(path).end().await, End::Broken, "{path} {protocol:?}");
            drop(sender);
        }
    }
}

#[tokio::test]
async fn an_upload_shorter_than_its_length_is_not_complete_for_the_server() {
    for path in [OURS, THEIRS] {
        for framing in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
            let cluster = cluster().await;
            cluster.becomes(Mode::Listen);
            let alice = Some(&pki().alice);
            let mut stream = tls(cluster.gateway.address, b"http/1.1", alice).await;
            let text =
                format!("POST {path} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\na\r\n0123456789\r\n");
            stream.write_all(text.as_bytes()).await.unwrap();
            cluster.front(path).heard().await;
            stream.shutdown().await.unwrap();
            assert_eq!(cluster.front(path).end().await, End::Broken, "{path} {framing}");
        }
    }
}

#[tokio::test]
async fn a_response_reset_by_its_server_does_not_look_complete() {
    for path in [OURS, THEIRS] {
        for protocol in BOTH {
            let cluster = cluster().await;
            cluster.becomes(Mode::CancelAnswer);
            let request = with(get(path), "authorization", "Bearer of-carol");
            let mut client = Client::connect(cluster.gateway.address, protocol, None).await;
            let Ok(response) = soon(client.try_open(request)).await else { continue };
            if response.status() != StatusCode::OK {
                continue;
            }
            // hyper, our client's too, takes a cancelled stream for one that ended: look below it.
            let body = soon(response.into_body().collect()).await;
            let case = format!("{path} {protocol:?}");
            assert!(body.is_err(), "{case}: {:?}", body.map(|body| body.to_bytes()));
        }
    }
}

#[tokio::test]
async fn an_unreachable_local_server_is_503() {
    let cluster = cluster().await;
    cluster.becomes(Mode::Refuse);
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for path in ["/healthz", OURS, THEIRS, "/apis"] {
            ask(cluster.gateway.address, protocol, None, get(path)).await.assert_refusal();
        }
    }
}
