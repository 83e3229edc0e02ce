//! Tests of the computation.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::*;
use crate::dashboard::places::{MAX_ANYBODY, MAX_PAGES};
use crate::report::{CheckState, MemberState};

/// A board without members.
pub(crate) fn board() -> Arc<Board> {
    Board::new(sources(Arc::default()), CancellationToken::new())
}

/// A board whose member changes in every round.
pub(crate) fn restless() -> Arc<Board> {
    let state = Arc::new(AtomicU64::new(0));
    let Sources { status, apis, callers, others, .. } = sources(Arc::clone(&state));
    let status = Box::new(move || {
        state.fetch_add(1, Ordering::Relaxed);
        status()
    });
    let marks = Box::new(Marks::default);
    Board::new(Sources { status, apis, marks, callers, others }, CancellationToken::new())
}

/// Sources whose member fails with this number, and is well with 0.
fn sources(state: Arc<AtomicU64>) -> Sources {
    let marked = Arc::clone(&state);
    Sources {
        status: Box::new(move || {
            let failed = state.load(Ordering::Relaxed);
            let last_error = (failed > 0).then(|| format!("10.0.0.1:6443 refused {failed}"));
            let member = MemberState { id: "b".to_owned(), last_error, ..MemberState::default() };
            let check = CheckState { name: "local".to_owned(), ..CheckState::default() };
            Some(Status { members: vec![member], readiness: vec![check], ..Status::default() })
        }),
        apis: Box::new(Vec::new),
        marks: Box::new(move || Marks { members: marked.load(Ordering::Relaxed), apis: 0 }),
        callers: Box::new(|| None),
        others: Box::new(|| Box::pin(async { Vec::new() })),
    }
}

fn members(viewer: &mut Viewer) -> (u64, Value) {
    let (frame, audience) = (viewer.frame(), viewer.audience());
    let section = &frame.sections["members"];
    (section.version, serde_json::from_str(section.shown_to(audience)).unwrap())
}

#[tokio::test]
async fn a_change_is_shown_at_once_and_only_to_those_who_may_know() {
    let state = Arc::new(AtomicU64::new(0));
    let board = Board::new(sources(Arc::clone(&state)), CancellationToken::new());
    let running = tokio::spawn(Arc::clone(&board).run());
    let mut anybody = board.open(Audience::Anybody).unwrap();
    let mut trusted = board.open(Audience::Trusted).unwrap();
    anybody.first().await.unwrap();
    let (version, before) = members(&mut anybody);
    assert_eq!((&before[0]["id"], &before[0]["error"]), (&json!("b"), &Value::Null));

    state.store(7, Ordering::Relaxed);
    let changed = async {
        while members(&mut anybody).0 == version {
            anybody.changed().await.unwrap();
        }
    };
    let begun = Instant::now();
    time::timeout(Duration::from_secs(10), changed).await.unwrap();
    assert!(begun.elapsed() < ROUND, "{:?}", begun.elapsed());
    assert_eq!(members(&mut anybody).1[0]["error"], "… refused 7");
    assert_eq!(members(&mut trusted).1[0]["error"], "10.0.0.1:6443 refused 7");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_nothing_changes() {
    let board = board();
    let running = tokio::spawn(Arc::clone(&board).run());
    let mut viewer = board.open(Audience::Anybody).unwrap();
    viewer.first().await.unwrap();
    viewer.frame();
    let quiet = time::timeout(Duration::from_secs(3), viewer.changed()).await;
    assert!(quiet.is_err(), "{:?}", viewer.frame());
    running.abort();
}

#[tokio::test]
async fn the_next_page_shows_nothing_of_long_ago() {
    let state = Arc::new(AtomicU64::new(7));
    let board = Board::new(sources(Arc::clone(&state)), CancellationToken::new());
    let running = tokio::spawn(Arc::clone(&board).run());
    let mut first = board.open(Audience::Anybody).unwrap();
    first.first().await.unwrap();
    drop(first);
    // A round without a page ends the frame.
    let mut frames = board.frames.subscribe();
    let cleared = frames.wait_for(|frame| frame.sections.is_empty());
    time::timeout(Duration::from_secs(10), cleared).await.unwrap().unwrap();
    state.store(0, Ordering::Relaxed);
    let mut second = board.open(Audience::Anybody).unwrap();
    second.first().await.unwrap();
    assert_eq!(members(&mut second).1[0]["error"], Value::Null);
    running.abort();
}

#[tokio::test]
async fn the_number_of_pages_is_bounded_and_the_end_reaches_each() {
    let end = CancellationToken::new();
    let board = Board::new(sources(Arc::default()), end.clone());
    let mut pages: Vec<Viewer> =
        (0..MAX_ANYBODY).map(|_| board.open(Audience::Anybody).unwrap()).collect();
    assert!(board.open(Audience::Anybody).is_none());
    // Others do not take the places of those who may know all.
    let left = MAX_ANYBODY..MAX_PAGES;
    pages.extend(left.map(|_| board.open(Audience::Trusted).unwrap()));
    assert!(board.open(Audience::Trusted).is_none());
    pages.remove(0);
    assert!(board.open(Audience::Anybody).is_some());
    end.cancel();
    for page in &mut pages {
        assert_eq!(page.changed().await, None);
    }
}
