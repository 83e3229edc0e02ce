//! Watches: a streamed response with a line for each change. Entry: [`Call::watch`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::Call;
use super::page::WatchOptions;
use crate::object;
use crate::render::Renderer;
use crate::respond::{self, Body};
use crate::selector::Selector;
use crate::status::Failure;
use crate::storage::{Cursor, Event, Expired, Fields, Object, Start};

impl Call<'_> {
    pub(super) fn watch(self) -> Result<Response<Body>, Failure> {
        let options = WatchOptions::parse(self.query)?;
        let start = match (options.initial_events, options.from) {
            (Some(true), wanted) => {
                let (wanted, current) =
                    (wanted.unwrap_or_default(), self.storage.resource_version());
                if wanted > current {
                    return Err(Failure::too_large_version(wanted, current));
                }
                Start::Objects
            }
            (None, None) => Start::Objects,
            (Some(false), None) => Start::Latest,
            (_, Some(revision)) => Start::After(revision),
        };
        let selector = Selector::new(self.target, self.query)?;
        let (objects, cursor) = self.storage.follow(&self.target.collection(), start);

        let renderer = Renderer::new(self.target, self.form, self.custom);
        let watch = Watch {
            shared_form: renderer.shared_form(),
            renderer,
            headers: Cell::new(true),
            objects: objects.into_iter().filter(|object| selector.matches(object)).collect(),
            selector,
            events: VecDeque::new(),
            cursor,
            announce_end_of_objects: options.bookmarks && options.initial_events == Some(true),
            next_bookmark: options.bookmarks.then(|| Instant::now() + BOOKMARK_PERIOD),
            // A timeout beyond the range of the clock is none.
            deadline: options
                .seconds
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
    renderer: Renderer,
    /// Watches with one form show a change alike.
    shared_form: Option<Arc<str>>,
    /// Whether the next table has columns: only the first one has.
    headers: Cell<bool>,
    selector: Selector,
    objects: VecDeque<Arc<Object>>,
    events: VecDeque<Arc<Event>>,
    announce_end_of_objects: bool,
    cursor: Cursor,
    /// The time of the next bookmark, if the client wants bookmarks.
    next_bookmark: Option<Instant>,
    deadline: Option<Instant>,
    ended: bool,
}

/// The number of objects in one chunk.
const BATCH: usize = 64;
/// The bytes after which a chunk ends.
const CHUNK_BYTES: usize = 1 << 20;
/// The time between two bookmarks, as in real servers.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

impl Watch {
    /// The next lines; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if !self.objects.is_empty() {
            return Some(self.initial_events());
        }
        if std::mem::take(&mut self.announce_end_of_objects) {
            return Some(self.bookmark(true));
        }
        loop {
            if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                // Even if changes never stop.
                self.ended = true;
                return self.next_bookmark.map(|_| self.bookmark(false));
            }
            let lines = self.shown_events();
            if !lines.is_empty() {
                return Some(lines);
            }
            match self.more_events().await {
                Ok(true) => {}
                Ok(false) => return Some(self.bookmark(false)),
                Err(expired) => {
                    self.ended = true;
                    return Some(error(expired));
                }
            }
        }
    }

    /// The next of the objects that were there at the start.
    fn initial_events(&mut self) -> Bytes {
        let mut lines = Vec::new();
        for _ in 0..BATCH {
            match self.objects.pop_front() {
                Some(object) if lines.len() < CHUNK_BYTES => {
                    lines.extend(self.line("ADDED", &object.fields));
                }
                Some(object) => {
                    self.objects.push_front(object);
                    break;
                }
                None => break,
            }
        }
        lines.into()
    }

    /// The changes that have been read and match the selector, as far as they fit a chunk.
    fn shown_events(&mut self) -> Bytes {
        let mut lines = BytesMut::new();
        while lines.len() < CHUNK_BYTES
            && let Some(event) = self.events.pop_front()
        {
            let line = self.show(&event);
            // Usually there is one, which need not be copied.
            if lines.is_empty() && self.events.is_empty() {
                return line;
            }
            lines.extend_from_slice(&line);
        }
        lines.freeze()
    }

    /// Waits for changes, or for the end of the watch. Returns false if it is time for a bookmark, and
    /// no change came before.
    async fn more_events(&mut self) -> Result<bool, Expired> {
        let until = self.next_bookmark.into_iter().chain(self.deadline).min();
        let events = match until {
            Some(until) => timeout_at(until, self.cursor.next()).await,
            None => Ok(self.cursor.next().await),
        };
        if let Ok(events) = events {
            self.events.extend(events?);
            return Ok(true);
        }
        if self.next_bookmark.is_none_or(|at| at > Instant::now()) {
            return Ok(true);
        }
        self.next_bookmark = Some(Instant::now() + BOOKMARK_PERIOD);
        // A bookmark says that all changes before it have been sent.
        self.events.extend(self.cursor.read()?);
        Ok(!self.events.is_empty())
    }

    /// The event of a change for this watch: an object that begins to match the selector is ADDED, one
    /// that no longer matches is DELETED. Empty if it never matched.
    fn show(&self, event: &Event) -> Bytes {
        let before = event.previous.as_ref().filter(|object| self.selector.matches(object));
        let after =
            Some(&event.object).filter(|object| !event.deleted && self.selector.matches(object));
        let (kind, object) = match (before, after) {
            (None, None) => return Bytes::new(),
            (None, Some(object)) => ("ADDED", object),
            (Some(_), Some(object)) => ("MODIFIED", object),
            (Some(object), None) => ("DELETED", object),
        };
        match self.shared_form.clone() {
            Some(form) => event.line.get(kind, &form, || self.line_of(kind, object, event)),
            None => self.line_of(kind, object, event),
        }
    }

    fn line_of(&self, kind: &'static str, object: &Object, event: &Event) -> Bytes {
        if kind != "DELETED" {
            return self.line(kind, &object.fields);
        }
        let mut fields = object.fields.clone();
        object::set_metadata(&mut fields, "resourceVersion", &event.revision.to_string());
        self.line(kind, &fields)
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
        self.line("BOOKMARK", &fields)
    }

    fn line(&self, kind: &'static str, fields: &Fields) -> Bytes {
        let headers = self.headers.replace(false);
        respond::line(&WatchEvent { kind, object: self.renderer.object(fields, headers) })
    }
}

#[derive(Serialize)]
struct WatchEvent<O> {
    #[serde(rename = "type")]
    kind: &'static str,
    object: O,
}

/// Real servers send this error as an event, not as the status of the response.
fn error(expired: Expired) -> Bytes {
    let failure = Failure::expired(expired.asked, expired.oldest);
    respond::line(&WatchEvent { kind: "ERROR", object: failure.into_status() })
}
