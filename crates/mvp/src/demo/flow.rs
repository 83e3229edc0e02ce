//! One line for each request that the layer proxies, as it flows. Entries: [`named`] around a server's
//! layer, [`FlowLayer`] in the subscriber.
//!
//! The layer logs such requests. It does not name the server that it is in front of: the task-local
//! does.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Request;
use mvp_core::decide::Origin;
use tokio::task::futures::TaskLocalFuture;
use tower::Service;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer;

use crate::logging::LogQueue;

tokio::task_local! {
    static SERVER: &'static str;
}

/// A service whose requests are those of this server.
pub(super) fn named<S>(id: &'static str, arrivals: Arrivals, inner: S) -> Named<S> {
    Named { id, arrivals, inner }
}

/// See [`named`].
#[derive(Debug, Clone)]
pub(super) struct Named<S> {
    id: &'static str,
    arrivals: Arrivals,
    inner: S,
}

/// The latest requests that arrived at a server. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals(Arc<Mutex<VecDeque<(String, bool)>>>);

/// The requests that are remembered.
const REMEMBERED: usize = 64;

impl Arrivals {
    /// The requests for a path: whether each came from a peer.
    pub(super) fn of(&self, path: &str) -> Vec<bool> {
        let arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.iter().filter(|(known, _)| known == path).map(|(_, peer)| *peer).collect()
    }

    fn add(&self, path: &str, peer: bool) {
        let mut arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if arrived.len() == REMEMBERED {
            arrived.pop_front();
        }
        arrived.push_back((path.to_owned(), peer));
    }
}

impl<S, B> Service<Request<B>> for Named<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = TaskLocalFuture<&'static str, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let peer = request.extensions().get::<Origin>() == Some(&Origin::Peer);
        self.arrivals.add(request.uri().path(), peer);
        SERVER.scope(self.id, self.inner.call(request))
    }
}

/// Prints proxied and refused requests.
pub(super) struct FlowLayer {
    pub(super) out: LogQueue,
    pub(super) colour: bool,
}

impl<S: Subscriber> Layer<S> for FlowLayer {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        if !event.metadata().target().starts_with("mvp_proxy") {
            return;
        }
        let mut flow = Flow::default();
        event.record(&mut flow);
        if flow.message == "request"
            && !flow.is_polling()
            && let Ok(server) = SERVER.try_with(|id| *id)
        {
            self.out.push(flow.line(server, self.colour).as_bytes());
        }
    }
}

/// The fields of a log line.
#[derive(Debug, Default)]
struct Flow {
    message: String,
    method: String,
    path: String,
    user: String,
    action: String,
    reason: String,
    member: String,
    code: u64,
    milliseconds: u64,
}

impl Flow {
    fn line(&self, server: &str, colour: bool) -> String {
        let paint = |code: &str, text: &str| match colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        };
        let user = if self.user.is_empty() { "mvp" } else { &self.user };
        let status = match self.code {
            200..=399 => "32",
            400..=499 => "33",
            _ => "31",
        };
        let status = paint(status, &self.code.to_string());
        let way = match self.action.as_str() {
            "refuse" => format!("{} refuses ({})", paint("1", server), self.reason),
            _ => format!("{} → {}", paint("1", server), paint("36", &self.member)),
        };
        let Flow { method, path, milliseconds, .. } = self;
        format!("{user}: {way}  {method} {path}  {status}  {milliseconds} ms\n")
    }

    /// Whether a controller looks for work, which it does all the time.
    fn is_polling(&self) -> bool {
        self.user == "system:kube-controller-manager" && self.method == "GET"
    }

    fn text(&mut self, name: &str) -> Option<&mut String> {
        Some(match name {
            "message" => &mut self.message,
            "method" => &mut self.method,
            "path" => &mut self.path,
            "user" => &mut self.user,
            "action" => &mut self.action,
            "reason" => &mut self.reason,
            "member" => &mut self.member,
            _ => return None,
        })
    }
}

impl Visit for Flow {
    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(text) = self.text(field.name()) {
            // A terminal must not obey what a client sends.
            *text = value.escape_debug().to_string();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if let Some(text) = self.text(field.name()) {
            *text = format!("{value:?}").escape_debug().to_string();
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "code" => self.code = value,
            "milliseconds" => self.milliseconds = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        Flow {
            method: "GET".to_owned(),
            path: "/apis/batch/v1/jobs".to_owned(),
            user: "demo-admin".to_owned(),
            action: "peers".to_owned(),
            reason: "not-local".to_owned(),
            member: "server-a".to_owned(),
            code: 200,
            milliseconds: 3,
            ..Flow::default()
        }
    }

    #[test]
    fn a_line_says_who_asked_whom_for_what() {
        let line = "demo-admin: server-b → server-a  GET /apis/batch/v1/jobs  200  3 ms\n";
        assert_eq!(flow().line("server-b", false), line);
        assert!(flow().line("server-b", true).contains("\x1b[32m200\x1b[0m"));
        let refused = Flow { action: "refuse".to_owned(), code: 503, ..flow() };
        let line = "demo-admin: server-b refuses (not-local)  GET /apis/batch/v1/jobs  503  3 ms\n";
        assert_eq!(refused.line("server-b", false), line);
    }
}
