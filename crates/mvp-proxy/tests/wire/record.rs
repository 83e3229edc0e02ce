//! The requests of a service, recorded as they arrive. Entry item: [`Requests`].

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use mvp_net::{ConnectionInfo, Judgement};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::client::{Error, TestBody};
use crate::soon;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub method: Method,
    /// Path and query, byte for byte.
    pub target: String,
    /// `Host` or `:authority`.
    pub host: String,
    pub version: Version,
    pub headers: HeaderMap,
    pub connection: Judgement,
    /// The client's port, which identifies the connection.
    pub port: u16,
    pub body: BytesMut,
    pub trailers: Option<HeaderMap>,
    /// The body was read to its end.
    pub whole: bool,
}

impl Recorded {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }
}

/// All requests of a server, in order.
#[derive(Clone)]
pub struct Requests(Arc<watch::Sender<Vec<Recorded>>>);

impl Default for Requests {
    fn default() -> Requests {
        Requests(Arc::new(watch::Sender::new(Vec::new())))
    }
}

impl Requests {
    /// The requests whose path starts with this prefix.
    pub fn of(&self, prefix: &str) -> Vec<Recorded> {
        let all = self.0.borrow();
        all.iter().filter(|request| request.target.starts_with(prefix)).cloned().collect()
    }

    /// The only request whose path starts with this prefix.
    pub fn only(&self, prefix: &str) -> Recorded {
        let mut of = self.of(prefix);
        assert_eq!(of.len(), 1, "requests for {prefix}: {of:#?}");
        of.remove(0)
    }

    /// Waits for a request with this property.
    pub async fn wait(&self, mut property: impl FnMut(&Recorded) -> bool) {
        let mut changed = self.0.subscribe();
        soon(changed.wait_for(|all| all.iter().any(&mut property))).await.unwrap();
    }

    /// A service that records requests before it handles them.
    pub fn record<S, B>(
        &self,
        service: S,
    ) -> impl tower_service::Service<
        Request<B>,
        Response = Response<TestBody>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static
    where
        S: tower_service::Service<Request<TestBody>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        S: tower_service::Service<Request<TestBody>, Response = Response<TestBody>>,
        B: http_body::Body<Data = Bytes, Error: Into<Error>> + Send + 'static,
    {
        let requests = self.clone();
        tower::service_fn(move |request: Request<B>| {
            service.clone().oneshot(requests.remember(request))
        })
    }

    fn remember<B>(&self, request: Request<B>) -> Request<TestBody>
    where
        B: http_body::Body<Data = Bytes, Error: Into<Error>> + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let host = parts.headers.get("host").map(|host| host.to_str().unwrap().to_owned());
        let connection = parts.extensions.get::<ConnectionInfo>();
        let recorded = Recorded {
            method: parts.method.clone(),
            target: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            port: connection.map_or(0, |connection| connection.remote().port()),
            host: host.or(parts.uri.authority().map(ToString::to_string)).unwrap_or_default(),
            version: parts.version,
            headers: parts.headers.clone(),
            connection: connection.map(|info| info.judgement().clone()).unwrap_or_default(),
            body: BytesMut::new(),
            trailers: None,
            whole: body.is_end_stream(),
        };
        let mut index = 0;
        self.0.send_modify(|all| {
            index = all.len();
            all.push(recorded);
        });
        let body = body.map_err(Into::into).boxed_unsync();
        let body = Tee { body, requests: self.clone(), index }.boxed_unsync();
        Request::from_parts(parts, body)
    }

    fn change(&self, index: usize, change: impl FnOnce(&mut Recorded)) {
        self.0.send_modify(|all| change(&mut all[index]));
    }
}

/// A body that is recorded as it is read.
struct Tee {
    body: TestBody,
    requests: Requests,
    index: usize,
}

impl http_body::Body for Tee {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let ended = self.body.is_end_stream();
        self.requests.change(self.index, |recorded| match &polled {
            Poll::Ready(None) => recorded.whole = true,
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    recorded.body.extend_from_slice(data);
                }
                if let Some(trailers) = frame.trailers_ref() {
                    recorded.trailers = Some(trailers.clone());
                }
                recorded.whole = recorded.whole || ended;
            }
            _ => {}
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
