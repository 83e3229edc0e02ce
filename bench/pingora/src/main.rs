//! A forwarder on Pingora with the duties of every proxy of the comparison: TLS both ways, a client
//! certificate from every client, HTTP/2 to the server behind with connections that all clients share,
//! and the header changes of `mvp`. No limits, and no choice of a server. Entry item: [`main`].
//!
//! Pingora's rustls feature is the least complete of its TLS features: it has no second key share and no
//! choice of curves. What the comparison needs is there: a verifier of client certificates, a client
//! certificate towards the server, and ALPN both ways.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use async_trait::async_trait;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use pingora::connectors::ConnectorOptions;
use pingora::http::RequestHeader;
use pingora::listeners::TlsAccept;
use pingora::listeners::tls::TlsSettings;
use pingora::protocols::ALPN;
use pingora::protocols::http::v2::server::H2Options;
use pingora::protocols::tls::TlsRef;
use pingora::proxy::{ProxyHttp, ProxyServiceBuilder, Session};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use uuid::Uuid;
use x509_parser::prelude::{FromDer, X509Certificate};

// As the other programs of the bench on hyper.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As the other proxies: more requests at a time need another connection.
const STREAMS: usize = 100;
const CLIENT_STREAMS: u32 = 250;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ca, server_crt, server_key, proxy_crt, proxy_key, listen, server, server_name] =
        arguments.as_slice()
    else {
        bail!(
            "usage: bench-pingora CA SERVER-CRT SERVER-KEY PROXY-CRT PROXY-KEY LISTEN SERVER \
             SERVER-NAME"
        );
    };
    log::set_logger(&Errors).map_err(|error| anyhow::anyhow!("{error}"))?;
    log::set_max_level(log::LevelFilter::Error);
    // Before Pingora installs ring.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        bail!("rustls has another provider already");
    }

    let mut tls = TlsSettings::with_callbacks(Box::new(Certificates))?;
    tls.set_certificate_chain_file(server_crt)?;
    tls.set_private_key_file(server_key)?;
    tls.set_client_cert_verifier(verifier(ca)?);
    tls.enable_h2();

    let configuration = ServerConf { threads: 1, ..ServerConf::default() };
    let mut program = Server::new_with_opt_and_conf(None, configuration);
    program.bootstrap();
    let mut options = ConnectorOptions::from_server_conf(&program.configuration);
    options.ca_file = Some(ca.clone());
    options.cert_key_file = Some((proxy_crt.clone(), proxy_key.clone()));
    let forwarder = Forwarder { peer: peer(server.parse().context("SERVER")?, server_name) };
    let mut service = ProxyServiceBuilder::new(&program.configuration, forwarder)
        .name("forwarder")
        .client_options(options)
        .build();
    if let Some(app) = service.app_logic_mut() {
        let mut http2 = H2Options::new();
        http2.max_concurrent_streams(CLIENT_STREAMS);
        app.h2_options = Some(http2);
    }
    service.add_tls_with_settings(listen, None, tls);
    program.add_service(service);
    program.run_forever()
}

/// The server behind, with a client certificate and over HTTP/2.
fn peer(server: SocketAddr, name: &str) -> HttpPeer {
    let mut peer = HttpPeer::new(server, true, name.to_owned());
    peer.options.alpn = ALPN::H2;
    peer.options.max_h2_streams = STREAMS;
    peer
}

/// Verifies client certificates; one is required.
fn verifier(ca: &str) -> anyhow::Result<Arc<dyn rustls::server::danger::ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(ca).context("cannot read the CA")? {
        roots.add(root?)?;
    }
    Ok(WebPkiClientVerifier::builder(Arc::new(roots)).build()?)
}

/// The headers of a client, computed once for each connection.
struct Client {
    user: HeaderValue,
    groups: Vec<HeaderValue>,
}

impl Client {
    fn from_certificate(der: &[u8]) -> Option<Client> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?;
        let groups = subject.iter_organization().map(|group| {
            let group = group.as_str().ok()?;
            HeaderValue::from_str(group).ok()
        });
        Some(Client {
            user: HeaderValue::from_str(name).ok()?,
            groups: groups.collect::<Option<_>>()?,
        })
    }
}

/// Keeps the client of a certificate with its connection.
struct Certificates;

#[async_trait]
impl TlsAccept for Certificates {
    async fn handshake_complete_callback(
        &self,
        tls: &TlsRef,
    ) -> Option<Arc<dyn std::any::Any + Send + Sync>> {
        let client = Client::from_certificate(tls.peer_certificate_der()?)?;
        Some(Arc::new(client))
    }
}

struct Forwarder {
    peer: HttpPeer,
}

#[async_trait]
impl ProxyHttp for Forwarder {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        _context: &mut (),
    ) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        _context: &mut (),
    ) -> pingora::Result<()> {
        let strange = |name: &&HeaderName| name.as_str().starts_with("x-remote-");
        let forged: Vec<HeaderName> = request.headers.keys().filter(strange).cloned().collect();
        for name in &forged {
            request.remove_header(name);
        }
        request.remove_header(&AUTHORIZATION);
        let tls = session.digest().and_then(|digest| digest.ssl_digest.as_ref());
        if let Some(client) = tls.and_then(|tls| tls.extension.get::<Client>()) {
            request.insert_header(USER, client.user.clone())?;
            for group in &client.groups {
                request.append_header(GROUP, group.clone())?;
            }
        }
        if let Some(address) = session.client_addr().and_then(|address| address.as_inet()) {
            request.append_header(FORWARDED_FOR, address.ip().to_string())?;
        }
        let mut text = Uuid::encode_buffer();
        let id: &str = Uuid::new_v4().hyphenated().encode_lower(&mut text);
        request.insert_header(AUDIT_ID, id)?;
        Ok(())
    }
}

/// Errors go to the log of the bench.
struct Errors;

impl log::Log for Errors {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Error
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{}", record.args());
        }
    }

    fn flush(&self) {}
}
