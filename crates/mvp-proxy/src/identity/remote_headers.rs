//! The headers in which front proxies name users. Nobody else may send them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;

use crate::gateway::PEER_PROXIED;

pub(super) const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
pub(super) const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
pub(super) const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
pub(super) const REMOTE_EXTRA: &str = "x-remote-extra-";

/// The names of the headers in which front proxies name users.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

/// An extension of requests that went through [`Authenticate`](super::Authenticate): no header that
/// these names reserve is left in them.
#[derive(Debug, Clone)]
pub(crate) struct Screened {
    pub(crate) names: Arc<RemoteHeaders>,
    /// Compared in place of the names, for every request.
    fingerprint: u64,
}

impl Screened {
    /// Whether these names reserve the same headers.
    pub(crate) fn is_same(&self, other: &Screened) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl From<RemoteHeaders> for Screened {
    fn from(names: RemoteHeaders) -> Screened {
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        Screened { names: Arc::new(names), fingerprint: hasher.finish() }
    }
}

impl Default for Screened {
    fn default() -> Screened {
        RemoteHeaders::default().into()
    }
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
        starts_with(name, "x-remote-")
            || is_spelling_of(name, PEER_PROXIED.as_str())
            || [&self.username, &self.group, &self.uid].into_iter().flatten().any(is)
            || self.extra_prefix.iter().any(|prefix| starts_with(name, prefix))
    }

    /// Removes all headers with reserved names.
    pub(crate) fn remove_reserved(&self, headers: &mut HeaderMap) {
        let reserved: Vec<HeaderName> =
            headers.keys().filter(|name| self.reserves(name.as_str())).cloned().collect();
        for name in reserved {
            headers.remove(name);
        }
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

/// Whether two names differ at most in case and in underscores for hyphens. Some servers treat
/// them as the same.
fn is_spelling_of(name: &str, known: &str) -> bool {
    name.len() == known.len() && starts_with(name, known)
}

/// Whether `name` starts with any spelling of `prefix`.
fn starts_with(name: &str, prefix: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() >= prefix.len()
        && name.bytes().zip(prefix.bytes()).all(|(a, b)| plain(a) == plain(b))
}
