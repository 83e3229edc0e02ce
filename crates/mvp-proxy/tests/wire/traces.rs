//! The spans of requests, and the trace context through both hops.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use mvp_proxy::control::StaticMembership;
use mvp_proxy::trace::{Kind, Span};
use mvp_proxy::{Body, Member};
use testkit::certificates::{cn, o};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower_layer::Layer;

use crate::broken::{Front, Mode};
use crate::client::{Answer, BOTH, Client, Protocol, ask, get, post, streamed, with};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::inside::{api_server, seen};
use crate::pki::pki;
use crate::rows::{V2, thing};
use crate::traced::{CONTEXT, Traces, attribute, brief, children, traceparent, world};
use crate::until;
use crate::world::{BARE, LOCAL, MVP};

const SHARED: &str = "/apis/shared.example/v1/namespaces/default/things";
/// The span of that context.
const CALLER: [u8; 8] = [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31];

async fn read(gateway: &Gateway, path: &str) -> Answer {
    ask(gateway.address, Protocol::Http2, Some(&pki().alice), get(path)).await
}

#[tokio::test]
async fn a_local_request_has_a_span_for_each_step() {
    let traces = Traces::of(1.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    let request = with(get(&format!("{LOCAL}?fieldManager=secret")), "user-agent", "tester");
    let answered = ask(world.gateway.address, Protocol::Http2, Some(&pki().alice), request).await;
    assert_eq!(answered.status, StatusCode::OK);

    let (request, steps) = traces.only().await;
    assert_eq!((request.parent, request.parent_is_remote), (None, false));
    let route = "/apis/local.example/v1/namespaces/{:namespace}/things";
    assert_eq!(request.name, format!("GET {route}"));
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.route", route),
        ("url.path", LOCAL),
        ("url.scheme", "https"),
        ("network.protocol.version", "2"),
        ("client.address", "127.0.0.1"),
        ("user_agent.original", "tester"),
        ("http.response.status_code", "200"),
        ("mvp.action", "local"),
        ("mvp.reason", "served-locally"),
        ("mvp.member", "a"),
        ("error.type", ""),
    ] {
        assert_eq!(attribute(&request, name), value, "{name} of {request:#?}");
    }
    assert!(!request.failed);
    let all = format!("{request:?}{steps:?}");
    assert!(!all.contains("secret") && !all.contains("alice"), "{all}");

    let [authenticate] = children(&steps, &request, "authenticate")[..] else { panic!("{all}") };
    let [decide] = children(&steps, &request, "decide")[..] else { panic!("{all}") };
    let [forward] = children(&steps, &request, "forward")[..] else { panic!("{all}") };
    assert_eq!((authenticate.kind, forward.kind), (Kind::Internal, Kind::Client));
    assert_eq!(authenticate.start, request.start);
    assert_eq!(attribute(decide, "mvp.reason"), "served-locally");
    assert_eq!(attribute(decide, "mvp.action"), "local");
    for (name, value) in [
        ("mvp.member", "a"),
        ("mvp.reason", "served-locally"),
        ("server.address", "127.0.0.1"),
        ("server.port", &world.local.address.port().to_string()),
        ("http.response.status_code", "200"),
        ("http.request.resend_count", ""),
    ] {
        assert_eq!(attribute(forward, name), value, "{name} of {forward:#?}");
    }
    let seen = world.local.requests.only(LOCAL);
    assert_eq!(seen.all("traceparent"), [traceparent(forward)]);
}

