//! The control loop: membership → fetch views → build snapshot → publish.

mod any;
mod extensions;
mod fetch;
mod membership;
mod patience;
mod publish;
mod reach;
mod schemas;
mod storage_versions;
mod table;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use mvp_core::Snapshot;
use mvp_core::snapshot::{Inputs, Policy};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use any::AnyMember;
use extensions::{Extensions, Found};
use fetch::Fetched;
pub(crate) use fetch::{get, gunzip};
pub use membership::{MemberRecord, Membership, StaticMembership, WatchedMembership, Who};
pub use publish::{Clock, SnapshotReader, SnapshotWriter, channel};
pub use reach::{Reachable, Reached};
pub(crate) use schemas::{Schema, content_type as v2_media_type};
use storage_versions::StorageVersions;
use table::Table;

use crate::body::Body;
use crate::gateway::Instance;
use crate::metrics::Metrics;

/// A server that can be asked what it serves.
pub trait Ask: Send + Sync {
    /// Asks it.
    fn ask(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Body>, String>> + Send;
}

/// Finds the way to a member: the local server, or a peer by its record.
pub trait Reach: Send + 'static {
    /// How a member is asked.
    type Ask: Ask + Clone + 'static;

    /// How this member is asked; nothing where it cannot be.
    fn reach(&self, id: &Arc<str>, record: Option<&MemberRecord>) -> Option<Self::Ask>;

    /// This member is one no more: what is kept of it can go.
    fn forget(&self, _id: &str) {}
}

/// The settings of the control loop.
#[derive(Debug, Clone)]
pub struct ControlSettings {
    /// The ID of the local server; a load balancer has none.
    pub local: Option<Arc<str>>,
    /// How often every member is asked.
    pub interval: Duration,
    /// How long a member that left is remembered.
    pub forget_after: Duration,
    /// How long what counts.
    pub policy: Policy,
    /// What we tell peers of ourselves, by which we know ourselves; a test may have none.
    pub instance: Option<Instance>,
}

impl Default for ControlSettings {
    fn default() -> Self {
        ControlSettings {
            local: None,
            interval: Duration::from_secs(1),
            forget_after: Duration::from_secs(600),
            policy: Policy::default(),
            instance: None,
        }
    }
}

/// A member is not asked more often than this, whoever wants it.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// A local server that is still being put together is looked for again after this.
const UNREACHABLE_INTERVAL: Duration = Duration::from_millis(100);

/// The snapshot before anybody was asked: the local server is there, and nothing is known of it.
pub fn first_snapshot(settings: &ControlSettings, clock: Clock) -> Snapshot {
    let mut table = Table::default();
    table.update(&[], settings.local.as_ref(), clock.now(), settings.forget_after);
    build(&table, &Extensions::default(), settings, clock, clock.now(), false, None)
}

