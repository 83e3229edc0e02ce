//! What a source says of members, and the way from it to whoever combines sources.

use std::sync::Arc;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use tokio::sync::watch;

/// Somebody says to be a member, or is said to be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its ID; some sources know only addresses.
    pub id: Option<Arc<str>>,
    /// `HOST:PORT`, where it is known.
    pub address: Option<Arc<str>>,
    /// What answers there.
    pub kind: MemberKind,
    /// When a sign of life was last seen, by our own clock; nothing where the source has none and
    /// vouches for all whom it names.
    pub heard: Option<Timestamp>,
    /// Whether it says so of itself, now: then nobody else may go by its ID.
    pub announced: bool,
    /// When it was first seen, by our own clock.
    pub since: Timestamp,
    /// What decides between claims that were first seen at once: the earlier one in this order.
    pub seniority: Arc<str>,
}

impl Claim {
    /// Whether the member may be known by this name: its ID, its address, or `ID@ADDRESS`.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let (id, address) = (self.id.as_deref(), self.address.as_deref());
        let after_id = id.and_then(|id| name.strip_prefix(id)?.strip_prefix('@'));
        id == Some(name) || address == Some(name) || (after_id.is_some() && after_id == address)
    }
}

/// All that a source says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Who is claimed to be a member.
    pub claims: Vec<Claim>,
    /// Whether the source was read once: before that, there may be anybody.
    pub read: bool,
    /// Whether there are more than are kept: these are not all.
    pub partial: bool,
    /// Since when the source has heard nothing at all: whoever is silent since then may be alive.
    pub deaf_since: Option<Timestamp>,
    /// What an operator has to mend.
    pub problem: Option<String>,
}

/// A source, as its readers know it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name, for people.
    pub name: &'static str,
    /// What it says now.
    pub claims: watch::Receiver<Claims>,
}

impl Source {
    /// A source that says nothing yet, and where to write down what it says.
    pub fn new(name: &'static str) -> (watch::Sender<Claims>, Source) {
        let (sender, claims) = watch::channel(Claims::default());
        (sender, Source { name, claims })
    }

    /// What an operator has to mend.
    pub fn problem(&self) -> Option<String> {
        self.claims.borrow().problem.clone()
    }
}

/// Publishes what a source says now. Readers are woken when members change, not at each heartbeat.
pub(crate) fn publish(sender: &watch::Sender<Claims>, new: Claims) {
    sender.send_if_modified(|old| {
        let same = |a: &Claim, b: &Claim| {
            (&a.id, &a.address, a.kind, a.since) == (&b.id, &b.address, b.kind, b.since)
        };
        let changed = old.read != new.read
            || old.claims.len() != new.claims.len()
            || !old.claims.iter().zip(&new.claims).all(|(a, b)| same(a, b));
        *old = new;
        changed
    });
}
