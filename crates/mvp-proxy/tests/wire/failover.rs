//! Peers that break: reads go on to the next, writes only where nothing can have been processed,
//! and a broken answer never looks like a whole one.

use std::sync::Mutex;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;

use crate::broken::{Front, Mode};
use crate::client::{Answer, BOTH, Client, ask, full, get, post, streamed, with};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;
use crate::soon;

const SHARED: &str = "/apis/shared.example/v1/namespaces/default/things";

/// Two peers that serve the same, the first over a way that breaks.
struct Pair {
    first: Double,
    front: Front,
    second: Double,
    gateway: Gateway,
    _local: Double,
}

impl Pair {
    async fn start() -> Pair {
        let groups = [("shared.example", "things")];
        let local = Double::start("a", "v1.36.0", &[]).await;
        let first = Double::start("b", "v1.36.0", &groups).await;
        let second = Double::start("c", "v1.36.0", &groups).await;
        let front = Front::before(&first).await;
        let plan = Gateway::beside("a", &local).await;
        let gateway = plan.bare("b", front.address).bare("c", second.address).start().await;
        Pair { first, front, second, gateway, _local: local }
    }

    /// Over connections that are open already, or over new ones.
    async fn breaks(mode: Mode, warm: bool) -> Pair {
        let pair = Pair::start().await;
        if warm {
            for who in [None, Some(&pki().alice)] {
                for _ in 0..2 {
                    let answer = ask(pair.gateway.address, BOTH[1], who, get(SHARED)).await;
                    assert_eq!(answer.status, StatusCode::OK);
                }
            }
        }
        pair.front.becomes(mode);
        pair
    }

    async fn read(&self) {
        for protocol in BOTH {
            for who in [None, Some(&pki().alice)] {
                // Reads are spread: one of two meets the broken peer first.
                for _ in 0..2 {
                    let answer = ask(self.gateway.address, protocol, who, get(SHARED)).await;
                    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
                }
            }
        }
    }

    /// How many requests both peers have seen at the place of things.
    fn seen(&self) -> usize {
        [&self.first, &self.second].iter().map(|double| double.requests.of(SHARED).len()).sum()
    }

    async fn write(&self, name: &str) -> Answer {
        let request = post(SHARED, thing("shared.example", name));
        ask(self.gateway.address, BOTH[1], Some(&pki().alice), request).await
    }
}

#[tokio::test]
async fn reads_fail_over_to_the_next_peer() {
    for mode in [
        Mode::Refuse,
        Mode::Reset,
        Mode::Garbage,
        Mode::CloseAtHead,
        Mode::RefuseStream,
        Mode::GoAway,
    ] {
        for warm in [false, true] {
            println!("{mode:?}, warm: {warm}");
            Pair::breaks(mode, warm).await.read().await;
        }
    }
}

#[tokio::test]
async fn unprocessed_writes_fail_over_to_the_next_peer() {
    for mode in [Mode::Refuse, Mode::Reset, Mode::RefuseStream, Mode::GoAway] {
        let pair = Pair::breaks(mode, false).await;
        for name in ["one", "two"] {
            let answer = pair.write(name).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{mode:?}: {}", answer.text());
        }
        assert_eq!(pair.first.server().processed(&Method::POST), 0);
        assert_eq!(pair.second.server().processed(&Method::POST), 2);
        let sent: Vec<_> = pair.second.requests.of(SHARED);
        assert!(sent.iter().any(|seen| seen.body == thing("shared.example", "one").as_bytes()));
    }
}

#[tokio::test]
async fn writes_that_may_have_been_processed_are_not_retried() {
    for mode in [Mode::Garbage, Mode::CloseAtHead] {
        let pair = Pair::breaks(mode, false).await;
        pair.write("one").await.assert_refusal();
        assert_eq!(pair.second.server().processed(&Method::POST), 0, "{mode:?}");
        if mode == Mode::CloseAtHead {
            assert_eq!(pair.front.heads(), 1, "sent once");
        }
    }
}

