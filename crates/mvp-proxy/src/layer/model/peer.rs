//! The gateway in front of a peer: everything that it may answer to a request that was proxied to it.
//! It runs the same rules on every view that it may have. Entry item: [`outcomes`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use mvp_core::decide::{LocalHealth, Origin};
use mvp_core::member::{Member, MemberKind, Presence, Seen, View};
use mvp_core::snapshot::{Inputs, Policy};
use mvp_core::{Snapshot, Timestamp};

use super::super::progress::Mark;
use super::bits::Bits;
use super::cluster::{Ask, B, IDS, Life, Reply, Version};
use super::invariants::Violation;
use super::outcome::{Came, End, Failure};
use super::request::{Gateway, Phase, Request};
use super::rules::{Rule, Rules};
use crate::gateway::{Refusal, is_lost, mark_lost, mark_refused};

/// A request at the gateway of a peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) rules: Rules,
    pub(super) ask: &'static Ask,
    /// The versions that its server has had, so that its view may be of any of them.
    pub(super) had: Bits,
    /// The same of the other members.
    pub(super) others: Bits,
    pub(super) insists: bool,
}

type Key = (Option<Rule>, &'static str, Bits, Bits, bool, Life);

/// Everything that the gateway may answer while its server is in this state.
pub(super) fn outcomes(peer: &Peer, life: Life) -> Result<Vec<Came>, Violation> {
    thread_local! {
        static KNOWN: RefCell<HashMap<Key, Vec<Came>>> = RefCell::default();
    }
    let key = (peer.rules.without, peer.ask.name, peer.had, peer.others, peer.insists, life);
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&key).cloned()) {
        return Ok(known);
    }
    let mut came = Vec::new();
    for own in versions(peer.had) {
        for others in versions(peer.others) {
            for refreshed in [true, false] {
                came.push(serve(peer, life, Views { own, others, refreshed })?);
            }
        }
    }
    came.sort();
    came.dedup();
    KNOWN.with_borrow_mut(|known| known.insert(key, came.clone()));
    Ok(came)
}

fn versions(bits: Bits) -> impl Iterator<Item = Version> {
    Version::ALL.into_iter().filter(move |version| bits.has(*version as usize))
}

/// What the gateway knows, and whether its wait for fresh views succeeds.
#[derive(Clone, Copy)]
struct Views {
    own: Version,
    others: Version,
    refreshed: bool,
}

const BEFORE: Timestamp = Timestamp::after_start(Duration::from_secs(100));
const ARRIVED: Timestamp = Timestamp::after_start(Duration::from_secs(101));
const AFTER: Timestamp = Timestamp::after_start(Duration::from_secs(102));

/// Serves the request, with a server that does not change meanwhile.
fn serve(peer: &Peer, life: Life, views: Views) -> Result<Came, Violation> {
    let stale = Arc::new(views.snapshot(views.own, BEFORE));
    let own = if let Life::Up(version) = life { version } else { views.own };
    let fresh = Arc::new(views.snapshot(own, AFTER));
    let gateway = |published| Gateway {
        rules: peer.rules,
        now: ARRIVED,
        local: Some(B),
        health: Cell::new(match life {
            Life::Up(_) => LocalHealth::Ready,
            Life::Starting(_) => LocalHealth::Unready,
            Life::Down(_) => LocalHealth::Unreachable,
        }),
        published,
        notes: None,
    };
    let mut request = Request::new(peer.ask, Origin::Peer, ARRIVED, &stale);
    request.insists = peer.insists;
    let at = gateway(&stale);
    request.decide(&at)?;
    let (mut processed, mut vague) = (false, false);
    loop {
        match request.phase {
            Phase::Sent { .. } => {
                let came = answer_of(peer.ask, life);
                processed |= came.is_processed();
                vague |= came == Came::Reply(Reply::Vague);
                request.answered(&at, came)?;
            }
            Phase::Refreshing { .. } if views.refreshed => request.refreshed(&gateway(&fresh))?,
            Phase::Refreshing { .. } => request.refreshed(&at)?,
            // To send it to a peer breaks an invariant, which `decide` returns.
            Phase::Choosing { .. } | Phase::Arrived => unreachable!("{:?}", request.phase),
            Phase::Done(end) => {
                return Ok(match as_seen(end, life, processed) {
                    Came::Reply(Reply::Unrouted) if vague => Came::Reply(Reply::Vague),
                    came => came,
                });
            }
        }
    }
}

fn answer_of(ask: &Ask, life: Life) -> Came {
    match life {
        Life::Up(version) => Came::Reply(ask.answered_by(version)),
        Life::Starting(_) => Came::Reply(Reply::Forbidden),
        Life::Down(_) => Came::Failed { stage: Failure::Connect, processed: false },
    }
}

/// How the sender understands a response: `Peers::unless_refused`.
fn as_seen(end: End, life: Life, processed: bool) -> Came {
    let mut response = Response::new(());
    match end.mark {
        Some(Mark::Refused) => mark_refused(&mut response, end.reason),
        Some(Mark::Lost) => mark_lost(&mut response),
        None => {}
    }
    let failed = |stage| Came::Failed { stage, processed };
    match (Refusal::of(response.headers()), end.status) {
        (Some(Refusal::Unready), _) => failed(Failure::Unready),
        (Some(Refusal::Down | Refusal::ThisRequest), _) => failed(Failure::Refused),
        (None, _) if is_lost(response.headers()) => failed(Failure::Exchange),
        (None, 200) => Came::Reply(Reply::Served(life.version())),
        (None, 403) => Came::Reply(Reply::Forbidden),
        (None, 404) => Came::Reply(Reply::Unrouted),
        (None, 405) => Came::Reply(Reply::NotAllowed),
        (None, _) => Came::Unmarked { processed },
    }
}

impl Views {
    fn snapshot(self, own: Version, confirmed: Timestamp) -> Snapshot {
        let member = |index: usize| {
            let version = if index == B { own } else { self.others };
            let seen = |list| Some(Seen { list, confirmed });
            let (api, apis) = (seen(Arc::default()), seen(version.document()));
            Member {
                id: IDS[index].into(),
                kind: MemberKind::Bare,
                address: Some(IDS[index].into()),
                presence: Presence::Present,
                joined: BEFORE,
                heard: confirmed,
                awaited: true,
                view: View { api, apis, release: version.release(), ..View::default() },
            }
        };
        let inputs = Inputs {
            members: (0..IDS.len()).map(member).collect(),
            members_known: true,
            local: Some(IDS[B].into()),
            extension_versions: Arc::default(),
            started: Timestamp::default(),
            now: confirmed,
            policy: Policy::default(),
        };
        Snapshot::build(inputs, None)
    }
}
