//! The server behind every proxy, in a process of its own: discovery like a Kubernetes API server,
//! lists of any size, watches with events. Entry item: [`serve`].
//!
//! It listens twice: as a server without `batch/v1`, and as its peer with it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, future, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use mvp_net::{ClientTrust, Limits, ReloadableTls, ServerTls};
use serde_json::{Value, json};
use testkit::pki::PkiFiles;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The text before the time, in nanoseconds, at which an event was sent.
pub(crate) const SENT: &str = "\"sent\":\"";

/// The path of a list of this many bytes at the server without `batch/v1`.
pub(crate) fn local_path(bytes: usize) -> String {
    format!("/api/v1/namespaces/size-{bytes}/configmaps")
}

/// The path of a list of this many bytes that only the peer serves.
pub(crate) fn peer_path(bytes: usize) -> String {
    format!("/apis/batch/v1/namespaces/size-{bytes}/jobs")
}

/// The path of an object that only the peer serves, after this time.
pub(crate) fn slow_path(milliseconds: u64) -> String {
    format!("/apis/batch/v1/namespaces/size-2000/jobs/wait-{milliseconds}")
}

/// How long the server waits before it answers.
fn wait_of(path: &str) -> Option<Duration> {
    let milliseconds = path.rsplit_once("/wait-")?.1.parse().ok()?;
    Some(Duration::from_millis(milliseconds))
}

pub(crate) const WATCH_PATH: &str = "/apis/batch/v1/namespaces/default/jobs?watch=1";

/// The path that sets the interval of watch events in milliseconds; 0 for none.
pub(crate) fn control_path(milliseconds: u64) -> String {
    format!("/bench/events/{milliseconds}")
}

/// Serves until it is killed.
pub(crate) async fn serve(
    pki: &PkiFiles,
    lacking: SocketAddr,
    peer: SocketAddr,
    groups: usize,
) -> anyhow::Result<()> {
    let state = Arc::new(State::new(groups));
    let tls = tls(pki)?;
    let serve = |address, has_batch| {
        let state = Arc::clone(&state);
        serve_at(address, tls.clone(), move |request| {
            let wait = wait_of(request.uri().path());
            let response = state.answer(&request, has_batch);
            async move {
                if let Some(wait) = wait {
                    tokio::time::sleep(wait).await;
                }
                response
            }
        })
    };
    future::try_join(serve(lacking, false), serve(peer, true)).await.map(drop)
}

/// The TLS configuration of a server of the bench.
pub(crate) fn tls(pki: &PkiFiles) -> anyhow::Result<ReloadableTls> {
    let (certificate, front) = (pki.server(), std::fs::read(pki.front_proxy_ca())?);
    let trust = ClientTrust::new(Some(&std::fs::read(pki.ca())?), Some(&front), Vec::new())?;
    let (chain, key) = (std::fs::read(certificate.certificate)?, std::fs::read(certificate.key)?);
    Ok(ReloadableTls::new(ServerTls::new(&chain, &key, trust)?))
}

/// Serves at an address until the process is killed.
pub(crate) async fn serve_at<F>(
    address: SocketAddr,
    tls: ReloadableTls,
    mut answer: impl FnMut(Request<Incoming>) -> F + Clone + Send + 'static,
) -> anyhow::Result<()>
where
    F: Future<Output = Response<Body>> + Send,
{
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let listener = mvp_net::bind(address, false).context("cannot listen")?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let limits = Limits { idle_timeout: Duration::from_secs(600), ..Limits::default() };
    let service = tower::service_fn(move |request| answer(request).map(Ok));
    mvp_net::serve(listener, tls, limits, service, CancellationToken::new()).await;
    Ok(())
}

/// The state of the server.
pub(crate) struct State {
    /// Milliseconds between the events of a watch; 0: none.
    pause: watch::Sender<u64>,
    watches: AtomicU64,
    filler: Bytes,
    /// `/api`, then `/apis` of the server without `batch/v1` and of its peer.
    documents: [Bytes; 3],
}

