//! The headers that nobody but this proxy may send to a server, as they are known now: those of our
//! flags, the usual ones, and those that the cluster's servers read. Entry item: [`Screen`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use http::header::HeaderName;
use http::{Extensions, HeaderMap};

use super::name_set::NameSet;
use super::remote_headers::RemoteHeaders;
use super::untrusted::Untrusted;

/// The headers to remove from the requests of callers. Clones share it, and what it learns.
#[derive(Debug, Clone)]
pub(crate) struct Screen {
    /// Tells screens apart, without a look at their names.
    id: u64,
    /// The names that we read and write. They never change.
    pub(crate) own: Arc<RemoteHeaders>,
    pub(super) current: Arc<ArcSwap<Names>>,
    state: Arc<Mutex<HeadersState>>,
    pub(super) untrusted: Untrusted,
}

/// The headers that the cluster's servers read users from, compared with those that we send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HeadersState {
    /// They were not read yet.
    #[default]
    Awaited,
    /// They could not be read. The usual names are in use, or those that were last read.
    Unknown,
    /// They were read.
    Known {
        /// The headers that we send and that no server reads: servers do not learn who the user is.
        unread: Vec<String>,
        /// Whether no server reads the header in which we send the user's UID.
        loses_uid: bool,
    },
}

/// The names at one moment.
#[derive(Debug)]
pub(crate) struct Names {
    /// The names that we read and write.
    pub(crate) own: Arc<RemoteHeaders>,
    /// Names and prefixes that servers read besides; mostly none.
    further: Option<NameSet>,
    /// The ID of their screen.
    screen: u64,
}

/// An extension of requests that went through [`Authenticate`](super::Authenticate): no header that
/// these names reserve is left in them.
#[derive(Debug, Clone)]
pub(crate) struct Screened(pub(crate) Arc<Names>);

impl From<RemoteHeaders> for Screen {
    fn from(own: RemoteHeaders) -> Screen {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = Arc::new(own);
        let names = Names { own: Arc::clone(&own), further: None, screen: id };
        let current = Arc::new(ArcSwap::from_pointee(names));
        Screen { id, own, current, state: Arc::default(), untrusted: Untrusted::default() }
    }
}

impl Default for Screen {
    fn default() -> Screen {
        RemoteHeaders::default().into()
    }
}

impl Screen {
    /// The names now.
    pub(crate) fn names(&self) -> Arc<Names> {
        self.current.load_full()
    }

    /// Removes all reserved headers of a request with these extensions. One that this screen has seen
    /// is not looked at again, even if the names have changed since.
    pub(crate) fn remove_reserved(&self, headers: &mut HeaderMap, extensions: &Extensions) {
        let seen = extensions.get::<Screened>();
        if seen.is_none_or(|Screened(names)| names.screen != self.id) {
            self.names().remove_reserved(headers);
        }
    }

    /// Removes these headers, too, from now on. Returns whether that is a change.
    pub(crate) fn reserve<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
        prefixes: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        let own = &self.own;
        // What is reserved anyway would only cost time.
        let names = names.into_iter().filter(|name| !own.reserves(name));
        let prefixes = prefixes.into_iter().filter(|prefix| !own.reserves_all_of(prefix));
        let further = Some(NameSet::new(names, prefixes)).filter(|set| !set.is_empty());
        let changed = further != self.current.load().further;
        if changed {
            let names = Names { own: Arc::clone(own), further, screen: self.id };
            self.current.store(Arc::new(names));
        }
        changed
    }

    /// What is known of the servers' headers.
    pub(crate) fn state(&self) -> HeadersState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets what is known of the servers' headers.
    pub(crate) fn set_state(&self, state: HeadersState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Names {
    /// Whether only this proxy and front proxies may send a header with this name, in any spelling.
    pub(crate) fn reserves(&self, name: &str) -> bool {
        self.own.reserves(name)
            || self
                .further
                .as_ref()
                .is_some_and(|further| further.contains(name) && !is_needed(name))
    }

    /// Removes all headers with reserved names.
    pub(crate) fn remove_reserved(&self, headers: &mut HeaderMap) {
        let reserved: Vec<HeaderName> =
            headers.keys().filter(|name| self.reserves(name.as_str())).cloned().collect();
        for name in reserved {
            headers.remove(name);
        }
    }
}

/// Headers without which a request would mean something else, or nothing. They are forwarded even
/// if a server claims to read users from them.
pub(crate) const NEEDED: [&str; 28] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-user",
    "range",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-mvp-insists",
    "x-mvp-traced",
    "x-stream-protocol-version",
];

/// The prefix of further such headers.
const NEEDED_PREFIX: &str = "impersonate-extra-";

/// Whether a header of this name, in lower case, is forwarded whatever servers claim.
fn is_needed(name: &str) -> bool {
    NEEDED.contains(&name) || name.starts_with(NEEDED_PREFIX)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn left(screen: &Screen, names: &[&'static str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("root"));
        }
        screen.remove_reserved(&mut headers, &Extensions::new());
        let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
        left.sort();
        left
    }

    #[test]
    fn learned_names_are_removed_in_every_spelling() {
        let screen = Screen::default();
        let sent = ["accept", "x-auth-group", "x-claim-a", "x-claims", "x_auth_group", "x_claim-b"];
        assert_eq!(left(&screen, &sent), sent);
        assert!(screen.reserve(["X-Auth-Group"], ["X-Claim-"]));
        assert!(!screen.reserve(["x-auth-group"], ["x-claim-"]), "no change");
        assert_eq!(left(&screen, &sent), ["accept", "x-claims"]);
        assert!(screen.reserve([], []));
        assert_eq!(left(&screen, &sent), sent);
    }

    #[test]
    fn usual_names_are_not_kept_twice() {
        let screen = Screen::default();
        let names = ["X-Remote-User", "X-Remote-Group", "x_remote_uid"];
        assert!(!screen.reserve(names, ["X-Remote-Extra-"]));
        assert_eq!(screen.names().further, None);
    }

    /// A prefix such as "x-" or "" covers headers that requests need.
    #[test]
    fn a_hostile_prefix_or_name_does_not_remove_what_requests_need() {
        for prefix in ["", "x-", "X", "a", "c", "i", "s", "t"] {
            let screen = Screen::default();
            screen.reserve(NEEDED, [prefix]);
            assert_eq!(left(&screen, &NEEDED), NEEDED, "{prefix}");
            assert_eq!(left(&screen, &["impersonate-extra-scopes"]).len(), 1, "{prefix}");
        }
        let screen = Screen::default();
        screen.reserve([], ["x-"]);
        assert!(left(&screen, &["x-auth-group", "x_auth_group", "x-custom"]).is_empty());
    }

    /// The common case: `Authenticate` has removed them, and the forwarder does not look again.
    #[test]
    fn a_request_is_screened_once_by_each_screen() {
        let (screen, other) = (Screen::default(), Screen::default());
        for (seen_by, expected) in [(&screen, 1), (&other, 0)] {
            let (mut headers, mut extensions) = (HeaderMap::new(), Extensions::new());
            extensions.insert(Screened(seen_by.names()));
            headers.insert("x-remote-user", HeaderValue::from_static("root"));
            screen.remove_reserved(&mut headers, &extensions);
            assert_eq!(headers.len(), expected);
        }
    }
}
