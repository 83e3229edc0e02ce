//! The whole layer, with authentication in front: any request of any caller, over a cluster of a local
//! server and a peer that answer anything. The peer is behind TLS and HTTP/2, in memory. The clock moves
//! when nothing else can, so time limits cost nothing.
//!
//! Checked: there always is a response; a response that no server sent is a `Status`; headers that name a
//! user never reach a server from a caller who may not send them; a write that a server may have processed
//! is not sent again; a request from a peer makes no second hop; marks between gateways reach no client.

mod servers;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use mvp_core::RequestInfo;
use mvp_core::discovery::Part;
use mvp_core::member::MemberKind;
use mvp_net::{CertificateUser, ConnectionInfo, Judgement};
use mvp_proxy::{Body, Member, Way, Ways};
use serde_json::Value;
use tower::ServiceExt;
use tower_layer::Layer;

use super::fetch::block_on;
use super::{merge, seeds};
use crate::input::{Input, joined};
use crate::target::Target;
use servers::{Answer, By, Servers, known};

pub const TARGET: Target = Target {
    name: "layer",
    run,
    seeds,
    words: &[
        "GET",
        "POST",
        "DELETE",
        "PATCH",
        "HEAD",
        "/apis/apps/v1/namespaces/x/deployments/one",
        "/apis/batch/v1/jobs",
        "/apis/apps/v1/scales",
        "/api/v1/pods",
        "/apis",
        "/api",
        "/openapi/v2",
        "/openapi/v3",
        "/healthz",
        "/exec",
        "/status",
        "?watch=1",
        "X-Remote-User: ",
        "X_Remote_Group: ",
        "x-remote-extra-a: ",
        "X-Kubernetes-Peer-Proxied: true",
        "x-mvp-insists: 1",
        "x-mvp-traced: 1",
        "Authorization: Bearer abc",
        "Connection: x-remote-user",
        "Accept: ",
        "Content-Length: 3",
        "Impersonate-User: a",
        "Expect: 100-continue",
        "Upgrade: websocket",
        "TE: trailers",
        "\0",
        "\n",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "{\"kind\":\"Status\",\"code\":404,\"details\":{}}",
        "404 page not found",
        "X-Remote-Uid: ",
        "the server could not find the requested resource",
        "apiserver is shutting down",
        "If-None-Match: ",
    ],
};

/// A value that only a caller may have written.
const SPOOF: &str = "spoofed-by-the-caller";

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let [caller, peer, flags] = [input.byte(), input.byte(), input.byte()];
    let local = Answer::of(&mut input);
    let remote = Answer::of(&mut input);
    let Some(request) = request(&mut input, caller) else { return };
    let trusted = caller % 5 == 4;
    let marked = request.headers().contains_key("x-kubernetes-peer-proxied");
    let (method, target) = (request.method().clone(), request.uri().clone());
    let servers = Arc::new(Servers::new([local, remote], SPOOF, trusted));
    let kind = if peer & 1 == 0 { MemberKind::Mvp } else { MemberKind::Bare };
    let response = block_on(async {
        let service = service(&servers, kind, flags);
        let answer = async {
            let Ok(response) = service.oneshot(request).await;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            (parts, body)
        };
        tokio::time::timeout(Duration::from_secs(120), answer).await
    });
    let (parts, body) = response.unwrap_or_else(|_| panic!("{method} {target}: no response"));
    let shown = format!("{method} {target}: {parts:?}");
    let asked = servers.asked();
    if asked.is_empty() && parts.status.as_u16() >= 400 {
        let status: Value =
            serde_json::from_slice(&body.expect("a body of our own")).expect(&shown);
        assert_eq!(status["kind"], "Status", "{shown}");
        assert_eq!(status["code"], parts.status.as_u16(), "{shown}");
    }
    let is_peer = trusted && marked;
    for (name, _) in &parts.headers {
        assert!(is_peer || !name.as_str().starts_with("x-mvp-"), "{shown}");
    }
    if marked {
        assert!(!asked.iter().any(|(by, _)| *by == By::Peer), "a second hop: {shown}");
    }
    let info = RequestInfo::parse(method.as_str(), target.path(), target.query());
    if !info.is_read() {
        let processed = asked.iter().filter(|(_, processed)| *processed).count();
        assert!(processed <= 1, "a write was processed {processed} times: {shown}");
    }
}

