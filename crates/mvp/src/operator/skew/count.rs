//! Counts the objects of APIs that go away. Entry: [`count`].

use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout_at};

use super::ask::refusal;
use super::callers::USER_AGENT;
use super::finding::{Finding, Objects};
use super::server::Server;
use crate::operator::https::Https;

/// The time limit for all counts together.
const TIME: Duration = Duration::from_secs(30);
/// How many are counted at the same time.
const AT_ONCE: usize = 8;
/// Only metadata is of interest.
const ACCEPT: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Counts the objects of each finding that may have some, through the first of these servers that serves
/// the API.
pub(crate) async fn count(findings: &mut [Finding], servers: &[&Server]) {
    let deadline = Instant::now() + TIME;
    let open: Vec<&mut Finding> =
        findings.iter_mut().filter(|it| matches!(it.objects, Objects::Unknown(_))).collect();
    let mut open = open.into_iter();
    loop {
        let some: Vec<&mut Finding> = open.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return;
        }
        join_all(some.into_iter().map(async |finding| {
            let serves =
                |server: &&&Server| server.surface().is_some_and(|known| known.has(&finding.api));
            finding.objects = match servers.iter().find(serves).map(|server| &server.way) {
                Some(Some(way)) => timeout_at(deadline, objects(way, &finding.api.path()))
                    .await
                    .unwrap_or_else(|_| Objects::Unknown(format!("not counted within {TIME:?}"))),
                Some(None) => {
                    let reason = "a gateway may not read objects; ask with --kubeconfig";
                    Objects::Unknown(reason.to_owned())
                }
                None => Objects::Unknown("no server that serves it answers".to_owned()),
            };
        }))
        .await;
    }
}

async fn objects(way: &Https, path: &str) -> Objects {
    let headers = [("accept", ACCEPT), ("user-agent", USER_AGENT)];
    let answer = way.get(&format!("{path}?limit=1"), &headers).await;
    match answer {
        Err(error) => Objects::Unknown(format!("{error:#}")),
        Ok(answer) => match refusal(answer.status, &answer.body) {
            Some(problem) => Objects::Unknown(problem.to_string()),
            None => counted(&answer.body),
        },
    }
}

/// The number of objects, from the first page of a list.
fn counted(page: &[u8]) -> Objects {
    #[derive(Deserialize)]
    struct Page {
        metadata: Metadata,
        items: Option<Vec<IgnoredAny>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        #[serde(default, rename = "continue")]
        more: String,
        remaining_item_count: Option<u64>,
    }
    let Ok(page) = serde_json::from_slice::<Page>(page) else {
        return Objects::Unknown("the server sent no list".to_owned());
    };
    let here = page.items.map_or(0, |items| items.len() as u64);
    match (page.metadata.remaining_item_count, page.metadata.more.is_empty()) {
        (Some(rest), _) => Objects::Exactly(here.saturating_add(rest)),
        (None, true) => Objects::Exactly(here),
        (None, false) => Objects::MoreThan(here),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_tells_how_many_there_are() {
        let cases = [
            (r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#, Objects::Exactly(0)),
            (r#"{"metadata":{},"items":null}"#, Objects::Exactly(0)),
            (
                r#"{"metadata":{"continue":"x","remainingItemCount":41},"items":[{}]}"#,
                Objects::Exactly(42),
            ),
            (r#"{"metadata":{"continue":"x"},"items":[{}]}"#, Objects::MoreThan(1)),
        ];
        for (page, expected) in cases {
            assert_eq!(counted(page.as_bytes()), expected, "{page}");
        }
        assert!(matches!(counted(b"<html>"), Objects::Unknown(_)));
    }
}
