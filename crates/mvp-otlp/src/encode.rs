//! Spans as OTLP has them. Entry item: [`Resource::request`].

use mvp_proxy::trace::{Kind, Span, Value};

use crate::proto;
use crate::proto::any_value::Value as AnyValue;

/// The sampled flag of W3C, and the flag that says that the flag of a remote parent is known.
const SAMPLED: u32 = 0x001;
const REMOTE_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

/// The process that all spans come from.
#[derive(Debug)]
pub(super) struct Resource(Vec<proto::KeyValue>);

impl Resource {
    pub(super) fn new(attributes: &[(&str, &str)]) -> Resource {
        let text = |value: &str| AnyValue::StringValue(value.to_owned());
        Resource(attributes.iter().map(|(key, value)| attribute(key, text(value))).collect())
    }

    /// The request that exports a batch.
    pub(super) fn request(&self, batch: Vec<Span>) -> proto::ExportTraceServiceRequest {
        let scope = proto::InstrumentationScope {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let spans = batch.into_iter().map(span).collect();
        let spans = proto::ResourceSpans {
            resource: Some(proto::Resource { attributes: self.0.clone() }),
            scope_spans: vec![proto::ScopeSpans { scope: Some(scope), spans }],
        };
        proto::ExportTraceServiceRequest { resource_spans: vec![spans] }
    }
}

fn span(span: Span) -> proto::Span {
    let kind = match span.kind {
        Kind::Internal => proto::SpanKind::Internal,
        Kind::Server => proto::SpanKind::Server,
        Kind::Client => proto::SpanKind::Client,
    };
    let status = proto::Status { code: proto::StatusCode::Error.into() };
    let attributes = span.attributes.into_iter().map(|(key, value)| {
        let value = match value {
            Value::Text(text) => AnyValue::StringValue(text.into_owned()),
            Value::Number(number) => AnyValue::IntValue(number),
        };
        attribute(key, value)
    });
    proto::Span {
        trace_id: span.trace_id.to_vec(),
        span_id: span.span_id.to_vec(),
        trace_state: span.state.unwrap_or_default(),
        parent_span_id: span.parent.map(|id| id.to_vec()).unwrap_or_default(),
        name: span.name.into_owned(),
        kind: kind.into(),
        start_time_unix_nano: span.start,
        end_time_unix_nano: span.end,
        attributes: attributes.collect(),
        status: span.failed.then_some(status),
        flags: SAMPLED | REMOTE_KNOWN | if span.parent_is_remote { REMOTE } else { 0 },
    }
}

fn attribute(key: &str, value: AnyValue) -> proto::KeyValue {
    let value = proto::AnyValue { value: Some(value) };
    proto::KeyValue { key: key.to_owned(), value: Some(value) }
}
