//! A collection of objects, listed and then watched for as long as the process lives. Entry item:
//! [`watch`].
//!
//! A watch that ends is resumed where it ended. After 410 Gone, or any other error, the collection
//! is listed again. Failures are retried with a backoff. An object that cannot be parsed is skipped
//! and logged.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use mvp_proxy::Body;
use mvp_proxy::control::Ask;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::{ApiError, Metadata, Object, call, encoded, start};
use crate::limits::Backoff;

/// The `timeoutSeconds` of a watch: a watch whose events are lost must not last.
const WATCH_TIMEOUT: Duration = Duration::from_secs(240);
/// When a watch is ended that the server did not end.
const WATCH_OVERDUE: Duration = Duration::from_secs(270);
/// The time limit for the response head of a watch.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit for an event.
const MAX_EVENT: usize = 3 << 20;
/// The objects in a page of a list, and the most objects that are kept.
const PAGE: usize = 500;
const MAX_OBJECTS: usize = 10_000;

/// A collection of objects.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    /// The path of the list.
    pub(crate) path: String,
    /// A query parameter and its value, such as `labelSelector` and `a=b`. Empty for all objects.
    pub(crate) selector: (&'static str, String),
}

/// A change of a collection.
#[derive(Debug)]
pub(crate) enum Change<T> {
    /// The objects, and whether these are all.
    Listed(Vec<T>, bool),
    /// An object was created or updated.
    Applied(T),
    /// An object was deleted.
    Deleted(T),
    /// The watch works.
    Connected,
    /// The collection cannot be read at present.
    Disconnected(ApiError),
}

/// Watches a collection forever, and passes each change to `tell`.
pub(crate) async fn watch<T: Object>(
    ask: impl Ask,
    collection: Collection,
    mut tell: impl FnMut(Change<T>),
) {
    let mut backoff = Backoff::default();
    loop {
        let begun = Instant::now();
        let Err(error) = follow(&ask, &collection, &mut tell).await;
        if !error.is(StatusCode::GONE) {
            tell(Change::Disconnected(error));
        }
        backoff.wait(begun).await;
    }
}

enum Never {}

/// Lists once, then watches until an error.
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
    let mut backoff = Backoff::default();
    loop {
        let path = format!(
            "{path}&watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            WATCH_TIMEOUT.as_secs(),
            encoded(&version)
        );
        let response = timeout(HEAD_TIMEOUT, start(ask, Method::GET, &path, None)).await;
        let response =
            response.map_err(|_| ApiError::Failed("the watch timed out".to_owned()))??;
        tell(Change::Connected);
        let begun = Instant::now();
        // A watch that ends without an error event is resumed.
        let events = events(response.into_body(), &mut version, tell);
        if let Ok(Err(error)) = timeout(WATCH_OVERDUE, events).await {
            return Err(error);
        }
        backoff.wait(begun).await;
    }
}

/// Lists page by page. Returns the objects, whether these are all, and the resource version.
async fn list<T: Object>(ask: &impl Ask, path: &str) -> Result<(Vec<T>, bool, String), ApiError> {
    let mut objects = Vec::new();
    let (mut rest, mut limit) = (String::new(), PAGE);
    loop {
        let page = format!("{path}&limit={limit}{rest}");
        let page: List = match call(ask, Method::GET, &page, None).await {
            // A large object must not hide others.
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
            tracing::warn!(path, limit = MAX_OBJECTS, "too many objects; the rest are ignored");
            return Ok((objects, false, resource_version));
        }
        rest = format!("&continue={}", encoded(&r#continue));
    }
}

/// Parses an object. One that cannot be parsed must not hide others.
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
        tracing::warn!(namespace, name, %error, "invalid object ignored");
    };
    read.inspect_err(unreadable).ok()
}

/// Reads events until the stream ends.
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
            return Err(ApiError::Failed(format!("an event has more than {MAX_EVENT} bytes")));
        }
    }
    Ok(())
}

fn event<T: Object>(
    line: &[u8],
    version: &mut String,
    tell: &mut impl FnMut(Change<T>),
) -> Result<(), ApiError> {
    let unreadable = |error: serde_json::Error| ApiError::Failed(format!("invalid event: {error}"));
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