impl State {
    pub(crate) fn new(groups: usize) -> State {
        let item = r#"{"metadata":{"name":"example","namespace":"default","uid":"0"},"spec":{}},"#;
        let filler: String = item.chars().cycle().take(1 << 20).collect();
        let documents = [(true, false), (false, false), (false, true)]
            .map(|(core, has_batch)| discovery(core, has_batch, groups).to_string().into());
        let watches = AtomicU64::new(0);
        State { pause: watch::Sender::new(0), watches, filler: filler.into(), documents }
    }

    fn answer(&self, request: &Request<Incoming>, has_batch: bool) -> Response<Body> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let etag = match (has_batch, query) {
            // As if its discovery had changed since the gateway fetched it.
            (false, CHANGED_QUERY) => "\"changed\"",
            (false, _) => ETAG_OF_LACKING,
            (true, _) => "\"peer\"",
        };
        match path {
            "/api" | "/apis" => {
                if request.headers().get(IF_NONE_MATCH).is_some_and(|known| known == etag) {
                    return answer(StatusCode::NOT_MODIFIED, None, Bytes::new());
                }
                let [core, lacking, peer] = &self.documents;
                let document = match (path, has_batch) {
                    ("/api", _) => core,
                    (_, false) => lacking,
                    (_, true) => peer,
                };
                let mut response = answer(StatusCode::OK, Some(AGGREGATED), document.clone());
                response.headers_mut().insert(ETAG, http::HeaderValue::from_static(etag));
                response
            }
            "/version" => {
                let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"});
                answer(StatusCode::OK, Some(JSON), version.to_string().into())
            }
            "/readyz" | "/livez" | "/healthz" => answer(StatusCode::OK, None, "ok".into()),
            _ if query.contains("watch=1") => self.watch(),
            _ => self.list(path),
        }
    }

    /// `…/size-BYTES/…` returns that many bytes; `/bench/events/N` sets the interval of watch
    /// events.
    pub(crate) fn list(&self, path: &str) -> Response<Body> {
        if let Some(pause) = path.strip_prefix("/bench/events/") {
            self.pause.send_replace(pause.parse().unwrap_or_default());
            return answer(StatusCode::OK, None, "ok".into());
        }
        let size = path.split('/').find_map(|step| step.strip_prefix("size-")?.parse().ok());
        let Some(size): Option<usize> = size else {
            return answer(StatusCode::NOT_FOUND, None, "404 page not found\n".into());
        };
        let body = match size <= self.filler.len() {
            true => Full::new(self.filler.slice(..size)).boxed_unsync(),
            false => self.large(size),
        };
        let mut response = response(StatusCode::OK, Some(JSON), body);
        response.headers_mut().insert(CONTENT_LENGTH, size.into());
        response
    }

    fn large(&self, size: usize) -> Body {
        let filler = self.filler.clone();
        let pieces = (0..size.div_ceil(filler.len())).map(move |index| {
            let left = size - index * filler.len();
            Ok(Frame::data(filler.slice(..left.min(filler.len()))))
        });
        StreamBody::new(stream::iter(pieces)).boxed_unsync()
    }

    /// A watch that is silent after its first event until it is told otherwise.
    pub(crate) fn watch(&self) -> Response<Body> {
        let number = self.watches.fetch_add(1, Ordering::Relaxed);
        // One event at the start, as informers get; nginx delays the response head until there is
        // one.
        let events = stream::iter([event()]).chain(events(self.pause.subscribe(), number));
        let body = StreamBody::new(events.map(|event| Ok(Frame::data(event)))).boxed_unsync();
        response(StatusCode::OK, Some(JSON), body)
    }
}