#[tokio::test]
async fn a_connection_that_is_opened_is_a_step_of_its_request() {
    let traces = Traces::of(1.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    // Probes keep no connection of this kind.
    let request = with(get(LOCAL), "authorization", "Bearer unknown");
    ask(world.gateway.address, Protocol::Http1, None, request).await;
    let (request, steps) = traces.only().await;
    let forward = children(&steps, &request, "forward")[0];
    assert_eq!(children(&steps, forward, "connect").len(), 1, "{}", brief(&steps));
    assert_eq!(attribute(&request, "network.protocol.version"), "1.1");
}

#[tokio::test]
async fn a_trace_goes_through_both_gateways() {
    let (own, peers) = (Traces::of(1.0, 0), Traces::of(0.0, 0));
    let world = world(&own, &peers).await;
    let request = with(with(get(MVP), "traceparent", CONTEXT), "tracestate", "vendor=1");
    let masters = pki().clients.client(&[cn("root"), o("system:masters")]);
    ask(world.gateway.address, Protocol::Http2, Some(&masters), request).await;

    let (request, steps) = own.only().await;
    assert_eq!((request.parent, request.parent_is_remote), (Some(CALLER), true));
    assert_eq!(request.state.as_deref(), Some("vendor=1"));
    let forward = children(&steps, &request, "forward")[0];
    assert_eq!(attribute(forward, "mvp.member"), "c");
    assert_eq!(attribute(forward, "mvp.reason"), "served-by-peer");

    // The ratio of the peer is 0: it follows the gateway of the client.
    let (hop, steps) = peers.only().await;
    assert_eq!((hop.trace_id, hop.parent), (request.trace_id, Some(forward.span_id)));
    assert!(hop.parent_is_remote);
    let last = children(&steps, &hop, "forward")[0];
    assert_eq!(attribute(last, "mvp.reason"), "served-locally");
    let seen = world.behind.requests.only(MVP);
    assert_eq!(seen.all("traceparent"), [traceparent(last)]);
    assert_eq!(seen.all("tracestate"), ["vendor=1"]);
}

/// Two peers serve the same API; the first is broken in this way.
async fn with_broken_peer(mode: Mode) -> (Traces, Gateway, [Double; 3], Front) {
    let traces = Traces::of(1.0, 0);
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &[]).await;
    let first = Double::start("b", "v1.36.0", &groups).await;
    let second = Double::start("c", "v1.36.0", &groups).await;
    let front = Front::before(&first).await;
    let plan = Gateway::beside("a", &local).await.traced_by(traces.tracer.clone());
    let gateway = plan.bare("b", front.address).bare("c", second.address).start().await;
    front.becomes(mode);
    (traces, gateway, [local, first, second], front)
}

#[tokio::test]
async fn a_retry_is_a_send_of_its_own() {
    for (mode, label) in [(Mode::Refuse, "connect"), (Mode::AfterSending, "exchange")] {
        let (traces, gateway, servers, _front) = with_broken_peer(mode).await;
        // Reads are spread: one of two reaches the broken peer first.
        for _ in 0..2 {
            assert_eq!(read(&gateway, SHARED).await.status, StatusCode::OK);
        }
        let failed = |span: &Span| span.name == "forward" && span.failed;
        until(|| traces.spans().iter().filter(|span| span.kind == Kind::Server).count() == 2).await;
        let spans = traces.spans();
        let first = spans.iter().find(|span| failed(span));
        let first = first.unwrap_or_else(|| panic!("{}", brief(&spans)));
        let is_request = |span: &&Span| Some(span.span_id) == first.parent;
        let request = spans.iter().find(is_request).unwrap();
        assert!(!request.failed, "the client noticed nothing");
        let steps: Vec<Span> =
            spans.iter().filter(|span| span.trace_id == request.trace_id).cloned().collect();
        let [_, second] = children(&steps, request, "forward")[..] else {
            panic!("{}", brief(&steps))
        };
        assert!(first.end <= second.start);
        assert_eq!(attribute(first, "error.type"), label);
        assert_eq!(attribute(first, "mvp.member"), "b");
        assert_eq!(attribute(second, "mvp.member"), "c");
        assert_eq!(attribute(second, "http.request.resend_count"), "1");
        assert_eq!(attribute(second, "mvp.retry.after"), label);
        assert_eq!(attribute(second, "http.response.status_code"), "200");
        let connects = children(&steps, first, "connect");
        let connects: Vec<bool> = connects.iter().map(|span| span.failed).collect();
        if mode == Mode::Refuse {
            assert_eq!(connects, [true]);
        }
        let last = servers[2]
            .requests
            .of(SHARED)
            .into_iter()
            .map(|seen| seen.header("traceparent").unwrap().to_owned());
        assert!(last.collect::<Vec<_>>().contains(&traceparent(second)));
    }
}

