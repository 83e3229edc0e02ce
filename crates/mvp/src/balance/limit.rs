//! The limit of client connections. Entry: [`Limit::admit`].
//!
//! Unlike a gateway, a balancer cannot tell an idle connection from one with a watch, so none is
//! closed to make room for another: at the limit, new connections are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many connections may be open, and how many are.
#[derive(Debug)]
pub(super) struct Limit {
    total: usize,
    open: AtomicUsize,
    refused: AtomicU64,
}

impl Limit {
    pub(super) fn new(total: usize) -> Limit {
        Limit { total, open: AtomicUsize::default(), refused: AtomicU64::default() }
    }

    /// Admits a connection for as long as the permit lives; `None` at the limit.
    pub(super) fn admit(self: &Arc<Limit>) -> Option<Permit> {
        if self.open.fetch_add(1, Ordering::Relaxed) < self.total {
            return Some(Permit(Arc::clone(self)));
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// The permit of one connection.
#[derive(Debug)]
pub(super) struct Permit(Arc<Limit>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_above_the_limit_are_refused() {
        let limit = Arc::new(Limit::new(2));
        let first = limit.admit().unwrap();
        let _second = limit.admit().unwrap();
        assert!(limit.admit().is_none());
        assert_eq!((limit.open(), limit.refused()), (2, 1));
        drop(first);
        assert!(limit.admit().is_some());
    }
}
