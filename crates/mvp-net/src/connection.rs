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
    from_this_host: bool,
    certificates: Vec<CertificateDer<'static>>,
    judgement: Judgement,
    http2: bool,
    end: CancellationToken,
    note: Arc<Note>,
    judged_note: Arc<Note>,
}

type Note = OnceLock<Box<dyn Any + Send + Sync>>;

impl ConnectionInfo {
    /// An HTTP/1.1 connection. For HTTP/2 see [`over_http2`](Self::over_http2).
    pub fn new(
        remote: SocketAddr,
        certificates: Vec<CertificateDer<'static>>,
        judgement: Judgement,
    ) -> Self {
        let inner = Inner {
            remote,
            from_this_host: false,
            certificates,
            judgement,
            http2: false,
            end: CancellationToken::new(),
            note: Arc::default(),
            judged_note: Arc::default(),
        };
        Self { inner: Arc::new(inner) }
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

    /// The same connection, accepted at this address.
    pub(crate) fn accepted_at(self, local: Option<SocketAddr>) -> Self {
        let remote = self.inner.remote.ip().to_canonical();
        let from_this_host = local.is_some_and(|local| local.ip().to_canonical() == remote);
        let inner = Inner { from_this_host, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// The same connection with another judgement.
    pub(crate) fn with_judgement(self, judgement: Judgement) -> Self {
        let judged_note = Arc::default();
        let inner = Inner { judgement, judged_note, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote
    }

    /// Whether the client has the address that it connected to: it runs on this host, in the same
    /// network namespace. Others cannot, unless the network rewrites their addresses.
    pub fn is_from_this_host(&self) -> bool {
        self.inner.from_this_host
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

    /// A value that the service keeps for as long as the [judgement](Self::judgement) of this
    /// connection stays the same. Else it is like [`note`](Self::note).
    pub fn judged_note<T: Any + Default + Send + Sync>(&self) -> Option<&T> {
        self.inner.judged_note.get_or_init(|| Box::new(T::default())).downcast_ref()
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

    #[test]
    fn a_judged_note_lasts_as_long_as_its_judgement() {
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let first = ConnectionInfo::new(remote, Vec::new(), Judgement::default());
        let count = |info: &ConnectionInfo| {
            info.judged_note::<AtomicUsize>().unwrap().fetch_add(1, Ordering::Relaxed)
        };
        assert_eq!((count(&first), count(&first.clone())), (0, 1));
        assert_eq!(count(&first.clone().with_judgement(Judgement::default())), 0);
        assert_eq!(count(&first), 2);
    }

    #[test]
    fn a_client_of_this_host_has_the_address_that_it_connects_to() {
        let is_from_this_host = |remote: &str, local: &str| {
            let [remote, local] = [remote, local].map(|ip| SocketAddr::new(ip.parse().unwrap(), 1));
            let info = ConnectionInfo::new(remote, Vec::new(), Judgement::default());
            assert!(!info.is_from_this_host(), "unknown");
            info.accepted_at(Some(local)).is_from_this_host()
        };
        assert!(is_from_this_host("10.0.0.1", "10.0.0.1"));
        assert!(is_from_this_host("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!is_from_this_host("10.0.0.2", "10.0.0.1"));
        assert!(!is_from_this_host("fd00::1", "10.0.0.1"));
    }
}
