//! Health on the API port, for load balancers. Entry: [`HealthLayer`].
//!
//! It runs before authentication. `/mvp/readyz` and `/mvp/livez` report on the gateway alone: once it
//! is ready, it stays ready even if its server fails, because peers take the server's place.
//! `/readyz` is the server's until the gateway shuts down, and fails from then on, unless connections
//! are steered: then the server takes over at the same address. All other requests pass. Callers are not authenticated, so failing checks are listed without their reasons.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use mvp_proxy::Body;
use tokio_util::sync::CancellationToken;
use tower::Service;
use tower_layer::Layer;

use crate::admin::Check;
use crate::heartbeat::{self, Heartbeats, STUCK_AFTER};

/// Returns the checks of readiness.
pub(crate) type Readiness = dyn Fn() -> Vec<Check> + Send + Sync;

/// The health of the gateway, for the API port and the admin endpoint.
pub(crate) struct Probes {
    leaving: CancellationToken,
    /// Whether the server can be reached at the same address without this process.
    steered: bool,
    heartbeats: Heartbeats,
    /// The time since the control loop last published.
    published: Box<dyn Fn() -> Duration + Send + Sync>,
    /// The interval at which it publishes.
    interval: Duration,
    /// Set when the control loop starts.
    readiness: OnceLock<Arc<Readiness>>,
    /// Whether all checks of readiness have passed once.
    started: AtomicBool,
}

impl Probes {
    pub(crate) fn new(
        leaving: CancellationToken,
        published: impl Fn() -> Duration + Send + Sync + 'static,
        interval: Duration,
    ) -> Probes {
        let (heartbeats, readiness) = (Heartbeats::default(), OnceLock::new());
        let (published, started) = (Box::new(published), AtomicBool::new(false));
        let steered = false;
        Probes { leaving, steered, heartbeats, published, interval, readiness, started }
    }

    /// The server takes over at the same address when this process ends.
    pub(crate) fn steered(self, steered: bool) -> Probes {
        Probes { steered, ..self }
    }

    /// The heartbeats of all runtimes.
    pub(crate) fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// Sets the checks of readiness.
    pub(crate) fn ready_when(&self, readiness: Arc<Readiness>) {
        // There is only one control loop, so this is called once.
        let _ = self.readiness.set(readiness);
    }

    /// The checks of readiness; ready if none has a problem.
    pub(crate) fn readiness(&self) -> Vec<Check> {
        match self.readiness.get() {
            Some(readiness) => readiness(),
            None => vec![Check {
                name: "start".to_owned(),
                problem: Some("the control loop has not started yet".to_owned()),
                remark: None,
            }],
        }
    }

    /// The checks of liveness: every runtime, and the control loop.
    pub(crate) fn liveness(&self) -> Vec<Check> {
        let mut checks = self.heartbeats.checks();
        let (age, bound) = ((self.published)(), STUCK_AFTER + self.interval);
        checks.push(heartbeat::check("control-loop", age, bound));
        checks
    }

    /// Whether the control loop published lately.
    pub(crate) fn control_loop_runs(&self) -> bool {
        (self.published)() <= STUCK_AFTER + self.interval
    }

    /// The checks of the gateway itself: it has started, is not shutting down, and makes progress.
    fn gateway(&self) -> Vec<Check> {
        if self.leaving.is_cancelled() {
            return vec![crate::inside::shutdown(true)];
        }
        if !self.started.load(Ordering::Relaxed) {
            let checks = self.readiness();
            if checks.iter().any(|check| check.problem.is_some()) {
                return checks;
            }
            self.started.store(true, Ordering::Relaxed);
        }
        self.liveness()
    }

    fn answer(&self, method: &Method, path: &str) -> Option<Response<Body>> {
        let (name, checks) = match path {
            "/mvp/readyz" => ("readyz", self.gateway()),
            "/mvp/livez" => ("livez", self.liveness()),
            "/readyz" if self.leaving.is_cancelled() && !self.steered => {
                let problem = Some("the process is shutting down".to_owned());
                ("readyz", vec![Check { name: "mvp-shutdown".to_owned(), problem, remark: None }])
            }
            _ => return None,
        };
        let is_head = method == Method::HEAD;
        (is_head || method == Method::GET).then(|| response(name, &checks, is_head))
    }
}

