//! The decision of the model: the shipped one, or the shipped one without one of its rules. A rule
//! that is taken out must be missed: see [`Rule`]. Entry item: [`Rules`].

use std::time::Duration;

use mvp_core::decide::{
    self as table, Action, Asked, Decision, LocalHealth, OnNotFound, Origin, Reason,
};
use mvp_core::not_found::NotFound;
use mvp_core::{Snapshot, Timestamp};

use super::cluster::Ask;
use crate::control::model::ControlSettings;
use crate::error::Stage;

/// A rule that can be taken out. Those with a number are rows of the table in ARCHITECTURE.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// 1: discovery is answered for the cluster. Without it: by the local server.
    MergedDiscovery,
    /// 1: discovery waits for members without a view after the start. Without it: it is answered.
    DiscoveryWaits,
    /// 2: `nopeer` and peers get the local server's own document. Without it: the merged one.
    OwnDiscovery,
    /// 3: other paths never go to a peer. Without it: they do while the local server is down.
    OwnPaths,
    /// 4: the local server serves what it lists. Without it: refused.
    ServedLocally,
    /// 5: peers serve what only they list. Without it: the local server is asked.
    ServedByPeer,
    /// 6: a request that was proxied is not proxied again. Without it: it is.
    OneHop,
    /// 7: a 404 of the local server for what nobody lists is withheld. Without it: passed through.
    UnlistedDoubted,
    /// 7: a view counts if it was confirmed after the request arrived. Without it: at any time.
    ConfirmedSince,
    /// 8: a 404 is withheld while a live member could not confirm. Without it: passed through.
    UnconfirmedRefused,
    /// 8: the same while the local server was never seen.
    LocalUnseenRefused,
    /// 8: the same while a StorageVersion records the resource.
    RecordedRefused,
    /// 9: peers serve while the local server is down. Without it: it is asked, or refused.
    PeersWhileDown,
    /// 9: only members that are not older get writes. Without it: all.
    NotOlder,
    /// 10: a 404 of the local server for what it lists is withheld. Without it: passed through.
    LocalDenialDoubted,
    /// 11: a 404 of a peer is withheld. Without it: passed through.
    PeerDenialDoubted,
    /// 12: without a local server any member is asked. Without it: refused.
    AskAny,
    /// 13: a member that lists the resource without the verb responds. Without it: refused.
    VerbUnlisted,
    /// Delivery: a write that a server may have processed is not sent again. Without it: it is.
    SentOnce,
    /// Delivery: a 404 that proves nothing may come from a server that processed the request. Without
    /// it: it counts as unrouted.
    VagueProcessed,
    /// Delivery: a read that was lost is sent once more. Without it: it is not.
    ReadRetried,
    /// Roster: a member that left is remembered. Without it: forgotten at once.
    Remembered,
}

impl Rule {
    pub(super) const ALL: [Rule; 22] = [
        Rule::MergedDiscovery,
        Rule::DiscoveryWaits,
        Rule::OwnDiscovery,
        Rule::OwnPaths,
        Rule::ServedLocally,
        Rule::ServedByPeer,
        Rule::OneHop,
        Rule::UnlistedDoubted,
        Rule::ConfirmedSince,
        Rule::UnconfirmedRefused,
        Rule::LocalUnseenRefused,
        Rule::RecordedRefused,
        Rule::PeersWhileDown,
        Rule::NotOlder,
        Rule::LocalDenialDoubted,
        Rule::PeerDenialDoubted,
        Rule::AskAny,
        Rule::VerbUnlisted,
        Rule::SentOnce,
        Rule::VagueProcessed,
        Rule::ReadRetried,
        Rule::Remembered,
    ];
}

/// The decision table, whole or without one rule.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    pub(super) without: Option<Rule>,
}

impl Rules {
    /// Decides by the shipped function, then changes its answer where the missing rule applied.
    pub(super) fn decide<'a>(
        self,
        ask: &'static Ask,
        snapshot: &'a Snapshot,
        asked: Asked<'a>,
    ) -> Decision<'a> {
        // Reads may go to older members.
        let as_read = self.without == Some(Rule::NotOlder) && asked.local != LocalHealth::Ready;
        let info = if as_read { &ask.as_read } else { &ask.info };
        let shipped = |asked| table::decide(info, snapshot, asked);
        let decision = shipped(asked);
        let Some(rule) = self.without else { return decision };
        let (action, reason) = (decision.action, decision.reason);
        let with = |action| Decision { action, ..decision };
        let passing = Decision { on_not_found: OnNotFound::PassThrough, ..decision };
        let local = Action::Local { nopeer: false };
        match (rule, reason) {
            (Rule::MergedDiscovery, Reason::DiscoveryMerged) => with(local),
            (Rule::DiscoveryWaits, Reason::Starting) => with(Action::Answer),
            (Rule::OwnDiscovery, Reason::DiscoveryLocal) => with(Action::Answer),
            (Rule::OwnPaths, Reason::NonResource) if asked.local != LocalHealth::Ready => {
                with(Action::AskAny)
            }
            (Rule::ServedLocally, Reason::ServedLocally) => with(Action::Refuse),
            (Rule::ServedByPeer, Reason::ServedByPeer) => Decision { action: local, ..passing },
            (Rule::OneHop, _) if asked.origin != Origin::Client => {
                shipped(Asked { origin: Origin::Client, ..asked })
            }
            (Rule::UnlistedDoubted, Reason::Unlisted) => passing,
            (Rule::ConfirmedSince, _) => shipped(Asked { arrived: Timestamp::default(), ..asked }),
            (Rule::UnconfirmedRefused, Reason::Unconfirmed)
            | (Rule::LocalUnseenRefused, Reason::LocalViewUnknown)
            | (Rule::RecordedRefused, Reason::Recorded) => match action {
                Action::Refuse if !asked.denials.is_empty() => with(Action::PassNotFound),
                _ => passing,
            },
            (Rule::PeersWhileDown, Reason::LocalDown | Reason::LocalNotReady) => match action {
                Action::Peers(_) => with(Action::Refuse),
                _ => decision,
            },
            (Rule::LocalDenialDoubted, Reason::ServedLocally) => passing,
            (Rule::PeerDenialDoubted, _) if matches!(action, Action::Peers(_)) => passing,
            (Rule::AskAny, _) if matches!(action, Action::AskAny) => with(Action::Refuse),
            (Rule::VerbUnlisted, Reason::VerbUnlisted) => with(Action::Refuse),
            _ => decision,
        }
    }

    /// How far a request came.
    pub(super) fn stage(self, stage: Stage) -> Stage {
        match (self.without, stage) {
            (Some(Rule::SentOnce), Stage::Exchange) => Stage::Refused,
            (_, stage) => stage,
        }
    }

    /// What a 404 that does not tell proves.
    pub(super) fn found_in_vague(self) -> NotFound {
        match self.without {
            Some(Rule::VagueProcessed) => NotFound::Unrouted,
            _ => NotFound::Unclear,
        }
    }

    /// Whether the retry budget pays for a retry.
    pub(super) fn has_budget(self) -> bool {
        self.without != Some(Rule::ReadRetried)
    }

    /// How long a member that left is remembered.
    pub(super) fn forget_after(self) -> Duration {
        match self.without {
            Some(Rule::Remembered) => Duration::ZERO,
            _ => ControlSettings::default().forget_after,
        }
    }
}
