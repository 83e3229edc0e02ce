//! Servers to send to, and the TLS towards them.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mvp_core::member::{Member, MemberKind};
use mvp_net::{ClientTls, TlsError};
use rustls_pki_types::ServerName;

/// The name that the certificate of every API server is valid for, whatever its address.
pub fn server_name() -> ServerName<'static> {
    match ServerName::try_from("kubernetes.default.svc") {
        Ok(name) => name,
        Err(_) => unreachable!("it is a DNS name"),
    }
}

/// A server to send to.
#[derive(Debug, Clone)]
pub struct Target {
    /// The server's ID, for logs and refusals.
    pub id: Arc<str>,
    /// The server's address as `HOST:PORT`.
    pub address: Arc<str>,
    /// The name that the server's certificate must be for.
    pub server_name: ServerName<'static>,
    /// Whether a gateway or a bare API server listens there.
    pub kind: MemberKind,
    /// Whether it is the local server.
    pub local: bool,
    /// The address to connect from; `None` lets the system choose.
    pub source: Option<IpAddr>,
}

impl Target {
    /// A peer; `None` if its address is unknown.
    pub(crate) fn peer(member: &Member) -> Option<Target> {
        Some(Target {
            id: Arc::clone(&member.id),
            address: Arc::clone(member.address.as_ref()?),
            server_name: server_name(),
            kind: member.kind,
            local: false,
            source: None,
        })
    }
}

/// TLS towards servers: the authorities to trust, and the proxy client certificate.
#[derive(Debug, Clone)]
pub struct OutboundTls {
    /// TLS without a client certificate, for requests that carry their own credentials or none.
    pub plain: ClientTls,
    /// TLS with the proxy client certificate, for requests with `X-Remote-*` headers.
    pub vouched: Option<ClientTls>,
}

impl OutboundTls {
    /// Trusts servers with certificates of `roots`. `proxy` is the client certificate and its key.
    /// All are PEM. Fails if one of them cannot be read.
    pub fn new(roots: &[u8], proxy: Option<(&[u8], &[u8])>) -> Result<OutboundTls, TlsError> {
        let vouched = proxy.map(|pair| ClientTls::new(roots, Some(pair))).transpose()?;
        Ok(OutboundTls { plain: ClientTls::new(roots, None)?, vouched })
    }

    /// The same, with errors that name the origin of `roots`, such as a flag and its file.
    pub fn explained(self, origin: &str) -> Result<OutboundTls, TlsError> {
        let vouched = self.vouched.map(|tls| tls.explained(origin)).transpose()?;
        Ok(OutboundTls { plain: self.plain.explained(origin)?, vouched })
    }
}

/// An [`OutboundTls`] that can be replaced at any time. Clones share it.
///
/// Later requests use new connections. Requests in flight keep their connection, which closes with
/// the last of them.
#[derive(Debug, Clone)]
pub struct ReloadableOutbound(Arc<ArcSwap<OutboundTls>>);

impl ReloadableOutbound {
    /// Replaces the TLS.
    pub fn replace(&self, tls: OutboundTls) {
        self.0.store(Arc::new(tls));
    }

    /// The current TLS.
    pub fn current(&self) -> Arc<OutboundTls> {
        self.0.load_full()
    }

    /// The current TLS, borrowed; do not hold it across an await.
    pub(super) fn load(&self) -> arc_swap::Guard<Arc<OutboundTls>> {
        self.0.load()
    }
}

impl From<OutboundTls> for ReloadableOutbound {
    fn from(tls: OutboundTls) -> Self {
        ReloadableOutbound(Arc::new(ArcSwap::from_pointee(tls)))
    }
}
