//! A watcher of a recorded load: lists and watches as informers do, and keeps every event.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value as Json;
use testkit::history::watched::{Event, Kind, Segment, Watched};
use tokio::time::sleep;

use super::{LAST, Record, number, version_of};
use crate::client::Watch;

/// No event for so long is no failure.
const SILENCE: Duration = Duration::from_secs(600);

/// What ended a watch.
enum End {
    /// It can be resumed.
    Over,
    /// The version is too old: a list is needed.
    TooOld,
    /// The last object was seen.
    Last,
}

/// Lists and watches until the last object appears. Counts itself once it has listed.
pub(super) async fn watch(
    record: Arc<Record>,
    to: SocketAddr,
    listed: Arc<AtomicUsize>,
) -> Watched<String> {
    let mut watched: Watched<String> = Vec::new();
    let mut version = None;
    loop {
        version = match (version, watched.last_mut()) {
            (Some(_), Some(segment)) => match follow(&record, to, segment).await {
                End::Over => Some(segment.until),
                End::TooOld => None,
                End::Last => return watched,
            },
            _ => {
                let segment = list(&record, to).await;
                let version = segment.as_ref().map(|segment| segment.version);
                if segment.is_some() && watched.is_empty() {
                    listed.fetch_add(1, Ordering::Relaxed);
                }
                watched.extend(segment);
                version
            }
        };
        sleep(Duration::from_millis(20)).await;
    }
}

/// Lists the objects; none if that failed.
async fn list(record: &Record, to: SocketAddr) -> Option<Segment<String>> {
    let answer = record.client.get(to, &record.subject.path("")).await.ok()?;
    let list = answer.expect(200).ok()?;
    let items = list.pointer("/items")?.as_array()?;
    let listed: Option<BTreeMap<_, _>> =
        items.iter().map(|item| Some((name(item)?, number(item)?))).collect();
    let version = version_of(&list)?;
    Some(Segment { version, listed: listed?, events: Vec::new(), until: version })
}

/// Watches from where the segment ends until the watch ends.
async fn follow(record: &Record, to: SocketAddr, segment: &mut Segment<String>) -> End {
    let version = segment.until;
    let query = format!("&watch=true&allowWatchBookmarks=true&resourceVersion={version}");
    let mut watch: Watch = match record.client.open_watch(to, &record.subject.path(&query)).await {
        Ok(Ok(watch)) => watch,
        Ok(Err(refused)) if refused.status == 410 => return End::TooOld,
        _ => return End::Over,
    };
    while let Ok(Some(event)) = watch.next_or_silence(SILENCE).await {
        let Some(object) = event.get("object") else { break };
        let kind = match event.get("type").and_then(Json::as_str) {
            Some("ADDED") => Some(Kind::Added),
            Some("MODIFIED") => Some(Kind::Modified),
            Some("DELETED") => Some(Kind::Deleted),
            Some("BOOKMARK") => None,
            _ => return End::TooOld,
        };
        let Some(at) = version_of(object) else { break };
        segment.until = at;
        let (Some(kind), Some(value), Some(object)) = (kind, number(object), name(object)) else {
            continue;
        };
        let is_last = object.starts_with(LAST);
        segment.events.push(Event { version: at, kind, object, value });
        if is_last {
            return End::Last;
        }
    }
    End::Over
}

fn name(object: &Json) -> Option<String> {
    object.pointer("/metadata/name")?.as_str().map(str::to_owned)
}
