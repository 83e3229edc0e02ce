//! An API server that remembers everything it was asked. Entry: [`Double`].
//!
//! It trusts client certificates as kube-apiserver does. Paths with a rule are answered as the test
//! says, all others as a small real server would.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_net::{ConnectionInfo, Judgement, Limits};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

use crate::client::{Error, TestBody, full};
use crate::pki::pki;
use crate::soon;

type Future<T> = Pin<Box<dyn std::future::Future<Output = T> + Send>>;
type Rule = Arc<dyn Fn(Request<TestBody>) -> Future<Response<TestBody>> + Send + Sync>;

pub struct Double {
    pub address: SocketAddr,
    pub requests: Requests,
    state: Arc<State>,
    _stop: DropGuard,
}

struct State {
    server: Mutex<ApiServer>,
    rules: Mutex<Vec<(&'static str, Rule)>>,
}

impl Double {
    /// A server of this release that has these groups, each with version `v1`.
    pub async fn start(id: &str, release: &str, groups: &[(&str, &str)]) -> Double {
        Double::start_with(id, release, groups, Limits::default()).await
    }

    /// One that bounds its clients so.
    pub async fn start_with(
        id: &str,
        release: &str,
        groups: &[(&str, &str)],
        limits: Limits,
    ) -> Double {
        let server = ApiServer::new(spec(id, release, groups), Storage::default());
        let state = Arc::new(State { server: Mutex::new(server), rules: Mutex::default() });
        let requests = Requests::default();
        let stop = CancellationToken::new();
        let answering = Arc::clone(&state);
        let service = tower::service_fn(move |request: Request<TestBody>| {
            let state = Arc::clone(&answering);
            let answer: Future<Result<Response<TestBody>, Infallible>> =
                Box::pin(async move { Ok(state.answer(request).await) });
            answer
        });
        let address = serve(requests.record(service), limits, stop.clone()).await;
        Double { address, requests, state, _stop: stop.drop_guard() }
    }

    /// From now on it serves this.
    pub fn becomes(&self, release: &str, groups: &[(&str, &str)]) {
        let mut server = self.state.server.lock().unwrap();
        *server = ApiServer::new(
            spec(&server.spec().id.clone(), release, groups),
            server.storage().clone(),
        );
    }

    /// The server behind it.
    pub fn server(&self) -> ApiServer {
        self.state.server.lock().unwrap().clone()
    }

    /// From now on paths that begin so are answered so.
    pub fn rule<F>(
        &self,
        prefix: &'static str,
        answer: impl Fn(Request<TestBody>) -> F + Send + Sync + 'static,
    ) where
        F: std::future::Future<Output = Response<TestBody>> + Send + 'static,
    {
        let answer: Rule = Arc::new(move |request| Box::pin(answer(request)));
        self.state.rules.lock().unwrap().insert(0, (prefix, answer));
    }

    /// From now on paths that begin so get this answer.
    pub fn says(&self, prefix: &'static str, status: u16, content_type: &'static str, body: &str) {
        let body = body.to_owned();
        self.rule(prefix, move |_| {
            let response = Response::builder().status(status).header("content-type", content_type);
            std::future::ready(response.body(full(body.clone())).unwrap())
        });
    }

    /// From now on it has nothing at paths that begin so, whatever it lists.
    pub fn denies(&self, prefix: &'static str) {
        self.says(prefix, 404, "text/plain; charset=utf-8", "404 page not found\n");
    }
}

impl State {
    async fn answer(&self, request: Request<TestBody>) -> Response<TestBody> {
        let rule = self.rule_for(request.uri().path());
        if let Some(rule) = rule {
            return rule(request).await;
        }
        let answer =
            tower_service::Service::call(&mut self.server.lock().unwrap().clone(), request);
        let Ok(response) = answer.await;
        response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
    }

    fn rule_for(&self, path: &str) -> Option<Rule> {
        let rules = self.rules.lock().unwrap();
        let rule = rules.iter().find(|(prefix, _)| path.starts_with(prefix));
        rule.map(|(_, rule)| Arc::clone(rule))
    }
}

fn spec(id: &str, release: &str, groups: &[(&str, &str)]) -> ServerSpec {
    let core =
        GroupSpec::new("").version("v1", [ResourceSpec::namespaced("configmaps", "ConfigMap")]);
    let groups = groups.iter().map(|(group, resources)| {
        let resource = |plural: &str| ResourceSpec::namespaced(plural, "Thing").with_status();
        GroupSpec::new(group).version("v1", resources.split(' ').map(resource))
    });
    ServerSpec {
        id: id.to_owned(),
        git_version: release.to_owned(),
        groups: std::iter::once(core).chain(groups).collect(),
    }
}

/// Serves on a port of its own until told to stop.
pub async fn serve<S>(service: S, limits: Limits, stop: CancellationToken) -> SocketAddr
where
    S: tower_service::Service<Request<Incoming>, Response = Response<TestBody>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(mvp_net::serve(listener, pki().server_tls(), limits, service, stop));
    address
}

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

/// All that a server was asked, in order.
#[derive(Clone)]
pub struct Requests(Arc<watch::Sender<Vec<Recorded>>>);

impl Default for Requests {
    fn default() -> Requests {
        Requests(Arc::new(watch::Sender::new(Vec::new())))
    }
}

impl Requests {
    /// Those whose path begins so.
    pub fn of(&self, prefix: &str) -> Vec<Recorded> {
        let all = self.0.borrow();
        all.iter().filter(|request| request.target.starts_with(prefix)).cloned().collect()
    }

    /// The only one whose path begins so.
    pub fn only(&self, prefix: &str) -> Recorded {
        let mut of = self.of(prefix);
        assert_eq!(of.len(), 1, "requests for {prefix}: {of:#?}");
        of.remove(0)
    }

    /// Waits until a request is as it should be.
    pub async fn wait(&self, mut property: impl FnMut(&Recorded) -> bool) {
        let mut changed = self.0.subscribe();
        soon(changed.wait_for(|all| all.iter().any(&mut property))).await.unwrap();
    }

    /// A service that remembers what it is asked before it answers.
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

/// A body that is remembered as it is read.
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

/// 404 as a server says it that knows the group, but not the resource.
pub const NOT_ROUTED: &str = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"the server could not find the requested resource\",\"reason\":\"NotFound\",\"details\":{},\"code\":404}\n";

/// An answer of a test's own.
pub fn answer(status: StatusCode, body: TestBody) -> Response<TestBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
