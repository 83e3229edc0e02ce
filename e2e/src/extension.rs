//! An extension server behind an APIService: a process that can be killed. Entry item: [`serve`].

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use mvp_apiserver::{ApiServer, Body, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_net::{ClientTrust, ConnectionInfo, Limits, ReloadableTls, ServerTls, bind};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The group that it serves.
pub(crate) const GROUP: &str = "extension.example.com";
pub(crate) const RESOURCE: &str = "gadgets";
pub(crate) const KIND: &str = "Gadget";

/// The response header that names the user.
pub(crate) const USER: &str = "x-extension-user";

/// Objects of these names get an unrouted 404, as from a server that does not know the resource.
pub(crate) const LOST: [&str; 2] = ["lost-in-text", "lost-in-status"];

/// A write of an object of this name is executed, and answered like a kube-apiserver that is
/// shutting down.
pub(crate) const SHUTTING_DOWN: &str = "shutting-down";

/// An object of this name tells how often such a write was executed.
pub(crate) const EXECUTED: &str = "executed";

/// The number of such writes.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Serves until it is killed. It trusts front proxies only, as extension servers do.
pub(crate) async fn serve(
    address: SocketAddr,
    certificate: &Path,
    key: &Path,
    front_proxy_ca: &Path,
) -> anyhow::Result<bool> {
    let read = |file: &Path| std::fs::read(file).with_context(|| format!("cannot read {file:?}"));
    let trust = ClientTrust::new(None, Some(&read(front_proxy_ca)?), Vec::new())?;
    let tls = ReloadableTls::new(ServerTls::new(&read(certificate)?, &read(key)?, trust)?);
    let gadgets = ResourceSpec::namespaced(RESOURCE, KIND);
    let spec = ServerSpec {
        id: "extension".to_owned(),
        git_version: "v1.0.0".to_owned(),
        groups: vec![GroupSpec::new(GROUP).version("v1", [gadgets])],
        ..ServerSpec::default()
    };
    let server = ApiServer::new(spec, Storage::default());
    let service = tower::service_fn(move |request| answer(server.clone(), request));
    let listener = TcpListener::from_std(bind(address, false)?)?;
    mvp_net::serve(listener, tls, Limits::default(), service, CancellationToken::new()).await;
    Ok(true)
}

async fn answer(
    server: ApiServer,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    let connection = request.extensions().get::<ConnectionInfo>();
    if !connection.is_some_and(|connection| connection.judgement().front_proxy) {
        let mut response = Response::new(body(""));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(response);
    }
    let user = request.headers().get("x-remote-user").cloned();
    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
    if request.method() == Method::POST && name == RESOURCE {
        return write(server, request).await;
    }
    if name == EXECUTED {
        let count = WRITES.load(Ordering::Relaxed);
        return Ok(Response::new(Full::from(format!(r#"{{"executed":{count}}}"#)).boxed_unsync()));
    }
    let mut response = match LOST.iter().position(|lost| *lost == name) {
        Some(0) => not_found("text/plain; charset=utf-8", "404 page not found\n"),
        Some(_) => not_found("application/json", NOT_ROUTED),
        None => server.oneshot(request).await?,
    };
    if let Some(user) = user {
        response.headers_mut().insert(USER, user);
    }
    Ok(response)
}

/// Executes a write, whatever the response is.
async fn write(
    server: ApiServer,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let object: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    if object.pointer("/metadata/name").is_some_and(|name| name == SHUTTING_DOWN) {
        WRITES.fetch_add(1, Ordering::Relaxed);
        let mut response = Response::new(self::body(LEAVING));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
        return Ok(response);
    }
    server.oneshot(Request::from_parts(parts, Full::new(body))).await
}

const LEAVING: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"apiserver is shutting down","reason":"ServiceUnavailable","code":503}"#;

const NOT_ROUTED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#;

fn not_found(content_type: &'static str, text: &'static str) -> Response<Body> {
    let mut response = Response::new(body(text));
    *response.status_mut() = StatusCode::NOT_FOUND;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn body(text: &'static str) -> Body {
    Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync()
}
