//! Which requests are traced, and what becomes of the context of those that are not.

use http::StatusCode;
use testkit::certificates::{Pair, cn, o};

use crate::client::{Protocol, ask, get, with};
use crate::pki::pki;
use crate::traced::{CONTEXT, Traces, attribute, children, world};
use crate::world::{BARE, LOCAL, MVP, World};

const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// A request with this context by this caller. Returns its `traceparent` at the server, and whether it
/// was traced.
async fn passed(
    world: &World,
    traces: &Traces,
    who: Option<&Pair>,
    context: Option<&'static str>,
) -> (Option<String>, bool) {
    let before = traces.spans().len();
    let path = format!("{LOCAL}?number={}", world.local.requests.of(LOCAL).len());
    let request = get(&path);
    let request = match context {
        Some(context) => with(request, "traceparent", context),
        None => request,
    };
    ask(world.gateway.address, Protocol::Http2, who, with(request, "tracestate", "a=1")).await;
    let seen = world.local.requests.only(&path);
    assert_eq!(seen.all("traceparent").len(), usize::from(seen.header("traceparent").is_some()));
    let valid = context.is_some_and(|context| context.len() == CONTEXT.len());
    let parent = seen.header("traceparent").map(str::to_owned);
    let is_traced = parent.as_deref() != context;
    let keeps_state = !is_traced || valid;
    assert_eq!(seen.header("tracestate").is_some(), keeps_state, "{context:?}");
    if is_traced {
        // Steps were queued before the server got the request.
        assert!(traces.spans().len() > before, "{context:?}");
    }
    (parent, is_traced)
}

#[tokio::test]
async fn the_ratio_decides_for_requests_without_a_context() {
    for (ratio, expected) in [(0.0, false), (1.0, true)] {
        let traces = Traces::of(ratio, 0);
        let world = world(&traces, &Traces::of(1.0, 0)).await;
        let alice = Some(&pki().alice);
        for context in [None, Some("00-invalid")] {
            let (parent, is_traced) = passed(&world, &traces, alice, context).await;
            assert_eq!(is_traced, expected, "{ratio} {context:?}");
            assert_eq!(parent.is_some(), expected || context.is_some());
        }
        // A caller that is not traced stays so, and its context is passed on as it is.
        let (parent, is_traced) = passed(&world, &traces, alice, Some(UNSAMPLED)).await;
        assert_eq!((parent.as_deref(), is_traced), (Some(UNSAMPLED), false));
        if !expected {
            assert_eq!(traces.spans(), []);
        }
    }
}

#[tokio::test]
async fn the_context_of_trusted_users_decides_and_that_of_others_is_bounded() {
    let traces = Traces::of(0.0, 0);
    let world = world(&traces, &Traces::of(0.0, 0)).await;
    for group in ["system:masters", "system:monitoring"] {
        let who = pki().clients.client(&[cn("root"), o(group)]);
        let (parent, is_traced) = passed(&world, &traces, Some(&who), Some(CONTEXT)).await;
        assert!(is_traced, "{group}");
        assert_eq!(parent.unwrap()[..36], CONTEXT[..36], "{group}: the same trace");
    }
    for who in [Some(&pki().alice), None] {
        let (parent, is_traced) = passed(&world, &traces, who, Some(CONTEXT)).await;
        assert_eq!((parent.as_deref(), is_traced), (Some(CONTEXT), false));
    }
}

#[tokio::test]
async fn without_a_tracer_the_context_passes_through_both_hops() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        let request = with(with(get(path), "traceparent", CONTEXT), "tracestate", "a=1");
        ask(world.gateway.address, Protocol::Http2, Some(&pki().alice), request).await;
        let seen = world.server(path).requests.only(path);
        assert_eq!(seen.all("traceparent"), [CONTEXT]);
        assert_eq!(seen.all("tracestate"), ["a=1"]);
    }
}

/// A peer that does not trace its requests does not make the next gateway trace them.
#[tokio::test]
async fn a_request_of_a_peer_without_a_context_is_not_traced() {
    let peers = Traces::of(1.0, 100);
    let world = world(&Traces::of(0.0, 0), &peers).await;
    let alice = Some(&pki().alice);
    let answered = ask(world.gateway.address, Protocol::Http2, alice, get(MVP)).await;
    assert_eq!(answered.status, StatusCode::OK);
    assert_eq!(world.behind.requests.only(MVP).header("traceparent"), None);
    // Only the polls of the other gateway came besides.
    assert_eq!(peers.spans(), []);
}

/// The context of a client that is over the limit passes through the hop, but asks for nothing there.
#[tokio::test]
async fn a_client_over_the_limit_is_not_traced_by_the_next_gateway() {
    let (own, peers) = (Traces::of(0.0, 0), Traces::of(0.0, 0));
    let world = world(&own, &peers).await;
    // Nor does it help to imitate a gateway.
    let request = with(with(get(MVP), "traceparent", CONTEXT), "x-mvp-traced", "true");
    let answered = ask(world.gateway.address, Protocol::Http2, Some(&pki().alice), request).await;
    assert_eq!(answered.status, StatusCode::OK);
    let seen = world.behind.requests.only(MVP);
    assert_eq!(seen.all("traceparent"), [CONTEXT]);
    assert_eq!(seen.header("x-mvp-traced"), None);
    assert_eq!((own.spans(), peers.spans()), (Vec::new(), Vec::new()));
}

/// Its certificate claims to be of system:masters.
#[tokio::test]
async fn a_caller_that_is_not_authenticated_is_traced_as_anybody() {
    for limit in [0, 1] {
        let traces = Traces::of(0.0, limit);
        let world = world(&traces, &Traces::of(0.0, 0)).await;
        let request = with(get(LOCAL), "traceparent", CONTEXT);
        let stranger = Some(&pki().stranger);
        let refused = ask(world.gateway.address, Protocol::Http2, stranger, request).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        if limit == 0 {
            assert_eq!(traces.spans(), []);
            continue;
        }
        let (request, steps) = traces.only().await;
        assert_eq!(request.name, "GET");
        assert_eq!(attribute(&request, "http.response.status_code"), "401");
        assert!(!request.failed, "the client is at fault");
        let [step] = children(&steps, &request, "authenticate")[..] else { panic!("{steps:#?}") };
        assert_eq!(attribute(step, "error.type"), "unauthorized");
        assert!(step.failed);
    }
}