#[tokio::test]
async fn a_refusal_names_its_reason_and_members() {
    let traces = Traces::of(1.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    world.bare.denies(BARE);
    let refused = read(&world.gateway, BARE).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    let (request, steps) = traces.only().await;
    assert!(request.failed);
    assert_eq!(attribute(&request, "http.response.status_code"), "503");
    assert_eq!(attribute(&request, "error.type"), "503");
    assert_eq!(attribute(&request, "mvp.action"), "refuse");
    assert_eq!(attribute(&request, "mvp.reason"), "view-suspect");
    assert!(attribute(&request, "mvp.members_at_fault").contains('b'), "{request:#?}");
    assert!(children(&steps, &request, "decide").len() > 1, "it was decided again");
    let [forward] = children(&steps, &request, "forward")[..] else { panic!("{}", brief(&steps)) };
    assert!(forward.failed);
    assert_eq!(attribute(forward, "error.type"), "404");
}

#[tokio::test]
async fn a_request_ends_with_the_body_of_its_response() {
    let traces = Traces::of(1.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    let (frames, body) = streamed();
    let body = Mutex::new(Some(body));
    world.local.rule(LOCAL, move |_| {
        let body = body.lock().unwrap().take().unwrap();
        std::future::ready(answer(StatusCode::OK, body))
    });
    let mut client = Client::connect(world.gateway.address, BOTH[1], Some(&pki().alice)).await;
    let response = client.open(get(LOCAL)).await;
    let open: Vec<_> = traces.spans().into_iter().map(|span| span.name).collect();
    assert!(!open.iter().any(|name| name == "forward" || name.starts_with("GET")), "{open:?}");
    let data = http_body::Frame::data(bytes::Bytes::from_static(b"x"));
    frames.send(data).await.unwrap();
    drop(frames);
    response.into_body().collect().await.unwrap();
    let (request, steps) = traces.only().await;
    assert_eq!(children(&steps, &request, "forward").len(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_trace() {
    let traces = Traces::of(1.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    world.local.rule(LOCAL, |_| std::future::pending());
    let mut client = Client::connect(world.gateway.address, BOTH[1], Some(&pki().alice)).await;
    {
        let mut asked = Box::pin(client.try_open(get(LOCAL)));
        tokio::select! {
            _ = &mut asked => panic!("no response comes"),
            () = world.local.requests.wait(|seen| seen.target == LOCAL) => {}
        }
    }
    drop(client);
    let (request, steps) = traces.only().await;
    let [forward] = children(&steps, &request, "forward")[..] else { panic!("{}", brief(&steps)) };
    for span in [&request, forward] {
        assert!(span.failed);
        assert_eq!(attribute(span, "error.type"), "client-gone");
    }
}

#[tokio::test]
async fn a_merged_document_is_traced_with_its_probe() {
    let traces = Traces::of(1.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    let request = with(get("/apis"), "accept", V2);
    ask(world.gateway.address, Protocol::Http2, Some(&pki().alice), request).await;
    let (request, steps) = traces.only().await;
    assert_eq!(request.name, "GET");
    assert_eq!(attribute(&request, "mvp.action"), "answer");
    let forward = children(&steps, &request, "forward");
    assert_eq!(forward.len(), 1, "{}", brief(&steps));
    let probes = world.local.requests.of("/apis");
    assert!(probes.iter().any(|p| p.header("traceparent") == Some(&*traceparent(forward[0]))));
}

#[tokio::test]
async fn names_that_clients_invent_do_not_become_names_of_spans() {
    let traces = Traces::of(1.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    let path = "/apis/invented.example/v1/nothings";
    assert_eq!(read(&world.gateway, path).await.status, StatusCode::NOT_FOUND);
    let (request, steps) = traces.only().await;
    assert_eq!(children(&steps, &request, "refresh").len(), 1, "{}", brief(&steps));
    assert_eq!(request.name, "GET");
    assert_eq!(attribute(&request, "http.route"), "");
    assert_eq!(attribute(&request, "url.path"), path);
}

/// The layer inside an API server: the server gets the context, too.
#[tokio::test]
async fn a_server_in_this_process_is_a_step_of_its_request() {
    let traces = Traces::of(1.0, 0);
    let member = Member::builder("a", pki().outbound()).traced_by(Some(traces.tracer.clone()));
    let member = member.refresh_interval(Duration::from_secs(3600)).build();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let worker = member.start(StaticMembership::new(Vec::new()), stop);
    let seen_contexts = Arc::new(Mutex::new(Vec::new()));
    let (server, noted) = (api_server("a", "a.example"), Arc::clone(&seen_contexts));
    let server = tower::service_fn(move |request: http::Request<Body>| {
        if let Some(context) = request.headers().get("traceparent") {
            noted.lock().unwrap().push(context.to_str().unwrap().to_owned());
        }
        server.clone().oneshot(request)
    });
    let service = worker.authenticate().layer(worker.layer().layer(server));
    seen(member.reader(), &["a"]).await;
    let path = "/apis/a.example/v1/namespaces/default/things";
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    let Ok(response) = service.oneshot(request).await;
    assert_eq!(response.status(), StatusCode::OK);
    drop(response);
    let (request, steps) = traces.only().await;
    assert_eq!(attribute(&request, "mvp.member"), "a");
    let [forward] = children(&steps, &request, "forward")[..] else { panic!("{}", brief(&steps)) };
    assert_eq!(*seen_contexts.lock().unwrap(), [traceparent(forward)]);
}

#[tokio::test]
async fn a_write_is_traced_with_its_name() {
    let traces = Traces::of(1.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    let mut request = post(LOCAL, thing("local.example", "new"));
    request.headers_mut().insert("audit-id", HeaderValue::from_static("mine"));
    let created = ask(world.gateway.address, BOTH[0], Some(&pki().alice), request).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    let (request, _) = traces.only().await;
    assert!(request.name.starts_with("POST /apis/local.example/v1/"), "{}", request.name);
}
