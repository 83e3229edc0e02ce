//! What every request knows of its connection. Entry: [`ConnectionInfo`].

use std::net::SocketAddr;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use crate::Judgement;

/// The extension on every request that [`serve`](crate::serve()) hands to its service. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    remote: SocketAddr,
    certificates: Vec<CertificateDer<'static>>,
    judgement: Judgement,
    http2: bool,
}

impl ConnectionInfo {
    /// Of an HTTP/1.1 connection: see [`over_http2`](Self::over_http2).
    pub fn new(
        remote: SocketAddr,
        certificates: Vec<CertificateDer<'static>>,
        judgement: Judgement,
    ) -> Self {
        Self { inner: Arc::new(Inner { remote, certificates, judgement, http2: false }) }
    }

    /// The same connection, over HTTP/2.
    pub fn over_http2(self) -> Self {
        let inner = Inner { http2: true, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// The same connection, judged anew.
    pub(crate) fn with_judgement(self, judgement: Judgement) -> Self {
        let inner = Inner { judgement, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote
    }

    /// The chain that the client showed, leaf first; empty without a certificate.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.inner.certificates
    }

    /// What that chain proves.
    pub fn judgement(&self) -> &Judgement {
        &self.inner.judgement
    }

    /// Whether ALPN chose HTTP/2.
    pub fn http2(&self) -> bool {
        self.inner.http2
    }
}
