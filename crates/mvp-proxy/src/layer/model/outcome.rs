//! What comes of a request: of sending it, of one round, and in the end. The types of `progress` as
//! they can be copied, compared and hashed.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::{Response, StatusCode};
use mvp_core::decide::{Reason, Summary};
use mvp_core::discovery::negotiate::Form;
use mvp_core::request::DiscoveryPath;
use mvp_core::{Snapshot, Timestamp};

use super::super::progress::{Attempt, Mark, Next, Outcome, Served};
use super::bits::Bits;
use super::cluster::{IDS, Reply, Version};
use super::key::brief;
use crate::body::Body;
use crate::error::Stage;
use crate::metrics::ServedBy;

/// A round that was absorbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round {
    /// The failures of peers.
    pub(super) failures: [Option<Stage>; 4],
    pub(super) summary: Summary,
    pub(super) made: Made,
    pub(super) at: Timestamp,
}

/// What came of a round: an [`Attempt`] that can be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    Answered { by: ServedBy, status: u16 },
    NotFound { member: usize, unrouted: bool },
    Lost { stage: Stage },
    Unanswered,
    MustNotSend,
    Confirmed,
    Refused,
}

/// The state of `Peers::send_to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Sending {
    pub(super) left: Bits,
    pub(super) unready: Option<usize>,
    pub(super) insists: bool,
    /// Whether any member will do.
    pub(super) any: bool,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) status: u16,
    pub(super) by: ServedBy,
    pub(super) reason: Reason,
    pub(super) mark: Option<Mark>,
    /// The server that answered.
    pub(super) from: Option<usize>,
    /// The versions of the servers that a discovery document describes.
    pub(super) document: Option<Bits>,
}

/// What came of sending a request to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Came {
    Reply(Reply),
    /// No response. `processed`: the server processed a write.
    Failed {
        stage: Failure,
        processed: bool,
    },
    /// A 503 of another gateway that says nothing of what was processed.
    Unmarked {
        processed: bool,
    },
}

/// The stages that the model has, in an order that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Failure {
    Connect,
    Refused,
    Unready,
    Exchange,
}

impl From<Failure> for Stage {
    fn from(stage: Failure) -> Stage {
        match stage {
            Failure::Connect => Stage::Connect,
            Failure::Refused => Stage::Refused,
            Failure::Unready => Stage::Unready,
            Failure::Exchange => Stage::Exchange,
        }
    }
}

impl Made {
    /// What [`Progress`](super::super::progress::Progress) absorbs.
    pub(super) fn attempt(self) -> Attempt {
        let id = |member: usize| Some(Arc::from(IDS[member]));
        match self {
            Made::Answered { by, status } => {
                Attempt::Answered { by, member: None, response: response(status) }
            }
            Made::NotFound { member, unrouted } => {
                let (member, response) = (id(member), response(404));
                Attempt::NotFound { member, response, unrouted }
            }
            Made::Lost { stage } => {
                let (by, response) = (ServedBy::Local, response(503));
                Attempt::Lost { by, member: None, stage, response }
            }
            Made::Unanswered => Attempt::Unanswered { tried: Vec::new() },
            Made::MustNotSend => Attempt::MustNotSend,
            Made::Confirmed => Attempt::Confirmed,
            Made::Refused => Attempt::Refused { named: None },
        }
    }
}

impl End {
    pub(super) fn of(served: Served, from: Option<usize>, document: Option<Bits>) -> End {
        let Served { by, reason, outcome, mark, .. } = served;
        let status = match outcome {
            Outcome::Response(response) => response.status().as_u16(),
            Outcome::Refusal(_) => 503,
        };
        End { status, by, reason, mark, from, document }
    }
}

/// What comes next, in words.
pub(super) fn name_of(next: &Next) -> String {
    match next {
        Next::Done(_) => "done".to_owned(),
        Next::Again => "decide again".to_owned(),
        Next::Refresh => "wait for fresh views".to_owned(),
    }
}

fn response(status: u16) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

impl Came {
    /// Whether the server processed the request.
    pub(super) fn is_processed(self) -> bool {
        match self {
            Came::Reply(reply) => matches!(reply, Reply::Served(_) | Reply::Vague),
            Came::Failed { processed, .. } | Came::Unmarked { processed } => processed,
        }
    }
}

impl Round {
    pub(super) fn hash_into(&self, hasher: &mut impl Hasher) {
        let Round { failures, summary, made, .. } = self;
        (failures.map(|stage| stage.map(|stage| stage as u8)), brief(*summary)).hash(hasher);
        match *made {
            Made::Answered { by, status } => (0u8, by, status).hash(hasher),
            Made::NotFound { member, unrouted } => (1u8, member, unrouted).hash(hasher),
            Made::Lost { stage } => (2u8, stage as u8).hash(hasher),
            Made::Unanswered => 3u8.hash(hasher),
            Made::MustNotSend => 4u8.hash(hasher),
            Made::Confirmed => 5u8.hash(hasher),
            Made::Refused => 6u8.hash(hasher),
        }
    }
}

/// The versions of the servers whose APIs the merged document describes.
pub(super) fn described(snapshot: &Snapshot) -> Bits {
    let document = snapshot.document(&DiscoveryPath::Apis, Form::AggregatedV2);
    let text = document.map(|document| String::from_utf8_lossy(&document.json.body));
    let text = text.unwrap_or_default();
    let describes = |version: &Version| text.contains(version.own_group());
    Version::ALL.into_iter().filter(describes).map(|version| version as usize).collect()
}
