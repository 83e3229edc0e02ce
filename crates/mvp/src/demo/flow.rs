//! One line for each request that the layer proxies, as it flows. Entries: [`named`] around a server's
//! layer, [`FlowLayer`] in the subscriber.
//!
//! The layer logs such requests. It knows neither the server that it is in front of nor the users of
//! tokens: the task-local does.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Request;
use mvp_apiserver::TokenFile;
use mvp_core::decide::Origin;
use tokio::task::futures::TaskLocalFuture;
use tower::Service;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer;

use crate::logging::LogQueue;

tokio::task_local! {
    static SCENE: Scene;
}

/// Where a request is served, and who sent it.
pub(super) struct Scene {
    server: &'static str,
    /// The user of a token that the demo knows.
    token_user: Option<String>,
}

/// A service whose requests are those of this server.
pub(super) fn named<S>(
    id: &'static str,
    tokens: Arc<TokenFile>,
    arrivals: Arrivals,
    inner: S,
) -> Named<S> {
    Named { id, tokens, arrivals, inner }
}

/// See [`named`].
#[derive(Debug, Clone)]
pub(super) struct Named<S> {
    id: &'static str,
    tokens: Arc<TokenFile>,
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
    type Future = TaskLocalFuture<Scene, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let peer = request.extensions().get::<Origin>() == Some(&Origin::Peer);
        self.arrivals.add(request.uri().path(), peer);
        let token_user = self.tokens.caller(request.headers()).map(|caller| caller.name.clone());
        SCENE.scope(Scene { server: self.id, token_user }, self.inner.call(request))
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
        if flow.message != "request" || flow.is_polling() {
            return;
        }
        let line = SCENE.try_with(|scene| {
            flow.name_token_user(scene.token_user.as_deref());
            flow.line(scene.server, self.colour)
        });
        if let Ok(line) = line {
            self.out.push(line.as_bytes());
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
    user_source: String,
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

    /// Shows the user of a token instead of the hash of the token.
    fn name_token_user(&mut self, known: Option<&str>) {
        if self.user_source == "token-hash" {
            known.unwrap_or("unknown token").clone_into(&mut self.user);
        }
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
            "user_source" => &mut self.user_source,
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

    #[test]
    fn a_token_is_shown_as_its_user() {
        let hashed =
            || Flow { user: "0a1b2c3d".to_owned(), user_source: "token-hash".to_owned(), ..flow() };
        for (known, shown) in [(Some("viewer"), "viewer: "), (None, "unknown token: ")] {
            let mut flow = hashed();
            flow.name_token_user(known);
            assert!(flow.line("server-b", false).starts_with(shown));
        }
        // A name that a certificate proves is never replaced.
        let mut certified = flow();
        certified.name_token_user(Some("viewer"));
        assert!(certified.line("server-b", false).starts_with("demo-admin: "));
    }
}
