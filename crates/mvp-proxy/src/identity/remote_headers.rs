//! The headers in which front proxies name users. Nobody else may send them.

use http::header::HeaderName;

use super::name_set::{is_spelling_of, starts_with};
use crate::gateway::PEER_PROXIED;

pub(super) const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
pub(super) const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
pub(super) const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
/// The prefix of all of them.
const REMOTE: &str = "x-remote-";
pub(super) const REMOTE_EXTRA: &str = "x-remote-extra-";

/// The names of the headers in which front proxies name users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteHeaders {
    /// The headers with the user name. The first one that is present counts.
    pub username: Vec<HeaderName>,
    /// The headers with groups. All of them count.
    pub group: Vec<HeaderName>,
    /// The headers with the unique ID. The first one that is present counts.
    pub uid: Vec<HeaderName>,
    /// The prefixes of headers with extra fields, in lower case.
    pub extra_prefix: Vec<String>,
}

impl Default for RemoteHeaders {
    fn default() -> Self {
        RemoteHeaders {
            username: vec![REMOTE_USER],
            group: vec![REMOTE_GROUP],
            uid: vec![REMOTE_UID],
            extra_prefix: vec![REMOTE_EXTRA.to_owned()],
        }
    }
}

impl RemoteHeaders {
    /// Whether only this proxy and front proxies may send a header with this name, in any spelling.
    pub(crate) fn reserves(&self, name: &str) -> bool {
        let is = |known: &HeaderName| is_spelling_of(name, known.as_str());
        starts_with(name, REMOTE)
            || is_spelling_of(name, PEER_PROXIED.as_str())
            || [&self.username, &self.group, &self.uid].into_iter().flatten().any(is)
            || self.extra_prefix.iter().any(|prefix| starts_with(name, prefix))
    }

    /// Whether every header that starts with this prefix is reserved.
    pub(super) fn reserves_all_of(&self, prefix: &str) -> bool {
        starts_with(prefix, REMOTE) || self.extra_prefix.iter().any(|own| starts_with(prefix, own))
    }

    /// The header in which user names are sent.
    pub(crate) fn sent_username(&self) -> Option<&str> {
        self.username.first().map(HeaderName::as_str)
    }

    /// The header in which groups are sent.
    pub(crate) fn sent_group(&self) -> Option<&str> {
        self.group.first().map(HeaderName::as_str)
    }

    /// The header in which UIDs are sent.
    pub(crate) fn sent_uid(&self) -> Option<&str> {
        self.uid.first().map(HeaderName::as_str)
    }

    /// The prefix of the headers in which extra fields are sent.
    pub(crate) fn sent_extra_prefix(&self) -> Option<&str> {
        self.extra_prefix.first().map(String::as_str)
    }

    /// The header name under which an extra field is sent.
    pub(super) fn extra(&self, usual: &HeaderName) -> HeaderName {
        match (self.extra_prefix.first(), usual.as_str().strip_prefix(REMOTE_EXTRA)) {
            (Some(prefix), Some(rest)) if prefix != REMOTE_EXTRA => {
                HeaderName::try_from(format!("{prefix}{rest}")).unwrap_or_else(|_| usual.clone())
            }
            _ => usual.clone(),
        }
    }
}