#[tokio::test]
async fn a_write_is_processed_once_when_its_response_is_lost() {
    let pair = Pair::start().await;
    let (said, mut hear) = tokio::sync::mpsc::channel(8);
    pair.first.rule(SHARED, move |request| {
        let said = said.clone();
        async move {
            request.into_body().collect().await.unwrap();
            said.send(()).await.unwrap();
            std::future::pending().await
        }
    });
    let write = pair.write("one");
    let cut = async {
        soon(hear.recv()).await.unwrap();
        pair.front.becomes(Mode::Refuse);
    };
    let (answer, ()) = tokio::join!(write, cut);
    answer.assert_refusal();
    assert_eq!(pair.first.requests.of(SHARED).len(), 1);
    assert!(pair.second.requests.of(SHARED).is_empty());
    // A read in the same place goes on, once.
    let pair = Pair::start().await;
    for broken in [&pair.first, &pair.second] {
        broken.rule(SHARED, |_| std::future::pending());
    }
    let read = ask(pair.gateway.address, BOTH[1], None, get(SHARED));
    let cut = async {
        pair.first.requests.wait(|seen| seen.target == SHARED).await;
        pair.second.rule(SHARED, |_| std::future::ready(answer_of("second")));
        pair.front.becomes(Mode::Refuse);
    };
    let (answer, ()) = tokio::join!(read, cut);
    assert_eq!(answer.text(), "second");
    assert_eq!(pair.first.requests.of(SHARED).len(), 1);
    assert_eq!(pair.second.requests.of(SHARED).len(), 1);
}

fn answer_of(text: &'static str) -> http::Response<crate::client::TestBody> {
    answer(StatusCode::OK, full(text))
}

#[tokio::test]
async fn refusals_name_unavailable_peers_only_to_authenticated_callers() {
    let pair = Pair::breaks(Mode::CloseAtHead, false).await;
    let answer = pair.write("one").await;
    answer.assert_refusal();
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("things.v1.shared.example"), "{message}");
    assert!(message.contains("tried b"), "{message}");
    assert!(!answer.text().contains("127.0.0.1"), "{message}");
    let request = post(SHARED, thing("shared.example", "two"));
    let answer = ask(pair.gateway.address, BOTH[1], None, request).await;
    answer.assert_refusal();
    assert!(!answer.text().contains("tried"), "{}", answer.text());
}

/// What kube-apiserver 1.34 and 1.36 say to a request that comes when they shut down, word for word.
const LEAVING: &str = concat!(
    r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"apiserver is shutting down","reason":"ServiceUnavailable","code":503}"#,
    "\n"
);

/// Says this from now on where things are asked for, as one does that shuts down.
fn leaves(double: &Double, body: &str) {
    says_with(double, body, &[]);
}

/// The same with these headers.
fn says_with(double: &Double, body: &str, more: &'static [(&'static str, &'static str)]) {
    let body = body.to_owned();
    double.rule(SHARED, move |_| {
        let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, full(body.clone()));
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("retry-after", HeaderValue::from_static("1"));
        for (name, value) in more {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        std::future::ready(response)
    });
}

#[tokio::test]
async fn a_request_rejected_by_a_shutting_down_server_is_retried_elsewhere() {
    let groups = [("shared.example", "things")];
    let servers = async || {
        let leaving = Double::start("b", "v1.36.0", &groups).await;
        leaves(&leaving, LEAVING);
        (leaving, Double::start("c", "v1.36.0", &groups).await)
    };
    let requests = |name: &str| [get(SHARED), post(SHARED, thing("shared.example", name))];
    // At a peer, and at the local server, of which nobody has found out yet.
    let local = Double::start("a", "v1.36.0", &[]).await;
    let (b, c) = servers().await;
    let plan = Gateway::beside("a", &local).await;
    let by_peers = plan.bare("b", b.address).bare("c", c.address).start().await;
    let (leaving, other) = servers().await;
    let plan = Gateway::beside("b", &leaving).await.unwatched();
    let by_local = plan.bare("c", other.address).start().await;
    for (gateway, capable) in [(by_peers, c), (by_local, other)] {
        let mut made = 0;
        for protocol in BOTH {
            for round in 0..2 {
                made += 1;
                for request in requests(&format!("thing-{made}-{round}")) {
                    let answer = ask(gateway.address, protocol, Some(&pki().alice), request).await;
                    assert!(answer.status.is_success(), "{}", answer.text());
                }
            }
        }
        let stored = ask(capable.address, BOTH[1], Some(&pki().alice), get(SHARED)).await;
        let stored = stored.json()["items"].as_array().map(Vec::len);
        assert_eq!(stored, Some(made), "each was made once, by the one that stays");
    }
}

