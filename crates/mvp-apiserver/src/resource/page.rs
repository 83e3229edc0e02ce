//! The options of lists and watches, and the tokens with which a list continues. Entries:
//! [`ListOptions::parse`], [`WatchOptions::parse`].

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

use crate::query::Query;
use crate::route::Target;
use crate::status::{Failure, OptionFault};
use crate::storage::{ObjectKey, Range};

/// The options of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListOptions {
    /// The objects to read, and at which revision.
    pub(super) range: Range,
    /// The result must be at least as new as this.
    pub(super) not_older_than: u64,
    /// The most objects to return; 0 for all.
    pub(super) limit: usize,
}

impl ListOptions {
    pub(super) fn parse(target: &Target<'_>, query: &Query<'_>) -> Result<ListOptions, Failure> {
        let version = query.number("resourceVersion")?;
        let (matching, token) = (query.get("resourceVersionMatch"), query.get("continue"));
        let mut faults = Vec::new();
        let forbidden = |why| OptionFault::forbidden("resourceVersionMatch", why);
        if !matching.is_empty() {
            if version.is_none() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                faults.push(forbidden(why));
            }
            if !token.is_empty() {
                faults
                    .push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !["Exact", "NotOlderThan"].contains(&matching) {
                let known = ["Exact", "NotOlderThan", ""];
                faults.push(OptionFault::unsupported("resourceVersionMatch", matching, &known));
            }
            if matching == "Exact" && version == Some(0) {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                faults.push(forbidden(why));
            }
        }
        if query.flag("sendInitialEvents").is_some() {
            let why = "sendInitialEvents is forbidden for list";
            faults.push(OptionFault::forbidden("sendInitialEvents", why));
        }
        if !faults.is_empty() {
            return Err(Failure::invalid_options("ListOptions", faults));
        }

        let limit = query.number("limit")?.unwrap_or_default();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let version = version.filter(|version| *version > 0);
        if !token.is_empty() {
            if version.is_some() {
                let message = "specifying resource version is not allowed when using continue";
                return Err(Failure::bad_request(message));
            }
            let range = Token::decode(target, token)?;
            return Ok(ListOptions { range, limit, not_older_than: 0 });
        }
        // Without a rule, a limit means exactly this version: the pages of a list are of one version.
        let exact = matching == "Exact" || (matching.is_empty() && limit > 0);
        Ok(ListOptions {
            range: Range { after: None, revision: version.filter(|_| exact) },
            not_older_than: version.unwrap_or_default(),
            limit,
        })
    }
}

/// The options of a watch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WatchOptions {
    /// The revision after which the watch starts.
    pub(super) from: Option<u64>,
    /// Whether the current objects come first, if that was said.
    pub(super) initial_events: Option<bool>,
    pub(super) bookmarks: bool,
    pub(super) seconds: Option<u64>,
}

impl WatchOptions {
    pub(super) fn parse(query: &Query<'_>) -> Result<WatchOptions, Failure> {
        let from = query.number("resourceVersion")?.filter(|revision| *revision > 0);
        let initial_events = query.flag("sendInitialEvents");
        let matching = query.get("resourceVersionMatch");
        let mut faults = Vec::new();
        let forbidden = |why| OptionFault::forbidden("resourceVersionMatch", why);
        if initial_events.is_some() && matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            faults.push(forbidden(why));
        }
        if !matching.is_empty() {
            if initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                           provided";
                faults.push(forbidden(why));
            }
            if matching != "NotOlderThan" {
                let field = "resourceVersionMatch";
                faults.push(OptionFault::unsupported(field, matching, &["NotOlderThan"]));
            }
            if !query.get("continue").is_empty() {
                faults
                    .push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        if !faults.is_empty() {
            return Err(Failure::invalid_options("ListOptions", faults));
        }
        Ok(WatchOptions {
            from,
            initial_events,
            bookmarks: query.flag("allowWatchBookmarks") == Some(true),
            seconds: query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0),
        })
    }
}

/// The position of a list between two pages, in the form of real servers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Token {
    #[serde(rename = "v")]
    version: String,
    /// The revision of the list; -1 for the latest one.
    #[serde(rename = "rv")]
    revision: i64,
    /// The first key of the next page: that of the last object of this page, and a zero byte.
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl Token {
    /// The token for the objects after `last`. Without a revision, the list continues with the latest
    /// one.
    pub(super) fn encode(target: &Target<'_>, last: &ObjectKey, revision: Option<u64>) -> String {
        let start = match target.resource.namespaced && target.namespace.is_empty() {
            true => format!("{}/{}\0", last.namespace, last.name),
            false => format!("{}\0", last.name),
        };
        let revision = revision.and_then(|revision| i64::try_from(revision).ok()).unwrap_or(-1);
        let token = Token { version: TOKEN_VERSION.to_owned(), revision, start };
        // Serializing text and numbers cannot fail.
        BASE64URL_NOPAD.encode(&serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(target: &Target<'_>, text: &str) -> Result<Range, Failure> {
        let invalid = |why: &str| {
            let message = format!("invalid continue token: continue key is not valid{why}");
            Failure::bad_request(message)
        };
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| invalid(""))?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|_| invalid(""))?;
        if token.version != TOKEN_VERSION {
            let why = ": server does not recognize this encoded version";
            return Err(invalid(&format!("{why} {}", token.version)));
        }
        if token.revision == 0 {
            return Err(invalid(
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        if token.start.is_empty() {
            return Err(invalid(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        let key = token.start.strip_suffix('\0').ok_or_else(|| invalid(""))?;
        let (namespace, name) = match target.resource.namespaced && target.namespace.is_empty() {
            true => key.split_once('/').ok_or_else(|| invalid(""))?,
            false => (target.namespace.as_str(), key),
        };
        let after = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
        Ok(Range { after: Some(after), revision: u64::try_from(token.revision).ok() })
    }
}
