//! The places of open pages. Entry: [`Places`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::board::Audience;

/// The most open pages.
pub(super) const MAX_PAGES: usize = 64;
/// The most of them for anybody on this host, so that there are some left for those who may know all.
pub(super) const MAX_ANYBODY: usize = 32;

/// Counts open pages.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    anybody: usize,
}

impl Places {
    /// Takes a place; `None` if none is left.
    pub(super) fn take(self: &Arc<Places>, audience: Audience) -> Option<Place> {
        let mut taken = self.taken();
        let is_full = match audience {
            Audience::Anybody => taken.anybody >= MAX_ANYBODY,
            Audience::Trusted => false,
        };
        if is_full || taken.all >= MAX_PAGES {
            return None;
        }
        taken.all += 1;
        taken.anybody += usize::from(audience == Audience::Anybody);
        Some(Place { places: Arc::clone(self), audience })
    }

    /// How many pages are open.
    pub(super) fn count(&self) -> usize {
        self.taken().all
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of an open page. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    audience: Audience,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all = taken.all.saturating_sub(1);
        if self.audience == Audience::Anybody {
            taken.anybody = taken.anybody.saturating_sub(1);
        }
    }
}