/// Runs until it is told to stop.
pub async fn run(
    mut membership: impl Membership,
    reach: impl Reach,
    settings: ControlSettings,
    mut writer: SnapshotWriter,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let clock = writer.clock();
    let started = clock.now();
    let mut table = Table::default();
    let mut extensions = Extensions::default();
    let mut storage_versions = StorageVersions::default();
    let mut fetches = JoinSet::new();
    // Whether it was ever known who the members are, or told that it is not.
    let mut settled = false;
    loop {
        // In this order: what is known to be all must not be less than it was then.
        let (complete, records) = (membership.complete(), membership.members());
        let late = clock.now().since(started) > settings.policy.blocks_for;
        settled |= complete;
        if late && !std::mem::replace(&mut settled, true) {
            tracing::warn!(
                "who the members are could not be found out for so long that whatever no known \
                 member serves is 404 from now on; /readyz has the reason"
            );
        }
        let (local, now) = (settings.local.as_ref(), clock.now());
        let mut forgotten = table.update(&records, local, now, settings.forget_after);
        forgotten.extend(writer.to_forget().into_iter().filter(|id| table.forget(id)));
        for row in table.rows() {
            if row.asked.is_some() || row.due > clock.now() {
                continue;
            }
            let Some(ask) = reach.reach(&row.member.id, row.record().as_ref()) else {
                let is_local = local == Some(&row.member.id);
                let soon = if is_local { UNREACHABLE_INTERVAL } else { settings.interval };
                row.due = clock.now().after(settings.interval.min(soon));
                continue;
            };
            let begun = clock.now();
            row.begin(begun, settings.interval);
            let (id, known) = (Arc::clone(&row.member.id), row.known.clone());
            let (address, own) = (row.member.address.clone(), settings.instance.clone());
            // They are the cluster's: any one server knows them all.
            let with_extensions = local.is_none_or(|local| *local == id);
            fetches.spawn(async move {
                // The local server of an embedder runs in here: a panic of its own is no answer.
                let fetching = fetch::fetch(&ask, &id, &known, with_extensions, own.as_ref());
                let fetched = AssertUnwindSafe(fetching).catch_unwind().await;
                let panicked = |_| Fetched::failed(&known, "the server panicked");
                (id, (address, begun), fetched.unwrap_or_else(panicked))
            });
        }
        table.give_up(clock.now(), settings.local.as_ref(), settings.policy.blocks_for);
        storage_versions.witness(&mut table);
        let starting = clock.now().since(started) < settings.policy.startup;
        let known = complete && !(starting && storage_versions.are_awaited(&table));
        let previous = writer.current();
        let previous = Some(&*previous);
        let built = build(&table, &extensions, &settings, clock, started, known, previous);
        writer.publish(built);
        metrics.observe_snapshot(&writer.current(), clock.now());
        // After it is published, so that few can still think of them.
        for id in forgotten {
            reach.forget(&id);
            metrics.forget(&id);
            writer.note(id, None);
        }

        let again = storage_versions.ask(&writer.current(), &reach, &records, clock.now());
        let next = [table.next_due(), again].into_iter().flatten().min();
        let next = next.map_or(settings.interval, |due| due.since(clock.now()));
        tokio::select! {
            () = stop.cancelled() => return,
            () = membership.changed() => {}
            () = writer.wanted() => table.want_all(clock.now(), MIN_INTERVAL),
            Some(joined) = fetches.join_next() => {
                // Of a round in which all are asked at once, many come at once: one snapshot has them.
                let mut next = Some(joined);
                while let Some(joined) = next {
                    next = fetches.try_join_next();
                    let Ok((id, asked, mut fetched)) = joined else { continue };
                    if let ((Some(address), _), Some(who)) = (&asked, &fetched.who) {
                        membership.answered(address, who);
                    }
                    let trouble = fetched.trouble();
                    let found = std::mem::replace(&mut fetched.extensions, Found::Nothing);
                    extensions.apply(found, trouble.is_none());
                    if table.apply(&id, asked, fetched, &metrics) {
                        writer.note(id, trouble);
                    } else {
                        reach.forget(&id);
                        metrics.forget(&id);
                    }
                }
            }
            () = storage_versions.heard() => {}
            () = tokio::time::sleep(next.max(Duration::from_millis(5))) => {}
        }
    }
}

fn build(
    table: &Table,
    extensions: &Extensions,
    settings: &ControlSettings,
    clock: Clock,
    started: mvp_core::Timestamp,
    members_known: bool,
    previous: Option<&Snapshot>,
) -> Snapshot {
    let inputs = Inputs {
        members: table.members(),
        members_known,
        local: settings.local.clone(),
        extension_versions: extensions.versions(),
        started,
        now: clock.now(),
        policy: settings.policy,
    };
    Snapshot::build(inputs, previous)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Stage;
    use crate::peers::Health;

    /// Nobody answers.
    #[derive(Clone)]
    struct Dead;

    impl Ask for Dead {
        async fn ask(&self, _: Request<Body>) -> Result<Response<Body>, String> {
            Err("nobody is there".to_owned())
        }
    }

    struct Graveyard(Health);

    impl Reach for Graveyard {
        type Ask = Dead;

        fn reach(&self, _: &Arc<str>, record: Option<&MemberRecord>) -> Option<Dead> {
            record.map(|_| Dead)
        }

        fn forget(&self, id: &str) {
            self.0.forget(id);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_who_was_forgotten() {
        let settings = ControlSettings { local: Some("b".into()), ..ControlSettings::default() };
        let (clock, metrics) = (Clock::start(), Arc::new(Metrics::new(false)));
        let health = Health::new(clock, Arc::clone(&metrics));
        let (writer, reader) = channel(clock, first_snapshot(&settings, clock));
        let (id, kind) = (Arc::from("a"), mvp_core::member::MemberKind::Bare);
        let record = MemberRecord { id: Arc::clone(&id), address: None, kind, heard: None };
        let members = tokio::sync::watch::Sender::new(vec![record]);
        tokio::spawn(run(
            WatchedMembership::new(members.subscribe()),
            Graveyard(health.clone()),
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
        assert!(reader.trouble("a").is_some_and(|trouble| trouble.contains("nobody is there")));
        assert_eq!(named(), 3, "its age, that it was ejected, and that it is");

        // It never said anything that would have to be remembered.
        members.send_replace(Vec::new());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(reader.load().member_by_id("a").is_none());
        assert_eq!((reader.trouble("a"), named()), (None, 0));
        assert!(!Arc::ptr_eq(&health.of(&id), &known), "it would begin anew");
    }
}
