//! What a source says about members, and the channel from a source to
//! [`Combined`](crate::Combined).

use std::sync::Arc;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_proxy::control::MemberName;
use tokio::sync::watch;

/// A source's statement that somebody is a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The member's ID. Some sources know only addresses.
    pub id: Option<Arc<str>>,
    /// The member's address as `HOST:PORT`, if known.
    pub address: Option<Arc<str>>,
    /// What answers at the address.
    pub kind: MemberKind,
    /// The time of the last heartbeat by our own clock. `None` if the source has no heartbeats and
    /// vouches for the members that it names.
    pub heard: Option<Timestamp>,
    /// Whether the member announces itself, at present. Two members that announce one ID conflict.
    pub announced: bool,
    /// The time of the first sight by our own clock.
    pub since: Timestamp,
    /// Decides between claims that were first seen at the same time: the lesser is the senior one.
    pub seniority: Arc<str>,
}

impl Claim {
    /// Whether the member may have this name.
    pub(crate) fn is_named(&self, name: &MemberName) -> bool {
        match name {
            MemberName::Id(name) => {
                self.id.as_ref() == Some(name) || self.address.as_ref() == Some(name)
            }
            MemberName::At { id, address } => {
                self.id.as_ref() == Some(id) && self.address.as_ref() == Some(address)
            }
        }
    }
}

/// Everything that a source says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// The claimed members.
    pub claims: Vec<Claim>,
    /// Whether the source was read once. Until then there may be more members.
    pub read: bool,
    /// Whether the source has more objects than are kept.
    pub partial: bool,
    /// Since when the source cannot be read. Silence since then proves nothing.
    pub deaf_since: Option<Timestamp>,
    /// A problem that an operator must solve.
    pub problem: Option<String>,
}

impl Claims {
    /// A claim of this source, without the silence since the source became unreadable: a member
    /// that was alive then still counts as alive.
    pub(crate) fn audible(&self, claim: &Claim, now: Timestamp) -> Claim {
        let heard = match (claim.heard, self.deaf_since) {
            (Some(heard), Some(since)) => Some(heard.after(now.since(since.max(heard))).min(now)),
            (heard, _) => heard,
        };
        Claim { heard, ..claim.clone() }
    }
}

/// A source, as [`Combined`](crate::Combined) reads it.
#[derive(Debug, Clone)]
pub struct Source {
    /// The name of the source, for operators.
    pub name: &'static str,
    /// What the source says now.
    pub claims: watch::Receiver<Claims>,
}

impl Source {
    /// A source that says nothing yet, and the sender for its claims.
    pub fn new(name: &'static str) -> (watch::Sender<Claims>, Source) {
        let (sender, claims) = watch::channel(Claims::default());
        (sender, Source { name, claims })
    }

    /// The problem that an operator must solve.
    pub fn problem(&self) -> Option<String> {
        self.claims.borrow().problem.clone()
    }
}

/// Publishes the claims of a source. Wakes readers when members change, not at each heartbeat.
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
