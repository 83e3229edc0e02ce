//! Traces: the spans of sampled requests, with the W3C trace context through both hops. Entry item:
//! [`Tracer`].
//!
//! Without a tracer, a request costs one check of an `Option`. With one, a request that is not
//! sampled costs a look at `traceparent` and a draw, and its headers stay as they are. Spans of
//! sampled requests go into a bounded queue ([`Spans`]); an exporter, such as that of `mvp-otlp`, takes
//! them from there.
//!
//! - `context`: `traceparent`, read and written
//! - `sampler`: which requests are traced, and who may ask for it
//! - `span`: a finished span
//! - `request`, `forward`: the spans of one request, and of its sends
//! - `queue`: the queue between requests and the exporter, and its metric

mod context;
mod forward;
#[cfg(fuzzing)]
pub mod fuzzing;
mod queue;
mod request;
mod sampler;
mod span;

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Method, Request};

use self::context::Context;
pub(crate) use self::forward::Forward;
pub use self::queue::{SpanCounts, Spans};
pub(crate) use self::request::{Ending, Served, Trace};
use self::sampler::Sampler;
pub(crate) use self::sampler::{Sender, TRUSTED_GROUPS};
pub use self::span::{Kind, Span, Value};

/// Which requests are traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// The fraction of requests without a trace context, from 0 to 1.
    pub ratio: f64,
    /// How many requests of ordinary clients are traced in one second because the clients ask for
    /// it. Peers that trace a request themselves, and users of `system:masters` and `system:monitoring`, have no such limit.
    pub client_requests_per_second: u32,
}

/// Begins the traces of requests. Clones share everything.
#[derive(Debug, Clone)]
pub struct Tracer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sampler: Sampler,
    queue: queue::Queue,
}

impl Tracer {
    /// A tracer, and the spans that it collects.
    pub fn new(sampling: Sampling) -> (Tracer, Spans) {
        let (queue, spans) = queue::channel();
        (Tracer(Arc::new(Shared { sampler: Sampler::new(sampling), queue })), spans)
    }

    /// Begins the trace of a request that arrived at `began`, if it is sampled. `sender` sent it.
    /// Its `traceparent` then names our span, so that every request made of it continues the trace.
    pub(crate) fn begin<B>(
        &self,
        began: Instant,
        request: &mut Request<B>,
        sender: Sender,
    ) -> Option<Trace> {
        let context = Context::of(request.headers());
        if !self.0.sampler.samples(context.as_ref(), sender, began) {
            return None;
        }
        let trace = Trace::new(self.clone(), began, request, context);
        trace.write(request.headers_mut());
        Some(trace)
    }

    /// Queues a finished span, or drops it if the queue is full. Never waits.
    pub fn record(&self, span: Span) {
        self.0.queue.push(span);
    }
}

/// The method as OpenTelemetry names it: clients may invent others.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::TRACE => "TRACE",
        Method::CONNECT => "CONNECT",
        _ => "_OTHER",
    }
}

/// The value of a header, if it is text; at most the size that a span may carry.
fn header(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(span::bounded)
}