#[tokio::test]
async fn only_the_exact_shutdown_response_of_kube_apiserver_allows_a_retry() {
    let pair = Pair::start().await;
    let others = [
        LEAVING.replace("apiserver is", "the backend is"),
        LEAVING.replace("message", "massage"),
        "apiserver is shutting down".to_owned(),
    ];
    for body in others {
        for double in [&pair.first, &pair.second] {
            leaves(double, &body);
        }
        let answer = pair.write("one").await;
        assert_eq!((answer.status, answer.text()), (StatusCode::SERVICE_UNAVAILABLE, body));
    }
    // Nor when a server has passed the request on: its own words come before it knows a priority.
    for double in [&pair.first, &pair.second] {
        says_with(double, LEAVING, &[("x-kubernetes-pf-flowschema-uid", "7a1d")]);
    }
    let before = pair.seen();
    let answer = pair.write("one").await;
    assert_eq!(
        (answer.status, answer.text()),
        (StatusCode::SERVICE_UNAVAILABLE, LEAVING.to_owned())
    );
    assert_eq!(pair.seen(), before + 1);
}

#[tokio::test]
async fn peers_without_address_or_unreachable_give_503() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let serves = Double::start("b", "v1.36.0", &[("shared.example", "things")]).await;
    let front = Front::before(&serves).await;
    let plan = Gateway::beside("a", &local).await;
    let gateway = plan.bare("b", front.address).nowhere("c").start_blind();
    gateway.has_seen(&["a", "b"]).await;
    front.becomes(Mode::Refuse);
    for protocol in BOTH {
        for request in [get(SHARED), post(SHARED, thing("shared.example", "one"))] {
            let answer = ask(gateway.address, protocol, Some(&pki().alice), request).await;
            answer.assert_refusal();
        }
    }
}

#[tokio::test]
async fn a_truncated_response_does_not_look_complete() {
    for protocol in BOTH {
        for token in [false, true] {
            for length in [None, Some("1000")] {
                let pair = Pair::start().await;
                let (sender, body) = streamed();
                let body = Mutex::new(Some(body));
                pair.first.rule(SHARED, move |_| {
                    let body = body.lock().unwrap().take().unwrap();
                    let mut response = answer(StatusCode::OK, body);
                    if let Some(length) = length {
                        let length = HeaderValue::from_static(length);
                        response.headers_mut().insert("content-length", length);
                    }
                    std::future::ready(response)
                });
                // Whoever is asked first, only one of them answers.
                pair.second.denies(SHARED);
                let mut request = get(SHARED);
                if token {
                    request = with(request, "authorization", "Bearer of-carol");
                }
                let mut client = Client::connect(pair.gateway.address, protocol, None).await;
                let opening = client.open(request);
                let feeding = sender.send(Frame::data(Bytes::from_static(b"the start, ")));
                let (response, fed) = tokio::join!(opening, feeding);
                fed.unwrap();
                assert_eq!(response.status(), StatusCode::OK);
                let mut body = response.into_body();
                let start = soon(body.frame()).await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(start, "the start, ");
                pair.front.becomes(Mode::Refuse);
                let rest = soon(body.collect()).await;
                let case = format!("{protocol:?}, token: {token}, length: {length:?}");
                assert!(rest.is_err(), "{case}: {:?}", rest.map(|rest| rest.to_bytes()));
                assert_eq!(pair.first.requests.of(SHARED).len(), 1, "{case}");
            }
        }
    }
}
