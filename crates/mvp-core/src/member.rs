//! Members: the servers of a cluster and their views. Entry item: [`Member`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Timestamp;
use crate::discovery::{self, GroupList, Part};
use crate::openapi::Index;
use crate::recorded::Recorded;

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The ID: the sort key of the merge, and the name in logs, metrics and refusals.
    pub id: Arc<str>,
    /// The kind of server at its address.
    pub kind: MemberKind,
    /// The address for its peers. Without one, no request can be sent to the member.
    pub address: Option<Arc<str>>,
    /// Whether it is in the cluster now.
    pub presence: Presence,
    /// The time at which it joined, or rejoined after it left or moved.
    pub joined: Timestamp,
    /// The time of its last heartbeat.
    pub heard: Timestamp,
    /// Whether 404s are withheld for it although it has no view yet.
    pub awaited: bool,
    /// The APIs that it serves.
    pub view: View,
}

/// The kind of server at a member's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// An `mvp` gateway in front of its server, or a server with the layer inside.
    Mvp,
    /// An API server without a gateway.
    Bare,
}

/// Whether a member is in the cluster now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is in the cluster.
    Present,
    /// It left, but is remembered for a while: APIs that only it serves are unavailable, not gone.
    Left,
}

/// The APIs that a member serves, as far as known. Its two discovery documents are fetched
/// separately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// The document at `/api`; `None` if it was never fetched.
    pub api: Option<Seen>,
    /// The document at `/apis`; `None` if it was never fetched.
    pub apis: Option<Seen>,
    /// The index at `/openapi/v3`; empty if the member has no OpenAPI v3.
    pub openapi: Option<Arc<Index>>,
    /// The release from `/version`.
    pub release: Option<Release>,
    /// The resources that StorageVersions record for it, used while it has no view.
    pub recorded: Option<Arc<Recorded>>,
    /// For each document, the start of the last fetch that has ended, whatever came of it.
    pub asked: PerDocument<Timestamp>,
    /// How long the last fetch took in which it sent or confirmed both documents.
    pub fetched_in: Duration,
}

/// A document that a view is made of. Each can be fetched by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ViewDocument {
    /// `/api`
    Api,
    /// `/apis`
    Apis,
    /// `/openapi/v3`
    OpenApi,
}

impl ViewDocument {
    /// All of them.
    pub const ALL: [ViewDocument; 3] =
        [ViewDocument::Api, ViewDocument::Apis, ViewDocument::OpenApi];
}

impl From<Part> for ViewDocument {
    fn from(part: Part) -> ViewDocument {
        match part {
            Part::Api => ViewDocument::Api,
            Part::Apis => ViewDocument::Apis,
        }
    }
}

/// A value for each document of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerDocument<T>([T; 3]);

impl<T> PerDocument<T> {
    /// The value of a document.
    pub fn of(&self, document: ViewDocument) -> &T {
        let [api, apis, openapi] = &self.0;
        match document {
            ViewDocument::Api => api,
            ViewDocument::Apis => apis,
            ViewDocument::OpenApi => openapi,
        }
    }

    /// The value of a document, to change it.
    pub fn of_mut(&mut self, document: ViewDocument) -> &mut T {
        let [api, apis, openapi] = &mut self.0;
        match document {
            ViewDocument::Api => api,
            ViewDocument::Apis => apis,
            ViewDocument::OpenApi => openapi,
        }
    }
}

/// A discovery document of a member, and when it was last confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The document, parsed once and shared by all snapshots until it changes.
    pub list: Arc<GroupList>,
    /// The start of the last fetch in which the member sent it or answered that it has not changed.
    pub confirmed: Timestamp,
}

/// The state of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewState {
    /// Both documents were confirmed recently.
    Fresh,
    /// Last known good, with the age of the older document.
    Stale(Duration),
    /// At least one document was never fetched.
    Unknown,
}

impl View {
    /// The document of one half.
    pub fn part(&self, part: Part) -> Option<&Seen> {
        match part {
            Part::Api => self.api.as_ref(),
            Part::Apis => self.apis.as_ref(),
        }
    }

    /// The entity tag of a document, with its quotes.
    pub fn etag(&self, document: ViewDocument) -> Option<&str> {
        match document {
            ViewDocument::Api => self.api.as_ref()?.list.etag.as_deref(),
            ViewDocument::Apis => self.apis.as_ref()?.list.etag.as_deref(),
            ViewDocument::OpenApi => self.openapi.as_ref()?.etag.as_deref(),
        }
    }

    /// A version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&discovery::Version> {
        let group = self.part(Part::of_group(group))?.list.group(group)?;
        group.versions.iter().find(|entry| &*entry.name == version)
    }

    /// The state of the view at a time.
    pub fn state(&self, now: Timestamp, fresh_for: Duration) -> ViewState {
        let (Some(api), Some(apis)) = (&self.api, &self.apis) else {
            return ViewState::Unknown;
        };
        let age = now.since(api.confirmed.min(apis.confirmed));
        if age <= fresh_for { ViewState::Fresh } else { ViewState::Stale(age) }
    }
}

/// The release of an API server. A server of an older release can erase fields of an object.
/// Releases are ordered by what the server emulates, then by its binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The version whose APIs and features the server has: that of its binary, unless
    /// `--emulated-version` names an older one.
    pub emulated: Version,
    /// The version of its binary.
    pub binary: Version,
}

/// A version without its patch version, which neither adds nor removes fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The major version.
    pub major: u16,
    /// The minor version.
    pub minor: u16,
}

impl Release {
    /// The release of a server with this `gitVersion` that emulates no other. `None` if
    /// [`Version::parse`] cannot read it.
    pub fn parse(git_version: &str) -> Option<Release> {
        Version::parse(git_version).map(Release::from)
    }

    /// The release of the same binary that emulates this version.
    pub fn emulating(self, emulated: Version) -> Release {
        Release { emulated, ..self }
    }
}

/// A server that emulates no other version.
impl From<Version> for Release {
    fn from(version: Version) -> Release {
        Release { emulated: version, binary: version }
    }
}

impl Version {
    /// Parses a version such as `v1.36.4`, `v1.37.0-rc.1`, `v1.31.2-eks-7` or `1.34`.
    pub fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        let minor = minor.get(..digits)?.parse().ok()?;
        Some(Version { major, minor })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Release { emulated, binary } = self;
        match emulated == binary {
            true => write!(f, "{binary}"),
            false => write!(f, "{emulated} (emulated by {binary})"),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_parse_from_git_versions() {
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
            let expected = expected.map(|(major, minor)| Version { major, minor });
            assert_eq!(Release::parse(text), expected.map(Release::from), "{text:?}");
        }
        assert!(Release::parse("v1.9.0") < Release::parse("v1.36.0"));
    }

    #[test]
    fn releases_are_ordered_by_the_emulated_version_then_by_the_binary() {
        let release = |binary, emulated| {
            let release = Release::parse(binary).expect("a release");
            release.emulating(Version::parse(emulated).expect("a version"))
        };
        let ordered = [
            release("v1.34.2", "1.34"),
            release("v1.35.0", "1.34"),
            release("v1.36.4", "1.34"),
            release("v1.35.0", "1.35"),
            release("v1.36.4", "1.35"),
            release("v1.36.4", "1.36"),
        ];
        assert!(ordered.is_sorted_by(|older, newer| older < newer), "{ordered:?}");
        assert_eq!(
            ordered.map(|release| release.to_string())[2..4],
            ["1.34 (emulated by 1.36)", "1.35"]
        );
        assert_eq!(Release::parse("v1.36.4"), Some(release("v1.36.4", "1.36")));
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
