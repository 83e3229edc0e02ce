//! Two gateways, each beside its server, that are peers of each other. B's server does not serve an
//! API that A's serves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_net::Judgement;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::support::client::Client;
use crate::support::double::{Body, Double};
use crate::support::eventually;
use crate::support::process::{Gateway, free_address};

/// An API that only A's server serves.
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// An API that both servers serve.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Objects as large as their names say, in bytes; only A's server has them.
pub(crate) const BULKS: &str = "/apis/example.com/v1/namespaces/default/bulks";
/// The `Accept` header of discovery requests.
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(crate) struct Cluster {
    pub(crate) a: Member,
    pub(crate) b: Member,
    /// The large objects of A's server.
    pub(crate) bulk: Bulk,
}

pub(crate) struct Member {
    pub(crate) gateway: Gateway,
    pub(crate) server: Double,
}

impl Cluster {
    pub(crate) async fn start() -> Cluster {
        Cluster::with(&[]).await
    }

    /// With more flags for both gateways.
    pub(crate) async fn with(more: &[String]) -> Cluster {
        let storage = Storage::new();
        let (a, b) = (free_address(), free_address());
        let bulk = Bulk::default();
        let a_server = serve_bulk(any(), api_server("a", storage.clone()), bulk.clone()).await;
        let b_server = serve(any(), api_server("b", storage)).await;
        let gateway = |own, id, server: &Double, peer: String| {
            let flags: Vec<String> = [peer].iter().chain(more).cloned().collect();
            Gateway::start(own, id, server.address, &flags)
        };
        let a_gateway = gateway(a, "a", &a_server, format!("--peer=b=https://{b}"));
        let b_gateway = gateway(b, "b", &b_server, format!("--peer=a=https://{a}"));
        let (a, b) = tokio::join!(a_gateway.ready(), b_gateway.ready());
        Cluster {
            a: Member { gateway: a, server: a_server },
            b: Member { gateway: b, server: b_server },
            bulk,
        }
    }
}

/// Only gateway B, with A's server as a bare peer: the shortest path to a peer.
pub(crate) async fn beside_bare_peer() -> (Member, Double) {
    beside(Bulk::default(), &[]).await
}

/// The same, with large objects of the test.
pub(crate) async fn beside_bulk(bulk: Bulk) -> (Member, Double) {
    beside(bulk, &[]).await
}

/// The same, with more flags.
pub(crate) async fn beside_with(more: &[String]) -> (Member, Double) {
    beside(Bulk::default(), more).await
}

async fn beside(bulk: Bulk, more: &[String]) -> (Member, Double) {
    let storage = Storage::new();
    let peer = serve_bulk(any(), api_server("a", storage.clone()), bulk).await;
    let server = serve(any(), api_server("b", storage)).await;
    let flag = format!("--peer=a=https://{},kind=bare", peer.address);
    let flags: Vec<String> = [flag].iter().chain(more).cloned().collect();
    let gateway = Gateway::start(free_address(), "b", server.address, &flags).ready().await;
    (Member { gateway, server }, peer)
}

/// Any free address.
pub(crate) fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The server of A or of B.
pub(crate) fn api_server(id: &str, storage: Storage) -> ApiServer {
    let core = GroupSpec::new("").version(
        "v1",
        [
            ResourceSpec::cluster("namespaces", "Namespace"),
            ResourceSpec::namespaced("configmaps", "ConfigMap"),
        ],
    );
    let own = match id {
        "a" => {
            let widgets = ResourceSpec::namespaced("widgets", "Widget").with_status();
            let bulks = ResourceSpec::namespaced("bulks", "Bulk");
            GroupSpec::new("example.com").version("v1", [widgets, bulks])
        }
        _ => GroupSpec::new("other.example.com")
            .version("v1", [ResourceSpec::cluster("gears", "Gear")]),
    };
    let git_version = "v1.36.4".to_owned();
    let groups = vec![core, own];
    let spec = ServerSpec { id: id.to_owned(), git_version, groups, ..ServerSpec::default() };
    ApiServer::new(spec, storage)
}

