//! The stream of one open page: each section when it changed. Entry: [`response`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::board::Viewer;

/// The longest silence. The page notices when nothing comes for a multiple of it.
pub(super) const ALIVE: Duration = Duration::from_secs(10);
/// The time after which the page connects again.
const RETRY: Duration = Duration::from_secs(1);
/// The life of a stream. The page connects again, and its client certificate is judged again.
pub(super) const LIFE: Duration = Duration::from_secs(600);

/// The stream for a page. It is written apart, so that a page that reads slowly, or nothing, gives its
/// place back in time, too.
pub(super) fn response(viewer: Viewer) -> Response {
    let (chunks, written) = mpsc::channel(1);
    let page = Page { viewer, seen: BTreeMap::new() };
    tokio::spawn(timeout(LIFE, page.write(chunks)));
    let events = stream::unfold(written, |mut written| async move {
        let chunk = written.recv().await?;
        Some((Ok::<String, Infallible>(chunk), written))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(events)).into_response()
}

struct Page {
    viewer: Viewer,
    /// The version of each section that was sent.
    seen: BTreeMap<&'static str, u64>,
}

impl Page {
    /// Writes the stream, until its reader is gone.
    async fn write(mut self, chunks: mpsc::Sender<String>) {
        loop {
            let chunk = tokio::select! {
                chunk = self.next() => chunk,
                () = chunks.closed() => return,
            };
            let Some(chunk) = chunk else { return };
            if chunks.send(chunk).await.is_err() {
                return;
            }
        }
    }

    /// The sections that changed, or a sign of life; `None` at the end of the process.
    async fn next(&mut self) -> Option<String> {
        if self.seen.is_empty() {
            self.viewer.first().await?;
            return Some(format!("retry: {}\n\n{}", RETRY.as_millis(), self.changed()));
        }
        loop {
            let chunk = self.changed();
            if !chunk.is_empty() {
                return Some(chunk);
            }
            match timeout(ALIVE, self.viewer.changed()).await {
                Ok(still_served) => still_served?,
                Err(_) => return Some("event: alive\ndata: {}\n\n".to_owned()),
            }
        }
    }

    fn changed(&mut self) -> String {
        let (frame, audience) = (self.viewer.frame(), self.viewer.audience());
        let mut chunk = String::new();
        for (name, section) in &frame.sections {
            if self.seen.insert(name, section.version) != Some(section.version) {
                // JSON has no line break. Writing to a string does not fail.
                let _ = write!(chunk, "event: {name}\ndata: {}\n\n", section.shown_to(audience));
            }
        }
        chunk
    }
}
