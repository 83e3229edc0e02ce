//! The spans that a gateway records. Entry item: [`Traces`].

use std::sync::Mutex;

use mvp_proxy::trace::{Kind, Sampling, Span, Spans, Tracer, Value};

use crate::gateway::Plan;
use crate::until;
use crate::world::World;

/// A sampled context.
pub const CONTEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub struct Traces {
    pub tracer: Tracer,
    state: Mutex<(Spans, Vec<Span>)>,
}

impl Traces {
    /// Traces this fraction of requests, and those of clients that ask for it.
    pub fn of(ratio: f64, client_requests_per_second: u32) -> Traces {
        let (tracer, spans) = Tracer::new(Sampling { ratio, client_requests_per_second });
        Traces { tracer, state: Mutex::new((spans, Vec::new())) }
    }

    /// All spans so far, in the order of their ends.
    pub fn spans(&self) -> Vec<Span> {
        let (queue, spans) = &mut *self.state.lock().unwrap();
        spans.extend(std::iter::from_fn(|| queue.waiting()));
        spans.clone()
    }

    /// Waits for the end of the only traced request. Returns its span and its steps.
    pub async fn only(&self) -> (Span, Vec<Span>) {
        let is_request = |span: &Span| span.kind == Kind::Server;
        until(|| self.spans().iter().any(is_request)).await;
        let (mut requests, steps): (Vec<Span>, Vec<Span>) =
            self.spans().into_iter().partition(is_request);
        assert_eq!(requests.len(), 1, "{requests:#?}");
        (requests.remove(0), steps)
    }
}

/// An attribute of a span as text; empty without it.
pub fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|(key, _)| *key == name);
    match found {
        Some((_, Value::Text(text))) => text.to_string(),
        Some((_, Value::Number(number))) => number.to_string(),
        None => String::new(),
    }
}

/// The steps with this name, which all are children of `parent`.
pub fn children<'a>(steps: &'a [Span], parent: &Span, name: &str) -> Vec<&'a Span> {
    let named: Vec<&Span> = steps.iter().filter(|span| span.name == name).collect();
    for span in &named {
        assert_eq!(span.trace_id, parent.trace_id, "{span:#?}");
        assert_eq!(span.parent, Some(parent.span_id), "{span:#?}");
        assert!(span.start >= parent.start && span.end <= parent.end, "{span:#?} {parent:#?}");
        assert!(span.start <= span.end, "{span:#?}");
    }
    named
}

/// The `traceparent` that names this span.
pub fn traceparent(span: &Span) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

/// Spans in short, for failed assertions.
pub fn brief(spans: &[Span]) -> String {
    let of = |span: &Span| {
        let more = ["mvp.member", "http.request.resend_count", "error.type"];
        format!("{} {:?}", span.name, more.map(|name| attribute(span, name)))
    };
    spans.iter().map(of).collect::<Vec<_>>().join("\n")
}

/// A cluster with a tracer at the gateway under test, and one at the peer's.
pub async fn world(own: &Traces, peers: &Traces) -> World {
    let own = |plan: Plan| plan.traced_by(own.tracer.clone());
    World::with_each(own, |plan| plan.traced_by(peers.tracer.clone()), None).await
}
