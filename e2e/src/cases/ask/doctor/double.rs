//! A server with a fault that no real one has: a wrong clock, no HTTP/2, never ready. Entry item:
//! [`start`].

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::DATE;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use testkit::pki::PkiFiles;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// What is wrong with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// The seconds by which its clock is late.
    pub(super) late: u64,
    pub(super) http2: bool,
    pub(super) ready: bool,
}

impl Default for Manner {
    fn default() -> Manner {
        Manner { late: 0, http2: true, ready: true }
    }
}

/// Serves until the suite ends.
pub(super) async fn start(
    ip: IpAddr,
    pki: &PkiFiles,
    manner: Manner,
) -> anyhow::Result<SocketAddr> {
    let pair = pki.server();
    let chain = CertificateDer::pem_file_iter(&pair.certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&pair.key)?;
    let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    // The doctor only looks at the protocol that is chosen; its requests are HTTP/1.1.
    let offered: &[&[u8]] = if manner.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    tls.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
    let tls = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind((ip, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = service_fn(async |request| answer(&request, manner));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok(address)
}

fn answer(
    request: &Request<Incoming>,
    manner: Manner,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let user = json!({
        "username": "system:apiserver", "groups": ["mvp-doctor"], "uid": "mvp-doctor",
        "extra": {"mvp-doctor": ["mvp-doctor"]},
    });
    let (status, body) = match request.uri().path() {
        "/version" => (StatusCode::OK, json!({"gitVersion": "v1.34.0"}).to_string()),
        "/readyz" if manner.ready => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => {
            let text = "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n";
            (StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
        }
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
            (StatusCode::CREATED, json!({"status": {"userInfo": user}}).to_string())
        }
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            (StatusCode::CREATED, json!({"status": {"allowed": true}}).to_string())
        }
        _ => (StatusCode::NOT_FOUND, "{}".to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let now = SystemTime::now() - Duration::from_secs(manner.late);
    if let Ok(date) = httpdate::fmt_http_date(now).parse() {
        response.headers_mut().insert(DATE, date);
    }
    Ok(response)
}
