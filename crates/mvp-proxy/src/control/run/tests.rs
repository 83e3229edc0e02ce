//! The whole loop, on a paused clock.

use http::{Request, Response};
use mvp_core::member::{Member, MemberKind};

use super::super::{MemberRecord, WatchedMembership, channel};
use super::*;
use crate::ask::{Ask, AskError};
use crate::body::Body;
use crate::error::Stage;
use crate::peers::{Health, PeerLimits};

/// A server that never answers.
#[derive(Clone)]
struct Dead;

impl Ask for Dead {
    async fn ask(&self, _: Request<Body>) -> Result<Response<Body>, AskError> {
        Err(AskError::new("connection refused"))
    }
}

struct AllDown(Health);

impl Reach for AllDown {
    type Ask = Dead;

    fn reach(&self, member: &Member) -> Option<Dead> {
        (&*member.id == "a").then_some(Dead)
    }

    fn forget(&self, id: &str) {
        self.0.forget(id);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_about_a_forgotten_member() {
    let settings = ControlSettings { local: Some("b".into()), ..ControlSettings::default() };
    let (clock, metrics) = (Clock::start(), Arc::new(Metrics::new(false)));
    let health = Health::new(clock, Arc::clone(&metrics), PeerLimits::NONE);
    let (writer, reader) = channel(clock, first_snapshot(&settings, clock), settings.documents);
    let id: Arc<str> = "a".into();
    let (name, kind) = (Arc::clone(&id).into(), MemberKind::Bare);
    let record = MemberRecord { name, address: None, kind, heard: None };
    let members = tokio::sync::watch::Sender::new(vec![record]);
    tokio::spawn(run(
        WatchedMembership::new(members.subscribe()),
        AllDown(health.clone()),
        settings,
        writer,
        Arc::clone(&metrics),
        CancellationToken::new(),
    ));
    let known = health.of(&id);
    health.failed(&id, &known, Stage::Connect);
    let named = || {
        let mut text = String::new();
        metrics.encode(&mut text);
        text.lines().filter(|line| line.contains("member=\"a\"")).count()
    };
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(reader.trouble("a").is_some_and(|trouble| trouble.contains("connection refused")));
    assert_eq!(named(), 3, "the age of its view, its ejections, and whether it is ejected");

    // It was never seen, so there is nothing to remember.
    members.send_replace(Vec::new());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(reader.load().member_by_id("a").is_none());
    assert_eq!((reader.trouble("a"), named()), (None, 0));
    assert!(!Arc::ptr_eq(&health.of(&id), &known), "its health starts from scratch");
}
