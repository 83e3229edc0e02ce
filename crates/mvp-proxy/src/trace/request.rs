//! The spans of one request: that of the request itself, and its steps. Entry item: [`Trace`].
//!
//! Steps are queued when they end, the request itself when its response was read to its end, or when
//! the client is gone ([`Ending`]). The steps of a request follow each other, except that the body of
//! a response is read while nothing else happens; so the lock is never waited for.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::header::USER_AGENT;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use mvp_core::decide::{ActionKind, Summary};
use mvp_net::ConnectionInfo;
use uuid::Uuid;

use super::context::{self, Context, SpanId, TraceId};
use super::span::bounded;
use super::{Kind, Span, Tracer, Value, header, method};
use crate::body::Body;
use crate::headers::AUDIT_ID;

pub(super) type Attributes = Vec<(&'static str, Value)>;

/// The error of a request whose client left before the response.
pub(super) const CLIENT_GONE: &str = "client-gone";
/// The most members that a span names.
const MAX_MEMBERS: usize = 10;

/// The trace of one request, in its extensions. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Trace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tracer: Tracer,
    id: TraceId,
    /// The span of the request itself.
    own: SpanId,
    /// The caller's span.
    parent: Option<SpanId>,
    state: Option<String>,
    /// When the request arrived: by the clock that never steps back, and by that of the day.
    began: Instant,
    began_at: u64,
    progress: Mutex<Progress>,
}

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    name: Cow<'static, str>,
    attributes: Attributes,
    status: Option<StatusCode>,
    /// The reason of the last decision.
    pub(super) reason: Option<&'static str>,
    /// How often the request was sent to a server.
    pub(super) sends: u32,
    /// How the last server failed.
    pub(super) failed: Option<&'static str>,
    /// The send whose response is being read.
    pub(super) open: Option<Open>,
}

/// A span that has not ended.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: SpanId,
    pub(super) began: Instant,
    pub(super) attributes: Attributes,
    pub(super) failed: bool,
}

/// How a request was served.
pub(crate) struct Served<'a> {
    /// What was done with it.
    pub(crate) action: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) member: Option<&'a str>,
    /// The members because of which it was refused.
    pub(crate) at_fault: &'a [String],
    /// The path with placeholders for names, if a member serves it.
    pub(crate) route: Option<String>,
}

impl Trace {
    /// The trace of a request that arrived at `began`.
    pub(super) fn new<B>(
        tracer: Tracer,
        began: Instant,
        request: &mut Request<B>,
        context: Option<Context>,
    ) -> Trace {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_at = nanoseconds(now.saturating_sub(began.elapsed()));
        let method = method(request.method());
        let mut attributes: Attributes = vec![
            ("http.request.method", method.into()),
            ("url.scheme", "https".into()),
            // Without the query, which can carry secrets.
            ("url.path", bounded(request.uri().path()).into()),
        ];
        let version = match request.version() {
            Version::HTTP_2 => "2",
            Version::HTTP_10 => "1.0",
            _ => "1.1",
        };
        attributes.push(("network.protocol.version", version.into()));
        if let Some(connection) = request.extensions().get::<ConnectionInfo>() {
            let address = connection.remote().ip().to_canonical();
            attributes.push(("client.address", address.to_string().into()));
        }
        if let Some(agent) = header(request.headers(), &USER_AGENT) {
            attributes.push(("user_agent.original", agent.into()));
        }
        let state = match context {
            Some(_) => context::state(request.headers()),
            None => {
                context::remove_state(request.headers_mut());
                None
            }
        };
        let name = Cow::Borrowed(if method == "_OTHER" { "HTTP" } else { method });
        Trace(Arc::new(Inner {
            tracer,
            id: context.map_or_else(|| Uuid::new_v4().into_bytes(), |context| context.trace),
            own: span_id(),
            parent: context.map(|context| context.span),
            state,
            began,
            began_at,
            progress: Mutex::new(Progress { name, attributes, ..Progress::default() }),
        }))
    }

