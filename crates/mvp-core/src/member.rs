//! Members: the servers of a cluster, and what is known of each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Timestamp;
use crate::discovery::{GroupList, Part};
use crate::openapi::Index;
use crate::recorded::Recorded;

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its ID: the sort key of the merge, and its name in logs, metrics and refusals.
    pub id: Arc<str>,
    /// What answers at its address.
    pub kind: MemberKind,
    /// Where its peers reach it; a member without one cannot be asked anything.
    pub address: Option<Arc<str>>,
    /// Whether it is one of the cluster now.
    pub presence: Presence,
    /// When we came to hear of it: at first, or again after it left or moved.
    pub joined: Timestamp,
    /// When it last gave a sign of life.
    pub heard: Timestamp,
    /// Whether answers wait for it although it never said what it serves.
    pub awaited: bool,
    /// What it serves.
    pub view: View,
}

/// What answers at a member's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// A gateway like this one before its server, or a server with the layer inside.
    Mvp,
    /// An API server with nothing before it.
    Bare,
}

/// Whether a member is one of the cluster now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    Present,
    /// It left and is remembered for a while: what only it serves is unavailable, not gone.
    Left,
}

/// What is known of what a member serves. Its two documents come and fail separately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// What `/api` said.
    pub api: Option<Seen>,
    /// What `/apis` said.
    pub apis: Option<Seen>,
    /// What `/openapi/v3` said; empty where the member says that it has none.
    pub openapi: Option<Arc<Index>>,
    /// What `/version` said.
    pub release: Option<Release>,
    /// What is written down somewhere that it serves: a witness as long as itself was not heard.
    pub recorded: Option<Arc<Recorded>>,
}

/// A document of a member, and when it was last true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it says, parsed once and shared by every snapshot until it changes.
    pub list: Arc<GroupList>,
    /// The start of the last fetch in which the member sent it, or said that it still stands.
    pub confirmed: Timestamp,
}

/// How far a view can be relied upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewState {
    /// Both documents were confirmed just now.
    Fresh,
    /// The last known good, and its age.
    Stale(Duration),
    /// A document was never seen.
    Unknown,
}

impl View {
    /// One of the two documents.
    pub fn part(&self, part: Part) -> Option<&Seen> {
        match part {
            Part::Api => self.api.as_ref(),
            Part::Apis => self.apis.as_ref(),
        }
    }

    /// How far the view can be relied upon.
    pub fn state(&self, now: Timestamp, fresh_for: Duration) -> ViewState {
        let (Some(api), Some(apis)) = (&self.api, &self.apis) else {
            return ViewState::Unknown;
        };
        let age = now.since(api.confirmed.min(apis.confirmed));
        if age <= fresh_for { ViewState::Fresh } else { ViewState::Stale(age) }
    }
}

/// The release of an API server: what decides whether it may lose fields of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
}

impl Release {
    /// Reads the `gitVersion` of `/version`, such as `v1.36.4`, `v1.37.0-rc.1` or `v1.31.2-eks-7`.
    /// Patch releases neither add nor lose fields, so they are not told apart.
    pub fn parse(git_version: &str) -> Option<Release> {
        let mut numbers = git_version.strip_prefix('v').unwrap_or(git_version).splitn(3, '.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        let minor = minor.get(..digits)?.parse().ok()?;
        Some(Release { major, minor })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_from_what_servers_call_themselves() {
        let cases = [
            ("v1.36.4", Some((1, 36))),
            ("1.9", Some((1, 9))),
            ("v1.37.0-rc.1", Some((1, 37))),
            ("v1.31.2-eks-1552ad0", Some((1, 31))),
            ("v1.30+", Some((1, 30))),
            ("v1", None),
            ("", None),
            ("v1.x", None),
            ("v99999.1", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(major, minor)| Release { major, minor });
            assert_eq!(Release::parse(text), expected, "{text:?}");
        }
        assert!(Release::parse("v1.9.0") < Release::parse("v1.36.0"));
    }

    #[test]
    fn a_view_is_as_old_as_its_older_document() {
        let at = |seconds| Timestamp::after_start(Duration::from_secs(seconds));
        let seen = |seconds| Some(Seen { list: Arc::default(), confirmed: at(seconds) });
        let second = Duration::from_secs(1);
        let view = |api, apis| View { api, apis, ..View::default() };
        assert_eq!(view(None, seen(9)).state(at(9), second), ViewState::Unknown);
        assert_eq!(view(seen(8), seen(9)).state(at(9), second), ViewState::Fresh);
        let stale = ViewState::Stale(Duration::from_secs(7));
        assert_eq!(view(seen(2), seen(9)).state(at(9), second), stale);
    }
}