/// Runs an API server that authenticates front proxies and the token `good`.
pub(crate) async fn serve(address: SocketAddr, api: ApiServer) -> Double {
    serve_bulk(address, api, Bulk::default()).await
}

/// The same, for a test that checks how much of its large objects was read.
pub(crate) async fn serve_bulk(address: SocketAddr, api: ApiServer, bulk: Bulk) -> Double {
    Double::start(address, move |request| answer(api.clone(), bulk.clone(), request)).await
}

/// The answer of an API server that authenticates front proxies and the token `good`.
pub(crate) async fn answer(
    api: ApiServer,
    bulk: Bulk,
    request: Request<Incoming>,
) -> Response<Body> {
    let headers = request.headers();
    let proxy = request.extensions().get::<Judgement>().is_some_and(|proved| proved.front_proxy);
    let vouched = proxy && headers.contains_key("x-remote-user");
    let token = headers.get("authorization").map(|value| value.as_bytes());
    if !vouched && token != Some(b"Bearer good") {
        return json_response(
            StatusCode::UNAUTHORIZED,
            &json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
            }),
        );
    }
    if request.headers().contains_key("upgrade") {
        return echo(request);
    }
    let name = request.uri().path().strip_prefix(BULKS).map(|rest| rest.trim_matches('/'));
    match name.and_then(|name| name.parse().ok()) {
        Some(bytes) => Response::new(bulk.body(bytes)),
        None => match api.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
    }
}

/// Takes over the connection and echoes its input.
fn echo(request: Request<Incoming>) -> Response<Body> {
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", request.headers()["upgrade"].clone());
    tokio::spawn(async move {
        let Ok(stream) = hyper::upgrade::on(request).await else { return };
        let (mut reads, mut writes) = tokio::io::split(TokioIo::new(stream));
        if tokio::io::copy(&mut reads, &mut writes).await.is_ok() {
            let _ = writes.shutdown().await;
        }
    });
    response.body(Full::default().boxed_unsync()).unwrap()
}

pub(crate) fn json_response(code: StatusCode, body: &Value) -> Response<Body> {
    let body = Full::from(body.to_string()).boxed_unsync();
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(body).unwrap()
}

/// Bodies that are generated as they are read.
#[derive(Clone)]
pub(crate) struct Bulk {
    chunk: Bytes,
    taken: Arc<AtomicU64>,
}

impl Default for Bulk {
    fn default() -> Bulk {
        Bulk { chunk: Bytes::from(vec![b' '; 64 << 10]), taken: Arc::default() }
    }
}

impl Bulk {
    /// A body of this many bytes.
    pub(crate) fn body(&self, bytes: u64) -> Body {
        let bulk = self.clone();
        let frames = stream::unfold(bytes, move |left| {
            let size = usize::try_from(left).unwrap_or(usize::MAX).min(bulk.chunk.len());
            bulk.taken.fetch_add(size as u64, Ordering::SeqCst);
            let frame = (size > 0).then(|| Ok(Frame::data(bulk.chunk.slice(..size))));
            std::future::ready(frame.map(|frame| (frame, left - size as u64)))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Waits until nothing more is read.
    pub(crate) async fn rests(&self) {
        let (mut last, mut since) = (0, Instant::now());
        eventually("all buffers are full", async || {
            let taken = self.taken.load(Ordering::SeqCst);
            if taken != last {
                (last, since) = (taken, Instant::now());
            }
            if since.elapsed() > Duration::from_millis(500) { Ok(()) } else { Err(taken) }
        })
        .await;
    }
}

pub(crate) fn widget(name: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name } })
}

/// Creates a widget.
pub(crate) async fn make(client: &Client, name: &str) {
    let (code, object) = client.call(Method::POST, WIDGETS, widget(name)).await;
    assert_eq!(code, StatusCode::CREATED, "{object}");
}

/// Asserts that the response is a refusal as a Kubernetes `Status`.
pub(crate) fn assert_refusal(code: StatusCode, status: &Value) {
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{status}");
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["reason"], "ServiceUnavailable", "{status}");
    assert_eq!(status["code"], 503, "{status}");
}