    /// Makes requests with these headers children of the request itself.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        self.write_as(self.0.own, headers);
    }

    pub(super) fn write_as(&self, span: SpanId, headers: &mut HeaderMap) {
        Context { trace: self.0.id, span, sampled: true }.write(headers);
    }

    /// Ends the authentication, which began with the request. `refused` tells why it failed.
    pub(crate) fn authenticated(&self, refused: Option<&'static str>) {
        let attributes = refused.map(|error| ("error.type", error.into())).into_iter().collect();
        self.step("authenticate", self.0.began, attributes, refused.is_some());
    }

    /// Ends a decision that began at `began`.
    pub(crate) fn decided(&self, began: Instant, decision: &Summary) {
        let (action, reason) = (action(decision.action), decision.reason.as_str());
        self.progress().reason = Some(reason);
        let attributes = vec![("mvp.action", action.into()), ("mvp.reason", reason.into())];
        self.step("decide", began, attributes, false);
    }

    /// Ends the wait for fresh views, which began at `began`.
    pub(crate) fn refreshed(&self, began: Instant) {
        self.step("refresh", began, Attributes::new(), false);
    }

    /// Notes how the request was served.
    pub(crate) fn served(&self, served: Served<'_>) {
        let Served { action, reason, member, at_fault, route } = served;
        let mut progress = self.progress();
        let Progress { name, attributes, .. } = &mut *progress;
        attributes.extend([("mvp.action", action.into()), ("mvp.reason", reason.into())]);
        if let Some(member) = member {
            attributes.push(("mvp.member", bounded(member).into()));
        } else if !at_fault.is_empty() {
            let named = at_fault.get(..MAX_MEMBERS).unwrap_or(at_fault).join(",");
            attributes.push(("mvp.members_at_fault", bounded(&named).into()));
        }
        if let Some(route) = route {
            *name = Cow::Owned(format!("{name} {route}"));
            attributes.push(("http.route", route.into()));
        }
    }

    /// A guard that ends the request.
    pub(crate) fn ending(&self) -> Ending {
        Ending(self.clone())
    }

    /// Queues a step of the request that ends now.
    fn step(&self, name: &'static str, began: Instant, attributes: Attributes, failed: bool) {
        let (id, parent) = (span_id(), Some(self.0.own));
        let shape = Shape { id, parent, name: name.into(), kind: Kind::Internal, began };
        self.push(shape, attributes, failed);
    }

    /// Queues the send that was open. Its response was withheld, or read to its end.
    pub(super) fn close(&self, progress: &mut Progress) {
        if let Some(open) = progress.open.take() {
            self.push_send(open);
        }
    }

    /// Queues a send that ends now.
    pub(super) fn push_send(&self, open: Open) {
        let Open { id, began, attributes, failed } = open;
        let (name, kind, parent) = ("forward".into(), Kind::Client, Some(self.0.own));
        self.push(Shape { id, parent, name, kind, began }, attributes, failed);
    }

    pub(super) fn push(&self, shape: Shape, attributes: Attributes, failed: bool) {
        self.push_until(shape, Instant::now(), attributes, failed);
    }

    pub(super) fn push_until(
        &self,
        shape: Shape,
        end: Instant,
        attributes: Attributes,
        failed: bool,
    ) {
        let Shape { id, parent, name, kind, began } = shape;
        self.0.tracer.record(Span {
            trace_id: self.0.id,
            span_id: id,
            parent,
            parent_is_remote: kind == Kind::Server && parent.is_some(),
            state: self.0.state.clone(),
            name,
            kind,
            start: self.at(began),
            end: self.at(end),
            attributes,
            failed,
        });
    }

    /// A moment in nanoseconds since 1970.
    fn at(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.0.began);
        self.0.began_at.saturating_add(nanoseconds(since))
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A span without what all spans have.
pub(super) struct Shape {
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: Kind,
    pub(super) began: Instant,
}

/// Ends a request when it is dropped: with the body of its response, or without a response when the
/// client is gone.
#[derive(Debug)]
pub(crate) struct Ending(Trace);

impl Ending {
    /// Ends the request with the body of this response.
    pub(crate) fn respond(self, response: &mut Response<Body>) {
        let mut progress = self.0.progress();
        progress.status = Some(response.status());
        if let Some(id) = header(response.headers(), &AUDIT_ID) {
            // As kube-apiserver calls it in its own spans.
            progress.attributes.push(("audit-id", id.into()));
        }
        drop(progress);
        let body = std::mem::replace(response.body_mut(), Body::empty());
        *response.body_mut() = body.with_guard(self);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Ending(trace) = self;
        let mut progress = trace.progress();
        trace.close(&mut progress);
        let Progress { name, mut attributes, status, .. } = std::mem::take(&mut *progress);
        drop(progress);
        let failed = status.is_none_or(|status| status.is_server_error());
        match status {
            Some(status) => {
                attributes.push(("http.response.status_code", status.as_u16().into()));
                if failed {
                    attributes.push(("error.type", status.as_str().to_owned().into()));
                }
            }
            None => attributes.push(("error.type", CLIENT_GONE.into())),
        }
        let Inner { own: id, parent, began, .. } = *trace.0;
        trace.push(Shape { id, parent, name, kind: Kind::Server, began }, attributes, failed);
    }
}

/// A new ID. The variant of the UUID makes sure that it is not zero.
pub(super) fn span_id() -> SpanId {
    let (_, id) = Uuid::new_v4().as_u64_pair();
    id.to_be_bytes()
}

/// The label of an action, as in the metric of requests.
fn action(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Answer => "answer",
        ActionKind::Local => "local",
        ActionKind::AskLocal => "ask-local",
        ActionKind::AskAny => "ask-any",
        ActionKind::Peers => "peers",
        ActionKind::PassNotFound => "pass-404",
        ActionKind::Refuse => "refuse",
    }
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
