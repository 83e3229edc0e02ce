//! The sends of a request, each to one server. Entry item: [`Forward`].

use std::time::Instant;

use http::{Request, Response, StatusCode};

use super::context::SpanId;
use super::request::{Attributes, CLIENT_GONE, Open, Shape, Trace, span_id};
use super::span::bounded;
use super::{Kind, method};
use crate::body::Body;
use crate::error::{SendError, Stage};

/// A send of the request to one server. It ends when it is dropped, too: the client is gone.
#[derive(Debug)]
pub(crate) struct Forward<'a> {
    trace: &'a Trace,
    /// Taken when it ends.
    open: Option<Box<Open>>,
}

impl<'a> Forward<'a> {
    /// Begins a send, if the request is traced. The server's spans become children of it. `member`
    /// is the server's ID and its `HOST:PORT`, unless it is in this process.
    pub(crate) fn begin(
        trace: Option<&'a Trace>,
        request: &mut Request<Body>,
        member: Option<(&str, &str)>,
    ) -> Option<Forward<'a>> {
        let trace = trace?;
        let began = Instant::now();
        let mut attributes = vec![("http.request.method", method(request.method()).into())];
        if let Some((id, address)) = member {
            attributes.push(("mvp.member", bounded(id).into()));
            let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
            attributes.push(("server.address", host.trim_matches(['[', ']']).to_owned().into()));
            attributes.extend(port.parse().ok().map(|port: u16| ("server.port", port.into())));
        }
        let mut progress = trace.progress();
        trace.close(&mut progress);
        attributes.extend(progress.reason.map(|reason| ("mvp.reason", reason.into())));
        if progress.sends > 0 {
            attributes.push(("http.request.resend_count", progress.sends.into()));
        }
        attributes.extend(progress.failed.map(|failed| ("mvp.retry.after", failed.into())));
        progress.sends += 1;
        drop(progress);
        let id = span_id();
        trace.write_as(id, request.headers_mut());
        let open = Box::new(Open { id, began, attributes, failed: false });
        Some(Forward { trace, open: Some(open) })
    }

    /// Ends the send: it failed, or its response begins. `opened` tells when a connection was opened
    /// for it.
    pub(crate) fn end(
        mut self,
        sent: Result<&Response<Body>, &SendError>,
        opened: Option<(Instant, Instant)>,
    ) {
        let (trace, Some(mut open)) = (self.trace, self.open.take()) else { return };
        let Open { id, began, .. } = *open;
        match sent {
            Ok(response) => {
                if let Some((began, end)) = opened {
                    trace.push_until(connect(id, began), end, Attributes::new(), false);
                }
                let status = response.status();
                open.attributes.push(("http.response.status_code", status.as_u16().into()));
                // OpenTelemetry's rule for clients.
                open.failed = status.is_client_error() || status.is_server_error();
                if open.failed {
                    open.attributes.push(("error.type", status.as_str().to_owned().into()));
                }
                let mut progress = trace.progress();
                progress.failed = (status == StatusCode::NOT_FOUND).then_some("not-found");
                progress.open = Some(*open);
            }
            Err(error) => {
                let label = stage(error.stage);
                trace.progress().failed = Some(label);
                // Nothing else takes time before a connection is there.
                if matches!(error.stage, Stage::Connect | Stage::Busy) {
                    let attributes = vec![("error.type", label.into())];
                    trace.push(connect(id, began), attributes, true);
                }
                trace.push_send(open.without_response(label));
            }
        }
    }
}

impl Drop for Forward<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            self.trace.push_send(open.without_response(CLIENT_GONE));
        }
    }
}

impl Open {
    /// The same send, which failed.
    fn without_response(mut self, error: &'static str) -> Open {
        self.attributes.push(("error.type", error.into()));
        Open { failed: true, ..self }
    }
}

fn connect(send: SpanId, began: Instant) -> Shape {
    let (name, kind) = ("connect".into(), Kind::Internal);
    Shape { id: span_id(), parent: Some(send), name, kind, began }
}

/// The label of a failure.
fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Identity => "identity",
        Stage::Connect => "connect",
        Stage::NotSent => "not-sent",
        Stage::Refused => "refused",
        Stage::Unready => "unready",
        Stage::Exchange => "exchange",
        Stage::Overloaded => "overloaded",
        Stage::Busy => "busy",
        Stage::Reset => "reset",
        Stage::Client => "client",
    }
}