/// The layer in front of the local server, beside one peer.
fn service(
    servers: &Arc<Servers>,
    kind: MemberKind,
    flags: u8,
) -> impl tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
{
    let ways = Ways { others: Way::Proxy(servers.dial()), ..Ways::default() };
    let builder = Member::builder("a", known().outbound.clone()).without_probes();
    let member = builder.egress(ways.into()).build();
    let mut writer = member.take_writer().expect("the first");
    writer.publish(snapshot(kind, flags));
    let worker = member.worker();
    let (server, peers) = (Arc::clone(servers), worker.layer());
    let local = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(By::Local, &request).map(Body::from)) }
    });
    worker.authenticate().layer(peers.layer(local))
}

fn snapshot(kind: MemberKind, flags: u8) -> mvp_core::Snapshot {
    let list = |text: &str| merge::parse(Part::Apis, text.as_bytes()).expect("a document");
    let mut local = merge::member("a", &list(seeds::AGGREGATED));
    let mut peer = merge::member("b", &list(seeds::OTHER));
    peer.kind = kind;
    if flags & 1 == 1 {
        peer.view.apis = None;
    }
    if flags & 2 == 2 {
        local.view.api = None;
    }
    if flags & 4 == 4 {
        peer.address = None;
    }
    merge::snapshot(vec![local, peer], Some("a".into()), None)
}

/// The request, and who sends it.
fn request(input: &mut Input<'_>, caller: u8) -> Option<Request<Body>> {
    let (method, target) = (input.text(), input.text());
    let head = input.text();
    let mut request = Request::builder().method(method.as_str()).uri(target.as_str());
    for line in head.lines() {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let mut value = value.trim().to_owned();
        // Only in headers that name a user, so that its way can be followed.
        if servers::names_a_user(name.as_str()) {
            value = format!("{value}{SPOOF}");
        }
        request = request.header(name, HeaderValue::from_str(&value).ok()?);
    }
    let judgement = match caller % 5 {
        0 => None,
        1 => Some(Judgement::default()),
        2 => Some(Judgement { presented: true, rejected: true, ..Judgement::default() }),
        3 => Some(Judgement { presented: true, user: Some(Ok(alice())), ..Judgement::default() }),
        _ => Some(Judgement { presented: true, front_proxy: true, ..Judgement::default() }),
    };
    if let Some(judgement) = judgement {
        let connection = ConnectionInfo::new(([10, 0, 0, 9], 1234).into(), Vec::new(), judgement);
        let connection = if caller & 32 == 32 { connection.over_http2() } else { connection };
        request = request.extension(connection);
    }
    request.body(Body::from(Bytes::copy_from_slice(input.part()))).ok()
}

fn alice() -> CertificateUser {
    CertificateUser {
        name: "alice".to_owned(),
        groups: vec!["dev".to_owned()],
        uid: None,
        credential_id: "X509SHA256=00".to_owned(),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let answers = [
        &b"\x00\x01{}"[..],
        b"\x04\x02404 page not found\n",
        br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
        b"\x07\x00",
    ];
    let paths = [
        "/apis/apps/v1/namespaces/x/deployments/one",
        "/apis/batch/v1/jobs",
        "/apis/apps/v1/scales",
        "/apis",
        "/openapi/v2",
        "/healthz",
        "/apis/nobody/v1/x?watch=1",
    ];
    for (number, path) in paths.iter().enumerate() {
        for (place, method) in ["GET", "POST"].iter().enumerate() {
            let number = number as u8;
            let head = [number + place as u8, number & 1, number & 3];
            let spoof = "X-Remote-User: root\nx_remote_group: system:masters\nAccept: */*";
            let marked = "X-Kubernetes-Peer-Proxied: true\nAuthorization: Bearer x";
            let lines = if number & 1 == 0 { spoof } else { marked };
            let one = answers[usize::from(number) % 4];
            let other = answers[(usize::from(number) + place + 1) % 4];
            let parts: [&[u8]; 6] =
                [one, other, method.as_bytes(), path.as_bytes(), lines.as_bytes(), b"{}"];
            all.push([&head[..], &joined(&parts)].concat());
        }
    }
    all
}
