//! One proxied request in process: client, gateway and server in one thread, over loopback, TLS and
//! HTTP/2 on both sides. The count includes client and server, which do not change.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mvp_core::Snapshot;
use mvp_net::{Limits, ReloadableTls};
use mvp_proxy::{Member, MemberBuilder, Worker, server_name};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use crate::pki::Pki;
use crate::steps::inputs;

/// A path that the local server serves.
pub(crate) const LOCAL: &str = "/api/v1/namespaces/kube-system/pods";
/// A path that only peers serve.
pub(crate) const PEER: &str = "/apis/only-1-2.platform.example.com/v1/namespaces/team-a/gadgets";

/// The body of a small list.
const LIST: [u8; 2048] = [b' '; 2048];

/// A member without a control loop: its snapshot stays.
pub(crate) fn worker(member: MemberBuilder, snapshot: Snapshot) -> anyhow::Result<Worker> {
    let member = member.build();
    member.take_writer().context("no writer")?.publish(snapshot);
    Ok(member.worker())
}

/// Requests this path from the gateway this many times, over one connection.
pub(crate) fn run(path: &'static str, times: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let pki = Pki::new();
        let stop = CancellationToken::new();
        let server = serve_lists(&pki, &stop).await?;
        let gateway = serve_gateway(&pki, server, &stop).await?;
        let mut sender = connect(&pki, gateway).await?;
        for _ in 0..times {
            let request = Request::get(format!("https://{gateway}{path}"))
                .header(ACCEPT, "application/json")
                .header(ACCEPT_ENCODING, "gzip")
                .header(USER_AGENT, "kube-controller-manager/v1.36.4 (linux/amd64)")
                .body(Full::<Bytes>::default())?;
            let response = sender.send_request(request).await?;
            ensure!(response.status() == StatusCode::OK, "{path}: {}", response.status());
            let body = response.into_body().collect().await?.to_bytes();
            ensure!(body.len() == LIST.len(), "{path}: {} bytes", body.len());
        }
        Ok(())
    })
}

/// A server that answers everything with a list.
async fn serve_lists(pki: &Pki, stop: &CancellationToken) -> anyhow::Result<SocketAddr> {
    let service = tower::service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&LIST))))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let tls = ReloadableTls::new(pki.server()?);
    tokio::spawn(mvp_net::serve(listener, tls, Limits::default(), service, stop.clone()));
    Ok(address)
}

/// A gateway whose local server and whose peers are all at that address.
async fn serve_gateway(
    pki: &Pki,
    server: SocketAddr,
    stop: &CancellationToken,
) -> anyhow::Result<SocketAddr> {
    let mut inputs = inputs();
    for member in &mut inputs.members {
        member.address = Some(server.to_string().into());
    }
    let id = inputs.local.clone().context("a local server")?;
    let member = Member::builder(&id, pki.outbound()?).server_at(&server.to_string());
    let member = member.record_callers(true).without_probes();
    let worker = worker(member, Snapshot::build(inputs, None))?;
    let service = worker.authenticate().layer(worker.gateway());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (tls, stop) = (ReloadableTls::new(pki.server()?), stop.clone());
    tokio::spawn(mvp_net::serve(listener, tls, Limits::default(), service, stop));
    Ok(address)
}

async fn connect(
    pki: &Pki,
    gateway: SocketAddr,
) -> anyhow::Result<http2::SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(gateway).await?;
    stream.set_nodelay(true)?;
    let connector = TlsConnector::from(pki.user()?.config(&[b"h2"]));
    let stream = connector.connect(server_name(), stream).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
