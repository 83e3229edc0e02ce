//! The limit of TLS handshakes in progress. Entry: [`HandshakeLimit`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A limit of TLS handshakes in progress, with counters. Clones share both: use one for all listeners
/// of a process.
///
/// At the limit, the oldest connection without a request makes room, as at the limit of connections. The
/// default is no limit.
#[derive(Clone, Debug)]
pub struct HandshakeLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    in_progress: AtomicUsize,
    refused: AtomicU64,
}

impl HandshakeLimit {
    /// Allows this many handshakes at a time.
    pub fn new(most: usize) -> HandshakeLimit {
        let (in_progress, refused) = (AtomicUsize::new(0), AtomicU64::new(0));
        HandshakeLimit(Arc::new(Shared { most, in_progress, refused }))
    }

    /// The number of handshakes in progress.
    pub fn in_progress(&self) -> usize {
        self.0.in_progress.load(Ordering::Relaxed)
    }

    /// The number of connections that were refused.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Begins a handshake, which lasts until the guard is dropped. At the limit it begins only if
    /// `make_room` has ended another one; else it is refused.
    pub(crate) fn begin(&self, make_room: impl FnOnce() -> bool) -> Option<Handshake> {
        let Shared { most, in_progress, refused } = &*self.0;
        let one_more = |now: usize| (now < *most).then(|| now + 1);
        let begun = in_progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if begun.is_err() {
            if !make_room() {
                refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            in_progress.fetch_add(1, Ordering::Relaxed);
        }
        Some(Handshake(Arc::clone(&self.0)))
    }
}

impl Default for HandshakeLimit {
    fn default() -> HandshakeLimit {
        HandshakeLimit::new(usize::MAX)
    }
}

/// A handshake in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct Handshake(Arc<Shared>);

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_over_the_limit_are_refused_and_counted() {
        let limit = HandshakeLimit::new(2);
        let first = limit.begin(|| unreachable!()).unwrap();
        let _second = limit.clone().begin(|| unreachable!()).unwrap();
        assert!(limit.begin(|| false).is_none());
        assert_eq!((limit.in_progress(), limit.refused()), (2, 1));
        let third = limit.begin(|| true).expect("another one ends");
        assert_eq!((limit.in_progress(), limit.refused()), (3, 1));
        drop((first, third));
        assert!(limit.begin(|| unreachable!()).is_some());
        assert_eq!((limit.in_progress(), limit.refused()), (1, 1));
    }
}
