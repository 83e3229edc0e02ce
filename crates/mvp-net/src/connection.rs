//! The connection of a request. Entry: [`ConnectionInfo`].

use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls_pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use crate::Judgement;

/// The connection of a request, in the extensions of every request of [`serve`](crate::serve()).
///
/// It is cheap to clone.
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
    end: CancellationToken,
    note: Arc<OnceLock<Box<dyn Any + Send + Sync>>>,
}

impl ConnectionInfo {
    /// An HTTP/1.1 connection. For HTTP/2 see [`over_http2`](Self::over_http2).
    pub fn new(
        remote: SocketAddr,
        certificates: Vec<CertificateDer<'static>>,
        judgement: Judgement,
    ) -> Self {
        let (end, note) = (CancellationToken::new(), Arc::default());
        Self { inner: Arc::new(Inner { remote, certificates, judgement, http2: false, end, note }) }
    }

    /// The same connection, which ends if `end` is cancelled.
    pub(crate) fn ended_by(self, end: CancellationToken) -> Self {
        let inner = Inner { end, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// The same connection, over HTTP/2.
    pub fn over_http2(self) -> Self {
        let inner = Inner { http2: true, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// The same connection with another judgement.
    pub(crate) fn with_judgement(self, judgement: Judgement) -> Self {
        let inner = Inner { judgement, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote
    }

    /// The client's certificate chain, leaf first; empty without a certificate.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.inner.certificates
    }

    /// The judgement of that chain.
    pub fn judgement(&self) -> &Judgement {
        &self.inner.judgement
    }

    /// Whether ALPN chose HTTP/2.
    pub fn http2(&self) -> bool {
        self.inner.http2
    }

    /// Ends the connection after its requests in flight: GOAWAY over HTTP/2, `Connection: close`
    /// over HTTP/1.1.
    pub fn end(&self) {
        self.inner.end.cancel();
    }

    /// Whether [`end`](Self::end) was called, or the listener is shutting down.
    pub fn is_ending(&self) -> bool {
        self.inner.end.is_cancelled()
    }

    /// A value that the service keeps for the lifetime of this connection. The first call creates it
    /// and decides its type; calls with another type return `None`.
    pub fn note<T: Any + Default + Send + Sync>(&self) -> Option<&T> {
        self.inner.note.get_or_init(|| Box::new(T::default())).downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_note_lasts_as_long_as_its_connection() {
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let first = ConnectionInfo::new(remote, Vec::new(), Judgement::default());
        let second = ConnectionInfo::new(remote, Vec::new(), Judgement::default());
        let count = |info: &ConnectionInfo| {
            info.note::<AtomicUsize>().unwrap().fetch_add(1, Ordering::Relaxed)
        };
        assert_eq!((count(&first), count(&first)), (0, 1));
        // With another judgement it is still the same connection.
        assert_eq!(count(&first.clone().with_judgement(Judgement::default())), 2);
        assert_eq!(count(&second), 0);
        assert!(first.note::<String>().is_none());
    }
}