fn response(name: &str, checks: &[Check], is_head: bool) -> Response<Body> {
    let mut text = String::new();
    for Check { name, .. } in checks.iter().filter(|check| check.problem.is_some()) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "[-]{name} failed: reason withheld");
    }
    let status = if text.is_empty() {
        text.push_str("ok");
        StatusCode::OK
    } else {
        let _ = writeln!(text, "{name} check failed");
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = if is_head { Body::empty() } else { Bytes::from(text).into() };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A layer that answers health probes, and passes all other requests.
#[derive(Clone)]
pub(crate) struct HealthLayer(pub(crate) Arc<Probes>);

impl<S> Layer<S> for HealthLayer {
    type Service = Health<S>;

    fn layer(&self, inner: S) -> Health<S> {
        Health { probes: Arc::clone(&self.0), inner }
    }
}

/// The service of [`HealthLayer`].
#[derive(Clone)]
pub(crate) struct Health<S> {
    probes: Arc<Probes>,
    inner: S,
}

impl<S, B> Service<Request<B>> for Health<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.probes.answer(request.method(), request.uri().path()) {
            Some(response) => Either::Right(ready(Ok(response))),
            None => Either::Left(self.inner.call(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tower::{ServiceExt, service_fn};

    use super::*;

    fn probes() -> Probes {
        Probes::new(CancellationToken::new(), || Duration::ZERO, Duration::from_secs(1))
    }

    fn check(name: &str, problem: Option<&str>) -> Check {
        Check { name: name.to_owned(), problem: problem.map(str::to_owned), remark: None }
    }

    async fn ask(probes: &Arc<Probes>, method: Method, path: &str) -> (u16, String) {
        let server = service_fn(async |_: Request<Body>| {
            Ok(Response::new(Body::from(Bytes::from_static(b"the server's"))))
        });
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let service = HealthLayer(Arc::clone(probes)).layer(server);
        let (parts, body) = service.oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn mvp_readyz_reports_the_gateway_alone() {
        let probes = Arc::new(probes());
        let not_started = "[-]start failed: reason withheld\nreadyz check failed\n";
        assert_eq!(ask(&probes, Method::GET, "/mvp/readyz").await, (503, not_started.to_owned()));
        let ready = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ready);
        probes.ready_when(Arc::new(move || {
            let unready = !told.load(Ordering::Relaxed);
            let problem = unready.then_some("10.0.0.1:6443 cannot be reached");
            vec![check("shutdown", None), check("local-server", problem)]
        }));
        let failed = "[-]local-server failed: reason withheld\nreadyz check failed\n";
        for (path, expected) in [
            ("/mvp/readyz", (503, failed)),
            ("/mvp/readyz?verbose", (503, failed)),
            ("/mvp/livez", (200, "ok")),
        ] {
            let answer = ask(&probes, Method::GET, path).await;
            assert_eq!((answer.0, &*answer.1), expected, "{path}");
        }
        assert_eq!(ask(&probes, Method::HEAD, "/mvp/readyz").await, (503, String::new()));
        ready.store(true, Ordering::Relaxed);
        assert_eq!(ask(&probes, Method::GET, "/mvp/readyz").await, (200, "ok".to_owned()));
        // It stays ready: peers take the place of a server that is down.
        ready.store(false, Ordering::Relaxed);
        assert_eq!(ask(&probes, Method::GET, "/mvp/readyz").await, (200, "ok".to_owned()));
        assert_eq!(ask(&probes, Method::HEAD, "/mvp/livez").await, (200, String::new()));
    }

    #[tokio::test]
    async fn a_stuck_runtime_is_named() {
        let probes = Probes {
            heartbeats: Heartbeats::new({
                let calls = std::sync::atomic::AtomicU64::new(0);
                // A minute passes with each call.
                move || Duration::from_mins(calls.fetch_add(1, Ordering::Relaxed))
            }),
            ..probes()
        };
        let probes = Arc::new(probes);
        let _stuck = probes.heartbeats().add("worker-3");
        let failed = "[-]worker-3 failed: reason withheld\nlivez check failed\n";
        assert_eq!(ask(&probes, Method::GET, "/mvp/livez").await, (503, failed.to_owned()));
        let checks = probes.liveness();
        assert_eq!(checks.last(), Some(&check("control-loop", None)));
    }

    #[tokio::test]
    async fn a_control_loop_that_publishes_nothing_is_named() {
        let failed = "[-]control-loop failed: reason withheld\nlivez check failed\n";
        // It may be idle for the interval.
        for (age, expected) in [(0, (200, "ok")), (11, (200, "ok")), (12, (503, failed))] {
            let published = move || Duration::from_secs(age);
            let probes = Probes::new(CancellationToken::new(), published, Duration::from_secs(1));
            let answer = ask(&Arc::new(probes), Method::GET, "/mvp/livez").await;
            assert_eq!((answer.0, &*answer.1), expected, "{age}");
        }
    }

    #[tokio::test]
    async fn other_paths_pass_and_readyz_fails_during_shutdown() {
        let probes = Arc::new(probes());
        let shutdown = "[-]mvp-shutdown failed: reason withheld\nreadyz check failed\n";
        let passes = [
            (Method::GET, "/livez"),
            (Method::GET, "/healthz"),
            (Method::GET, "/readyz/ping"),
            (Method::POST, "/readyz"),
            (Method::POST, "/mvp/readyz"),
            (Method::GET, "/mvp/"),
            (Method::GET, "/mvp/livez/"),
            (Method::GET, "/mvp"),
            (Method::GET, "/api/v1/namespaces"),
        ];
        let passed = (200, "the server's".to_owned());
        assert_eq!(ask(&probes, Method::GET, "/readyz").await, passed);
        for (method, path) in passes.clone() {
            assert_eq!(ask(&probes, method, path).await, passed, "{path}");
        }
        probes.leaving.cancel();
        assert_eq!(ask(&probes, Method::GET, "/readyz?verbose").await, (503, shutdown.to_owned()));
        assert_eq!(ask(&probes, Method::HEAD, "/readyz").await, (503, String::new()));
        for (method, path) in passes {
            assert_eq!(ask(&probes, method, path).await, passed, "{path}");
        }
    }
}
