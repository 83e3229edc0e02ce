//! The order in which peers are tried: by health, then the newest first for writes, and those with
//! room first for reads, then the peer that the client's connection stays with, then by cost. Entry
//! item: [`order`].

use std::cmp::Reverse;
use std::sync::Arc;

use mvp_core::member::Member;
use mvp_core::{RequestInfo, Timestamp, Verb};

use super::health::{Health, MemberHealth};

/// A member that a request can be sent to, and its health.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    pub(super) member: &'a Member,
    pub(super) health: Arc<MemberHealth>,
}

/// The kind of a request, as far as the choice depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Goes to the least loaded member.
    Read,
    /// A read that lasts. Watches are balanced separately.
    Watch,
    /// Goes to the newest member: an older server erases the fields that it does not know.
    Write,
}

impl Kind {
    pub(super) fn of(info: &RequestInfo<'_>) -> Kind {
        match info {
            RequestInfo::Resource(request) if request.verb == Verb::Watch => Kind::Watch,
            RequestInfo::Resource(request) if request.is_read() => Kind::Read,
            _ => Kind::Write,
        }
    }
}

/// The members in the order in which they are tried. Ejected members are last, but not left out:
/// all may be ejected. `may_try` tells whether the request may be retried elsewhere if an ejected
/// member fails again. `turn` breaks ties.
pub(super) fn order<'a>(
    members: impl Iterator<Item = &'a Member>,
    health: &Health,
    kind: Kind,
    sticky: Option<&str>,
    may_try: impl Fn() -> bool,
    turn: usize,
    now: Timestamp,
) -> Vec<Choice<'a>> {
    let mut choices: Vec<Choice<'a>> =
        members.map(|member| Choice { member, health: health.of(&member.id) }).collect();
    if choices.len() > 1 {
        let start = turn % choices.len();
        choices.rotate_left(start);
        choices.sort_by_cached_key(|Choice { member, health }| {
            let newest = (kind == Kind::Write).then_some(member.view.release);
            let stays = sticky == Some(&*member.id);
            // A write waits for the newest member; a read need not wait where another has room.
            let full = kind != Kind::Write && !health.gate(kind == Kind::Watch).has_room();
            let standing = health.standing(&may_try, now);
            (standing, Reverse(newest), full, !stays, health.cost(kind == Kind::Watch, now))
        });
    }
    choices
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mvp_core::member::{MemberKind, Presence, Release, Version, View};

    use super::*;
    use crate::clock::Clock;
    use crate::error::Stage;
    use crate::metrics::Metrics;
    use crate::peers::PeerLimits;
    use crate::peers::health::Answered;

    fn member(id: &str, release: &str) -> Member {
        let view = View { release: Release::parse(release), ..View::default() };
        Member {
            id: id.into(),
            kind: MemberKind::Bare,
            address: None,
            presence: Presence::Present,
            joined: Timestamp::default(),
            heard: Timestamp::default(),
            awaited: true,
            view,
        }
    }

    struct World {
        members: Vec<Member>,
        health: Health,
    }

    impl World {
        fn new() -> World {
            World::with(PeerLimits::NONE)
        }

        fn with(limits: PeerLimits) -> World {
            let members =
                vec![member("a", "v1.36.0"), member("b", "v1.36.0"), member("c", "v1.35")];
            let metrics = Arc::new(Metrics::new(false));
            World { members, health: Health::new(Clock::start(), metrics, limits) }
        }

        fn order(&self, kind: Kind, sticky: Option<&str>, turn: usize) -> String {
            let now = self.health.now();
            let choices = order(
                self.members.iter(),
                &self.health,
                kind,
                sticky,
                || kind != Kind::Write,
                turn,
                now,
            );
            choices.iter().map(|choice| &*choice.member.id).collect()
        }

        fn of(&self, index: usize) -> Arc<MemberHealth> {
            self.health.of(&self.members[index].id)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_members_take_turns_and_writes_go_to_the_newest() {
        let world = World::new();
        let reads: Vec<String> = (0..3).map(|turn| world.order(Kind::Read, None, turn)).collect();
        assert_eq!(reads, ["abc", "bca", "cab"]);
        let writes: Vec<String> = (0..3).map(|turn| world.order(Kind::Write, None, turn)).collect();
        assert_eq!(writes, ["abc", "bac", "abc"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_emulated_version_counts_for_writes() {
        let mut world = World::new();
        let emulated = Version::parse("1.34").expect("a version");
        let release = &mut world.members[0].view.release;
        *release = release.map(|release| release.emulating(emulated));
        assert_eq!(world.order(Kind::Write, None, 0), "bca");
        assert_eq!(world.order(Kind::Read, None, 0), "abc");
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_loaded_member_is_first() {
        let world = World::new();
        let _busy = [
            world.of(0).gate(false).try_enter(),
            world.of(0).gate(false).try_enter(),
            world.of(2).gate(false).try_enter(),
        ];
        assert_eq!(world.order(Kind::Read, None, 0), "bca");
        assert_eq!(world.order(Kind::Write, None, 0), "bac");
        assert_eq!(world.order(Kind::Watch, None, 0), "abc");
        let _watch = world.of(0).gate(true).try_enter();
        assert_eq!(world.order(Kind::Watch, None, 0), "bca");
        world.of(1).measure(Duration::from_millis(300), world.health.now());
        assert_eq!(world.order(Kind::Read, None, 0), "cab");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_stays_with_its_member_unless_a_newer_one_can_take_a_write() {
        let world = World::new();
        let _busy = world.of(2).gate(false).try_enter();
        assert_eq!(world.order(Kind::Read, Some("c"), 0), "cab");
        assert_eq!(world.order(Kind::Write, Some("c"), 0), "abc");
        assert_eq!(world.order(Kind::Write, Some("b"), 0), "bac");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_goes_where_there_is_room_and_a_write_waits_for_the_newest() {
        let world = World::with(PeerLimits { requests: 2, watches: 2 });
        let place = world.of(0).gate(false).try_enter();
        assert_eq!(world.order(Kind::Read, Some("a"), 0), "bca");
        assert_eq!(world.order(Kind::Write, Some("a"), 0), "abc");
        assert_eq!(world.order(Kind::Watch, Some("a"), 0), "abc", "watches have other places");
        let watch = world.of(0).gate(true).try_enter();
        assert_eq!(world.order(Kind::Watch, Some("a"), 0), "bca");
        drop((place, watch));
        assert_eq!(world.order(Kind::Read, Some("a"), 0), "abc");
        assert_eq!(world.order(Kind::Watch, Some("a"), 0), "abc");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_cannot_be_retried_tries_no_ejected_member() {
        let world = World::new();
        world.health.failed("a", &world.of(0), Stage::Connect);
        tokio::time::advance(Duration::from_secs(2)).await;
        let (members, now) = (world.members.iter(), world.health.now());
        let choices = order(members, &world.health, Kind::Read, None, || false, 0, now);
        let ids: String = choices.iter().map(|choice| &*choice.member.id).collect();
        assert_eq!(ids, "bca", "such as exec, a GET that is not a read");
        assert_eq!(world.order(Kind::Read, None, 0), "abc", "a read tries a");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unready_member_is_last_for_a_second() {
        let world = World::new();
        world.of(0).mark_unready(world.health.now());
        for kind in [Kind::Read, Kind::Write, Kind::Watch] {
            assert_eq!(world.order(kind, Some("a"), 0), "bca", "{kind:?}");
        }
        tokio::time::advance(Duration::from_millis(1001)).await;
        assert_eq!(world.order(Kind::Read, None, 0), "abc");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ejected_member_is_last_until_it_is_readmitted() {
        let world = World::new();
        world.health.failed("b", &world.of(1), Stage::Connect);
        for kind in [Kind::Read, Kind::Write, Kind::Watch] {
            assert_eq!(world.order(kind, Some("b"), 0), "acb", "{kind:?}");
        }
        for index in [0, 2] {
            world.health.failed("x", &world.of(index), Stage::Connect);
        }
        assert_eq!(world.order(Kind::Read, None, 0), "abc", "ejected members are not left out");
        tokio::time::advance(Duration::from_secs(1)).await;
        world.health.failed("a", &world.of(0), Stage::Connect);
        assert_eq!(world.order(Kind::Write, None, 0), "abc", "writes do not try");
        world.health.answered("c", &world.of(2), Answered::Request);
        assert_eq!(world.order(Kind::Read, None, 0), "bca", "one read tries b");
        assert_eq!(world.order(Kind::Read, None, 0), "cab", "and no other read at the same time");
    }
}
