//! ALPN, versions of TLS, and what HTTP/1.1 has of its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use mvp_net::Limits;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use testkit::certificates::Pair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::service_fn;
use tower::util::BoxCloneService;

use crate::support::{Authorities, Gateway, H1, H2, get, http1, http2, soon, text};

/// A client that speaks one version of TLS only.
pub fn only(
    authorities: &Authorities,
    identity: Option<&Pair>,
    version: &'static SupportedProtocolVersion,
    alpn: &[&[u8]],
) -> Arc<ClientConfig> {
    let identity = identity.map(|pair| (pair.chain(), pair.key.as_str()));
    presenting(authorities, identity, version, alpn)
}

/// The same with any chain, and any key as PEM.
pub fn presenting(
    authorities: &Authorities,
    identity: Option<(Vec<CertificateDer<'static>>, &str)>,
    version: &'static SupportedProtocolVersion,
    alpn: &[&[u8]],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authorities.servers.pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            // Without the check that the key matches, which reads only X.509 version 3.
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let key = any_supported_type(&key).unwrap();
            let identity = SingleCertAndKey::from(CertifiedKey::new(chain, key));
            builder.with_client_cert_resolver(Arc::new(identity))
        }
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

#[tokio::test]
async fn alpn_chooses_the_protocol_over_both_versions_of_tls() {
    let gateway = Gateway::start(Limits::default());
    let versions = [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)];
    for (version, spoken) in versions {
        let stream = gateway.connect(only(&gateway.authorities, None, version, &[H2, H1])).await;
        assert_eq!(stream.get_ref().1.protocol_version(), Some(spoken));
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(H2));
        let response = soon(http2(stream).await.send_request(get("/2"))).await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
        assert!(gateway.info("/2").http2());

        for (alpn, chosen) in [(&[H1][..], Some(H1)), (&[][..], None)] {
            let stream = gateway.connect(only(&gateway.authorities, None, version, alpn)).await;
            assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
            let response = soon(http1(stream).await.send_request(get("/1"))).await.unwrap();
            assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_11));
            assert!(!gateway.info("/1").http2());
        }
    }
}

#[tokio::test]
async fn http1_is_kept_alive_also_without_any_limit_of_time() {
    let never = Duration::MAX;
    let gateway = Gateway::start(Limits {
        handshake_timeout: never,
        header_read_timeout: never,
        idle_timeout: never,
        grace: never,
        ..Limits::default()
    });
    let mut sender = gateway.http1(None).await;
    for path in ["/a", "/b", "/c"] {
        let response = soon(sender.send_request(get(path))).await.unwrap();
        assert_eq!(text(response).await, "well");
        soon(sender.ready()).await.unwrap();
    }
    let remote = gateway.info("/a").remote();
    assert_eq!((gateway.info("/b").remote(), gateway.info("/c").remote()), (remote, remote));
    gateway.shutdown.cancel();
    assert_eq!(soon(gateway.task).await.unwrap().cut, 0);
}

#[tokio::test]
async fn a_body_is_asked_for_when_the_service_wants_it() {
    let service = service_fn(async |request: Request<Incoming>| {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Ok::<_, Infallible>(Response::new(http_body_util::Full::new(body).boxed()))
    });
    let gateway = Gateway::with_service(Limits::default(), BoxCloneService::new(service));
    let config = gateway.authorities.client_tls(None).config(&[H1]);
    let mut stream = gateway.connect(config).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\
                connection: close\r\n\r\n";
    soon(stream.write_all(head.as_bytes())).await.unwrap();
    let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    soon(stream.read_exact(&mut interim)).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    soon(stream.write_all(b"body")).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nbody"),
        "{answer}"
    );
}