/// One event per interval; watches are spread over it.
fn events(pause: watch::Receiver<u64>, number: u64) -> impl Stream<Item = Bytes> {
    stream::unfold((pause, true), move |(mut pause, mut first)| async move {
        loop {
            let every = *pause.borrow_and_update();
            if every == 0 {
                pause.changed().await.ok()?;
                first = true;
                continue;
            }
            let wait = if first { number * 7919 % every.max(1) } else { every };
            let over = tokio::time::sleep(Duration::from_millis(wait));
            first = false;
            tokio::select! {
                () = over => return Some((event(), (pause, false))),
                changed = pause.changed() => changed.ok()?,
            }
        }
    })
}

fn event() -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let text = format!(
        r#"{{"type":"MODIFIED","object":{{"kind":"Job","apiVersion":"batch/v1","metadata":{{"name":"example","namespace":"default","uid":"6f1c1d0e-0000-4000-8000-000000000000","resourceVersion":"12345"}},"spec":{{"parallelism":1}},{SENT}{now}"}}}}"#
    );
    (text + "\n").into()
}

pub(crate) const JSON: &str = "application/json";
/// The query with which the server without `batch/v1` gives its discovery another ETag.
pub(crate) const CHANGED_QUERY: &str = "changed";
/// The discovery ETag of the server without `batch/v1`.
pub(crate) const ETAG_OF_LACKING: &str = "\"lacking\"";
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn discovery(core: bool, has_batch: bool, groups: usize) -> Value {
    let group = |name: &str, resource: &str, kind: &str| {
        json!({"metadata": {"name": name}, "versions": [{"version": "v1", "freshness": "Current",
            "resources": [{"resource": resource, "singularResource": kind.to_lowercase(),
                "responseKind": {"group": name, "version": "v1", "kind": kind},
                "scope": "Namespaced", "verbs": ["get", "list", "watch"]}]}]})
    };
    let mut items = Vec::new();
    match core {
        true => items.push(group("", "configmaps", "ConfigMap")),
        false => {
            items.push(group("apps", "deployments", "Deployment"));
            items.extend(has_batch.then(|| group("batch", "jobs", "Job")));
            let custom = |index| group(&format!("g{index}.example.com"), "widgets", "Widget");
            items.extend((0..groups).map(custom));
        }
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items})
}

pub(crate) fn answer(
    status: StatusCode,
    content_type: Option<&'static str>,
    body: Bytes,
) -> Response<Body> {
    response(status, content_type, Full::new(body).boxed_unsync())
}

pub(crate) fn response(
    status: StatusCode,
    content_type: Option<&'static str>,
    body: Body,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        let value = http::HeaderValue::from_static(content_type);
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_peer_has_jobs() {
        assert!(discovery(false, true, 1).to_string().contains("jobs"));
        assert!(!discovery(false, false, 1).to_string().contains("jobs"));
    }

    #[test]
    fn the_time_that_an_answer_takes_is_in_its_path() {
        assert_eq!(wait_of(&slow_path(200)), Some(Duration::from_millis(200)));
        assert_eq!(wait_of(&peer_path(2_000)), None);
    }

    #[tokio::test]
    async fn lists_have_the_size_of_their_namespace() {
        let state = State::new(0);
        for size in [2_000, 3_000_000] {
            let response = state.list(&peer_path(size));
            assert_eq!(
                response.into_body().collect().await.expect("a body").to_bytes().len(),
                size
            );
        }
        assert_eq!(state.list("/apis/batch/v1/jobs").status(), StatusCode::NOT_FOUND);
    }

    #[tokio::test(start_paused = true)]
    async fn watches_are_silent_until_told() {
        let pause = watch::Sender::new(0);
        let mut events = std::pin::pin!(events(pause.subscribe(), 3));
        let silent = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
        assert!(silent.is_err());
        pause.send_replace(200);
        let event = events.next().await.expect("an event");
        assert!(event.ends_with(b"}}\n") && !event.windows(8).all(|part| part != SENT.as_bytes()));
    }
}
