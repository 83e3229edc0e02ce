//! The source of members of a simulation: like Leases, each written by a gateway through its own
//! server, and read by the others through theirs. Entry items: [`Board`], [`Leases`].
//!
//! The times in Leases are those of their writers' clocks, which are wrong by up to an hour. As in
//! `mvp-membership`, a heartbeat is a change that the reader sees: no two clocks are compared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use tokio::sync::watch;
use tokio::time::sleep;

use super::gateway;
use super::log::{Log, name};
use super::network::{Node, address};
use super::random::Random;
use super::server;
use crate::control::{Clock, MemberRecord, Membership, Roster};

/// How often a gateway renews its Lease, as in `mvp-membership`.
const HEARTBEAT: Duration = Duration::from_secs(5);
const READS: Duration = Duration::from_millis(400);

/// The Leases in the storage: by node, the time that its gateway wrote last. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Board(Arc<Mutex<BTreeMap<Node, Duration>>>);

impl Board {
    /// Every gateway of these nodes has written its Lease.
    pub(super) fn of(nodes: impl Iterator<Item = Node>) -> Board {
        Board(Arc::new(Mutex::new(nodes.map(|node| (node, Duration::ZERO)).collect())))
    }

    /// Renews the Lease of a gateway forever, while its server is up.
    pub(super) async fn keep(self, node: Node, log: Log, mut random: Random) {
        let skew = random.millis(0..3_600_000);
        loop {
            if log.is_up(node) {
                self.0.lock().unwrap().insert(node, log.now() + skew);
                sleep(HEARTBEAT).await;
            } else {
                sleep(READS).await;
            }
        }
    }

    /// Reads the Leases of others than `node` forever, while the server of the node `through` is up.
    pub(super) async fn read(
        self,
        node: Node,
        through: Node,
        log: Log,
        clock: Clock,
        seen: Sender,
    ) {
        let mut beats: BTreeMap<Node, (Duration, Timestamp)> = BTreeMap::new();
        loop {
            sleep(READS).await;
            if !log.is_up(through) {
                continue;
            }
            for (member, mark) in &*self.0.lock().unwrap() {
                let beat = beats.entry(*member).or_insert((*mark, clock.now()));
                if beat.0 != *mark {
                    *beat = (*mark, clock.now());
                }
            }
            let heard = beats.iter().filter(|(member, _)| **member != node);
            let heard: Heard = heard.map(|(member, (_, heard))| (*member, *heard)).collect();
            seen.send_if_modified(|known| {
                let is_new = known.as_ref().is_none_or(|known| !known.keys().eq(heard.keys()));
                *known = Some(heard);
                is_new
            });
        }
    }
}

type Heard = BTreeMap<Node, Timestamp>;
pub(super) type Sender = watch::Sender<Option<Heard>>;

/// The members that a gateway knows.
#[derive(Debug)]
pub(super) struct Leases {
    /// `None` before they were read.
    pub(super) heard: watch::Receiver<Option<Heard>>,
    /// Servers without a gateway, which another source names.
    pub(super) bare: Vec<Node>,
}

impl Membership for Leases {
    fn roster(&self) -> Roster {
        let heard = self.heard.borrow();
        let gateways = heard
            .iter()
            .flatten()
            .map(|(node, heard)| record(*node, gateway::PORT, MemberKind::Mvp, Some(*heard)));
        let bare = self.bare.iter().map(|node| record(*node, server::PORT, MemberKind::Bare, None));
        Roster { members: gateways.chain(bare).collect(), complete: heard.is_some() }
    }

    async fn changed(&mut self) {
        if self.heard.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

fn record(node: Node, port: u16, kind: MemberKind, heard: Option<Timestamp>) -> MemberRecord {
    let address = Some(address(node, port).to_string().into());
    MemberRecord { name: name(node).into(), address, kind, heard }
}
