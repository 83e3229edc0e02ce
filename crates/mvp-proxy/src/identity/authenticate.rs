//! Authentication as a tower layer. Entry item: [`Authenticate`].

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use arc_swap::{ArcSwap, Cache};
use http::{Request, Response};
use mvp_core::decide::Origin;
use mvp_net::{ClientErrors, ConnectionInfo};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::rules::authenticate;
use super::untrusted::Untrusted;
use super::{Identity, Names, RemoteHeaders, Screen, Screened};
use crate::body::Body;
use crate::door::{self, Door, Head, Refusal};
use crate::gateway::TRACED;
use crate::trace::{Ending, Sender, TRUSTED_GROUPS, Trace, Tracer};

/// A layer that identifies the caller, and refuses requests that are malformed or too large.
#[derive(Debug, Clone, Default)]
pub struct AuthenticateLayer {
    screen: Screen,
    door: Door,
    untrusted: Untrusted,
    tracer: Option<Tracer>,
    errors: ClientErrors,
}

impl AuthenticateLayer {
    /// A layer that reads the users of front proxies from these headers. In front of a member, use
    /// [`Member::authenticate`](crate::Member::authenticate): it knows further headers that servers
    /// read. Its clones report an untrusted client certificate once together.
    pub fn new(headers: RemoteHeaders) -> AuthenticateLayer {
        AuthenticateLayer::with_screen(headers.into())
    }

    pub(crate) fn with_screen(screen: Screen) -> AuthenticateLayer {
        let untrusted = screen.untrusted.clone();
        AuthenticateLayer { screen, untrusted, ..AuthenticateLayer::default() }
    }

    /// Traces requests.
    pub(crate) fn traced_by(self, tracer: Option<Tracer>) -> AuthenticateLayer {
        AuthenticateLayer { tracer, ..self }
    }

    /// Counts refused requests there.
    pub fn counting(self, errors: ClientErrors) -> AuthenticateLayer {
        AuthenticateLayer { errors, ..self }
    }

    /// Sets the largest request head; larger ones get a 431. The size is that of an HTTP/2 header
    /// list: name, value and 32 bytes for each field. The default is 128 KiB. Front proxies and
    /// peers add headers of their own, so they may send 32 KiB more.
    pub fn with_max_head_bytes(mut self, bytes: usize) -> AuthenticateLayer {
        self.door.max_head_bytes = bytes;
        self
    }

    /// Sets the probability with which an HTTP/2 request closes its connection (GOAWAY), so that
    /// long-lived clients are rebalanced, as with kube-apiserver's `--goaway-chance`. Connections
    /// of front proxies and peers are never closed. The default is 0.
    pub fn with_goaway_chance(mut self, chance: f64) -> AuthenticateLayer {
        self.door.goaway = door::Chance::new(chance);
        self
    }
}

impl<S> Layer<S> for AuthenticateLayer {
    type Service = Authenticate<S>;

    fn layer(&self, inner: S) -> Authenticate<S> {
        let AuthenticateLayer { screen, door, untrusted, tracer, errors } = self.clone();
        Authenticate { names: Cache::new(screen.current), door, untrusted, tracer, errors, inner }
    }
}

/// A service that identifies the caller before it calls the inner service.
#[derive(Debug, Clone)]
pub struct Authenticate<S> {
    names: Cache<Arc<ArcSwap<Names>>, Arc<Names>>,
    door: Door,
    untrusted: Untrusted,
    tracer: Option<Tracer>,
    errors: ClientErrors,
    inner: S,
}

impl<S, B> Service<Request<B>> for Authenticate<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let connection = request.extensions().get::<ConnectionInfo>().cloned();
        let mut end = self.door.end(connection.as_ref());
        let began = self.tracer.as_ref().map(|_| Instant::now());
        let admitted = self.admit(connection.as_ref(), &mut request);
        let trace = began.and_then(|began| {
            let trace = self.begin_trace(began, &mut request)?;
            trace.authenticated(admitted.as_ref().err().map(|refusal| refusal.error().label()));
            Some(trace.ending())
        });
        match admitted {
            Ok(anonymous) => {
                end.always |= anonymous;
                let answer = self.inner.call(request);
                ResponseFuture { answer: Answer::Inner { answer }, end, trace }
            }
            Err(refusal) => {
                self.errors.note(refusal.error());
                if let Some(connection) = &connection
                    && refusal.closes()
                    && !connection.http2()
                {
                    connection.end();
                }
                let client = connection.as_ref().map(ConnectionInfo::remote);
                let response = Some(refusal.response(client));
                ResponseFuture { answer: Answer::Refused { response }, end, trace }
            }
        }
    }
}

impl<S> Authenticate<S> {
    /// Sets the extensions of a request. Returns whether its caller is anonymous, or why the
    /// request is refused.
    fn admit<B>(
        &mut self,
        connection: Option<&ConnectionInfo>,
        request: &mut Request<B>,
    ) -> Result<bool, Refusal> {
        let names = self.names.load();
        let mut head = Head::of(request, |name| names.reserves(name));
        let large = self.door.check(connection, request, &mut head)?;
        let headers = request.headers_mut();
        let (identity, origin) =
            authenticate(connection, headers, names, head.reserved, &self.untrusted)
                .map_err(Refusal::Unauthorized)?;
        let anonymous = matches!(identity, Identity::Anonymous);
        let extensions = request.extensions_mut();
        extensions.insert(identity);
        extensions.insert(origin);
        extensions.insert(Screened(Arc::clone(names)));
        if let Some(large) = large {
            extensions.insert(large);
        }
        Ok(anonymous)
    }

    /// Begins the trace of a request, if it is sampled, and sets it as an extension.
    fn begin_trace<B>(&self, began: Instant, request: &mut Request<B>) -> Option<Trace> {
        let tracer = self.tracer.as_ref()?;
        let sender = sender(request);
        let trace = tracer.begin(began, request, sender)?;
        request.extensions_mut().insert(trace.clone());
        Some(trace)
    }
}

/// Whose trace context it is. That of a refused request is anybody's.
fn sender<B>(request: &Request<B>) -> Sender {
    let extensions = request.extensions();
    match extensions.get::<Identity>() {
        Some(_) if extensions.get() == Some(&Origin::Peer) => {
            match request.headers().contains_key(TRACED) {
                true => Sender::Peer,
                false => Sender::Untraced,
            }
        }
        Some(identity) if identity.is_of(&TRUSTED_GROUPS) => Sender::Trusted,
        _ => Sender::Client,
    }
}

pin_project! {
    /// The future of [`Authenticate`].
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        answer: Answer<F>,
        end: door::End,
        trace: Option<Ending>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = AnswerProjection]
    enum Answer<F> {
        Inner { #[pin] answer: F },
        Refused { response: Option<Response<Body>> },
    }
}

impl<F> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = match this.answer.project() {
            AnswerProjection::Inner { answer } => {
                let Ok(response) = ready!(answer.poll(cx));
                response
            }
            // It stays pending if it is polled again after completion.
            AnswerProjection::Refused { response } => match response.take() {
                Some(response) => response,
                None => return Poll::Pending,
            },
        };
        this.end.after(response.status());
        if let Some(trace) = this.trace.take() {
            trace.respond(&mut response);
        }
        Poll::Ready(Ok(response))
    }
}

#[cfg(test)]
mod tests;
