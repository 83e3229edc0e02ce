//! A collection of objects, listed and then watched, for as long as the process lives. Entry item:
//! [`watch`].
//!
//! A watch that ends is taken up where it ended. What it missed for longer than the server
//! remembers (410 Gone) is listed again; so is all after any other refusal. Whatever fails is tried
//! again, at first soon and then less so. An object that cannot be read is left out, and told.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use mvp_proxy::Body;
use mvp_proxy::control::Ask;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::{ApiError, Metadata, Object, call, encoded, start};

/// Servers end a watch after this, so that one whose events are lost somewhere is no trouble for long.
const WATCH_FOR: Duration = Duration::from_secs(240);
/// One that the server forgot to end.
const OVERDUE: Duration = Duration::from_secs(270);
/// The head of the answer comes at once.
const HEAD: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(250);
const LATE: Duration = Duration::from_secs(5);
/// No event of ours comes near this.
const MAX_EVENT: usize = 3 << 20;
/// Lists come in pages of so many, and no more than so many in all.
const PAGE: usize = 500;
const MAX_OBJECTS: usize = 10_000;

/// Some objects of a kind.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    /// The path of their list.
    pub(crate) path: String,
    /// A selector of labels or fields, such as `labelSelector=a=b`; empty for all of them.
    pub(crate) selector: (&'static str, String),
}

/// What became of the objects.
#[derive(Debug)]
pub(crate) enum Change<T> {
    /// These are there, and whether these are all.
    Listed(Vec<T>, bool),
    /// There is this one, now so.
    Applied(T),
    /// This one is gone.
    Deleted(T),
    /// From now on changes are heard of.
    Hears,
    /// From now on nothing is heard of, for this reason.
    Deaf(ApiError),
}

/// Watches for good, and tells all that becomes of the objects.
pub(crate) async fn watch<T: Object>(
    ask: impl Ask,
    collection: Collection,
    mut tell: impl FnMut(Change<T>),
) {
    let mut wait = SOON;
    loop {
        let begun = Instant::now();
        let Err(error) = follow(&ask, &collection, &mut tell).await;
        // What held for a while was well: it is tried again soon.
        if begun.elapsed() > LATE {
            wait = SOON;
        }
        if !error.is(StatusCode::GONE) {
            tell(Change::Deaf(error));
        }
        sleep(wait).await;
        wait = (wait * 2).min(LATE);
    }
}

enum Never {}

/// Lists once and watches until something is wrong.
async fn follow<T: Object>(
    ask: &impl Ask,
    collection: &Collection,
    tell: &mut impl FnMut(Change<T>),
) -> Result<Never, ApiError> {
    let (key, selector) = &collection.selector;
    let query = match key.is_empty() {
        true => String::new(),
        false => format!("{key}={}", encoded(selector)),
    };
    let path = format!("{}?{query}", collection.path);
    let (objects, is_all, mut version) = list(ask, &path).await?;
    tell(Change::Listed(objects, is_all));
    let mut wait = SOON;
    loop {
        let path = format!(
            "{path}&watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            WATCH_FOR.as_secs(),
            encoded(&version)
        );
        let response = timeout(HEAD, start(ask, Method::GET, &path, None));
        let response = response
            .await
            .map_err(|_| ApiError::Failed("the watch was not answered".to_owned()))??;
        tell(Change::Hears);
        let begun = Instant::now();
        // A watch that ends for whatever reason, but for a word of the server, goes on.
        let events = events(response.into_body(), &mut version, tell);
        if let Ok(Err(error)) = timeout(OVERDUE, events).await {
            return Err(error);
        }
        wait = if begun.elapsed() > LATE { SOON } else { (wait * 2).min(LATE) };
        sleep(wait).await;
    }
}

/// The objects, page by page, whether these are all, and the version of which they are.
async fn list<T: Object>(ask: &impl Ask, path: &str) -> Result<(Vec<T>, bool, String), ApiError> {
    let mut objects = Vec::new();
    let (mut rest, mut limit) = (String::new(), PAGE);
    loop {
        let page = format!("{path}&limit={limit}{rest}");
        let page: List = match call(ask, Method::GET, &page, None).await {
            // Whoever writes large objects hides no other.
            Err(ApiError::TooLarge) if limit > 1 => {
                limit /= 2;
                continue;
            }
            page => page?,
        };
        let items = page.items.unwrap_or_default();
        objects.extend(items.iter().filter_map(|item| object(item)));
        let Metadata { resource_version, r#continue, .. } = page.metadata;
        if r#continue.is_empty() {
            return Ok((objects, true, resource_version));
        }
        if objects.len() >= MAX_OBJECTS {
            tracing::warn!("{path} has more than {MAX_OBJECTS} objects; the others are left out");
            return Ok((objects, false, resource_version));
        }
        rest = format!("&continue={}", encoded(&r#continue));
    }
}

/// An object, if it can be read: whoever writes one that cannot hides no other.
fn object<T: Object>(raw: &RawValue) -> Option<T> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named {
        metadata: Metadata,
    }
    let read = serde_json::from_str(raw.get());
    let unreadable = |error: &serde_json::Error| {
        let named: Named = serde_json::from_str(raw.get()).unwrap_or_default();
        let Metadata { namespace, name, .. } = named.metadata;
        tracing::warn!("{namespace}/{name} cannot be read and is left out: {error}");
    };
    read.inspect_err(unreadable).ok()
}

/// Reads events until there are no more.
async fn events<T: Object>(
    mut body: Body,
    version: &mut String,
    tell: &mut impl FnMut(Change<T>),
) -> Result<(), ApiError> {
    let mut read = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        read.extend_from_slice(&data);
        while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            let line = read.split_to(end);
            read.advance(1);
            event(&line, version, tell)?;
        }
        if read.len() > MAX_EVENT {
            return Err(ApiError::Failed("an event is too large".to_owned()));
        }
    }
    Ok(())
}

fn event<T: Object>(
    line: &[u8],
    version: &mut String,
    tell: &mut impl FnMut(Change<T>),
) -> Result<(), ApiError> {
    let unreadable = |error: serde_json::Error| ApiError::Failed(format!("an event: {error}"));
    let event: Event<'_> = serde_json::from_slice(line).map_err(unreadable)?;
    if event.kind == "ERROR" {
        let error: Failure = serde_json::from_str(event.object.get()).map_err(unreadable)?;
        let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return Err(ApiError::Refused(status, error.message));
    }
    if event.kind == "BOOKMARK" {
        let bookmark: Bookmark = serde_json::from_str(event.object.get()).map_err(unreadable)?;
        *version = bookmark.metadata.resource_version;
        return Ok(());
    }
    let Some(object) = object::<T>(event.object) else { return Ok(()) };
    version.clone_from(&object.metadata().resource_version);
    match event.kind {
        "ADDED" | "MODIFIED" => tell(Change::Applied(object)),
        "DELETED" => tell(Change::Deleted(object)),
        _ => {}
    }
    Ok(())
}

#[derive(Deserialize)]
struct List {
    metadata: Metadata,
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Failure {
    code: u16,
    message: String,
}

#[cfg(test)]
mod tests;
