//! The accepting side of a process: TLS and HTTP on simulated connections, as on real ones. Entry
//! items: [`serve`], [`pki`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use mvp_net::{ClientTls, ClientTrust, ConnectionInfo, ServerTls, UnixTime};
use testkit::certificates::{Ca, FRONT_PROXY_NAME, SERVER_NAME, cn, o};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;
use tower_service::Service;

use super::network::Interface;
use super::pipe::End;
use crate::upstream::OutboundTls;

/// The TLS of all processes, the same for all simulations of a run.
pub(super) struct Pki {
    pub(super) server: ServerTls,
    pub(super) outbound: OutboundTls,
    /// A user.
    pub(super) client: ClientTls,
}

pub(super) fn pki() -> &'static Pki {
    static PKI: LazyLock<Pki> = LazyLock::new(|| {
        let [servers, clients, proxies] = ["servers", "clients", "front-proxies"].map(Ca::new);
        let client = clients.client(&[cn("alice"), o("developers")]);
        let proxy = proxies.client(&[cn(FRONT_PROXY_NAME)]);
        let server = servers.server(&[SERVER_NAME]);
        let cas = [&clients, &proxies].map(|ca| Some(ca.pem().as_bytes()));
        let trust = ClientTrust::new(cas[0], cas[1], vec![FRONT_PROXY_NAME.to_owned()]).unwrap();
        let (certificate, key) = server.pem();
        let roots = servers.pem().as_bytes();
        Pki {
            server: ServerTls::new(certificate, key, trust).unwrap(),
            outbound: OutboundTls::new(roots, Some(proxy.pem())).unwrap(),
            client: ClientTls::new(roots, Some(client.pem())).unwrap(),
        }
    });
    &PKI
}

/// Accepts connections at a port, until the task is aborted.
pub(super) fn serve<S, B>(interface: &Interface, port: u16, service: S) -> AbortHandle
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut accepted = interface.listen(port);
    let accepting = async move {
        let mut connections = JoinSet::new();
        while let Some((end, remote)) = accepted.recv().await {
            let service = service.clone();
            connections.spawn(async move {
                let Some((stream, info)) = handshake(end, remote).await else { return };
                let is_http2 = info.http2();
                let service = service.map_request(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(info.clone());
                    request
                });
                let (stream, service) = (TokioIo::new(stream), TowerToHyperService::new(service));
                // However a connection ends, its client finds out.
                if is_http2 {
                    let mut builder = http2::Builder::new(TokioExecutor::new());
                    let builder = builder.timer(TokioTimer::new());
                    let _ = builder.serve_connection(stream, service).await;
                } else {
                    let _ = http1::Builder::new().serve_connection(stream, service).await;
                }
            });
        }
        // The port is closed. The connections last until the task is aborted.
        std::future::pending::<()>().await;
    };
    tokio::spawn(accepting).abort_handle()
}

async fn handshake(end: End, remote: SocketAddr) -> Option<(TlsStream<End>, ConnectionInfo)> {
    let tls = &pki().server;
    let stream = TlsAcceptor::from(Arc::clone(tls.config())).accept(end).await.ok()?;
    let (_, session) = stream.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default().to_vec();
    let judgement = tls.trust().judge(&certificates, UnixTime::now());
    let info = ConnectionInfo::new(remote, certificates, judgement);
    Some((stream, if is_http2 { info.over_http2() } else { info }))
}
