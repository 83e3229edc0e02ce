//! Watches: a streamed response with a line for each change. Entry: [`Call::watch`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::Call;
use crate::object::{self, TypeMeta};
use crate::respond::{self, Body};
use crate::selector::Selector;
use crate::status::Failure;
use crate::storage::{Cursor, Event, Expired, Fields, Object, Start};

impl Call<'_> {
    pub(super) fn watch(self) -> Result<Response<Body>, Failure> {
        let from = self.query.number("resourceVersion")?.filter(|revision| *revision > 0);
        let initial = self.query.flag("sendInitialEvents");
        let start = match (initial, from) {
            (Some(true), _) | (None, None) => Start::Objects,
            (Some(false), None) => Start::Latest,
            (_, Some(revision)) => Start::After(revision),
        };
        let seconds = self.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let bookmarks = self.query.flag("allowWatchBookmarks") == Some(true);
        let selector = Selector::new(self.target, self.query)?;
        let (objects, cursor) = self.storage.follow(&self.target.collection(), start);

        let watch = Watch {
            type_meta: self.target.type_meta(),
            objects: objects.into_iter().filter(|object| selector.matches(object)).collect(),
            selector,
            cursor,
            bookmarks,
            announce_end_of_objects: bookmarks && initial == Some(true),
            // A timeout beyond the range of the clock is none.
            deadline: seconds
                .and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds))),
            ended: false,
        };
        let frames = stream::unfold(watch, |mut watch| async move {
            let lines = watch.next().await?;
            Some((Ok(Frame::data(lines)), watch))
        });
        let body = BodyExt::boxed_unsync(StreamBody::new(frames));
        Ok(respond::respond(StatusCode::OK, "application/json", body))
    }
}

/// An open watch. It holds only its position in the log: changes that are not read yet stay in the log,
/// and expire with it.
struct Watch {
    type_meta: TypeMeta,
    selector: Selector,
    objects: VecDeque<Arc<Object>>,
    announce_end_of_objects: bool,
    cursor: Cursor,
    bookmarks: bool,
    deadline: Option<Instant>,
    ended: bool,
}

/// The number of objects in one chunk.
const BATCH: usize = 64;

impl Watch {
    /// The next lines; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if !self.objects.is_empty() {
            let batch = self.objects.drain(..BATCH.min(self.objects.len()));
            let lines = batch.map(|object| line(&self.type_meta, "ADDED", &object.fields));
            return Some(lines.flatten().collect());
        }
        if std::mem::take(&mut self.announce_end_of_objects) {
            return Some(self.bookmark(true));
        }
        loop {
            let events = match self.deadline {
                // Even if changes never stop.
                Some(deadline) if deadline <= Instant::now() => None,
                Some(deadline) => timeout_at(deadline, self.cursor.next()).await.ok(),
                None => Some(self.cursor.next().await),
            };
            let lines: Vec<u8> = match events {
                Some(Ok(events)) => events.iter().flat_map(|event| self.show(event)).collect(),
                Some(Err(expired)) => {
                    self.ended = true;
                    return Some(error(expired));
                }
                None => {
                    self.ended = true;
                    return self.bookmarks.then(|| self.bookmark(false));
                }
            };
            if !lines.is_empty() {
                return Some(lines.into());
            }
        }
    }

    /// The event of a change for this watch: an object that begins to match the selector is ADDED, one
    /// that no longer matches is DELETED. Empty if it never matched.
    fn show(&self, event: &Event) -> Bytes {
        let before = event.previous.as_ref().filter(|object| self.selector.matches(object));
        let after =
            Some(&event.object).filter(|object| !event.deleted && self.selector.matches(object));
        match (before, after) {
            (None, None) => Bytes::new(),
            (None, Some(object)) => line(&self.type_meta, "ADDED", &object.fields),
            (Some(_), Some(object)) => line(&self.type_meta, "MODIFIED", &object.fields),
            (Some(object), None) => {
                let mut fields = object.fields.clone();
                let revision = event.revision.to_string();
                object::set_metadata(&mut fields, "resourceVersion", &revision);
                line(&self.type_meta, "DELETED", &fields)
            }
        }
    }

    /// A bookmark with the position of this watch, from which another watch can continue.
    fn bookmark(&self, end_of_objects: bool) -> Bytes {
        let mut fields = Fields::new();
        let revision = self.cursor.position().to_string();
        object::set_metadata(&mut fields, "resourceVersion", &revision);
        if end_of_objects {
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            object::put_metadata(&mut fields, "annotations", Some(annotations));
        }
        line(&self.type_meta, "BOOKMARK", &fields)
    }
}

#[derive(Serialize)]
struct WatchEvent<O> {
    #[serde(rename = "type")]
    kind: &'static str,
    object: O,
}

fn line(type_meta: &TypeMeta, kind: &'static str, fields: &Fields) -> Bytes {
    respond::line(&WatchEvent { kind, object: type_meta.render(fields) })
}

/// Real servers send this error as an event, not as the status of the response.
fn error(expired: Expired) -> Bytes {
    let failure = Failure::expired(expired.asked, expired.oldest);
    respond::line(&WatchEvent { kind: "ERROR", object: failure.into_status() })
}
