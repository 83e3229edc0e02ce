//! Turns: how many requests a member has in flight, and whose is next at the limit. Entry item:
//! [`Peers::take_turn`].

use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{Response, StatusCode};

use super::Peers;
use super::gate::Place;
use super::health::MemberHealth;
use super::order::Kind;
use crate::body::Body;
use crate::envelope::Lasting;
use crate::error::{SendError, Stage};
use crate::upstream::client::{Resource, Sticky};
use crate::upstream::{Outgoing, Target};

/// The limits of requests in flight to one member, of all workers together; 0 for none.
///
/// One user has at most three quarters of a limit. At it, or where a user has more than are left,
/// users take turns: a request waits for up to a second, then it is refused with 429.
/// `system:masters` never wait, and `system:nodes` have another quarter and every other turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerLimits {
    /// The limit of requests that end soon.
    pub requests: usize,
    /// The limit of watches, and of other requests that may last, such as logs that are followed.
    pub watches: usize,
}

impl PeerLimits {
    /// No limits.
    pub const NONE: PeerLimits = PeerLimits { requests: 0, watches: 0 };
}

impl Default for PeerLimits {
    fn default() -> PeerLimits {
        PeerLimits { requests: 2000, watches: 100_000 }
    }
}

/// What is the same for all attempts of a request.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) kind: Kind,
    /// The client's request; `None` for one of our own.
    pub(super) client: Option<&'a Parts>,
    pub(super) lasting: Option<Lasting>,
    /// Remembers the member that responds.
    pub(super) sticky: Option<(&'a Sticky, Resource)>,
}

impl<'a> Call<'a> {
    pub(super) fn of(outgoing: &Outgoing<'a>, kind: Kind) -> Call<'a> {
        Call { kind, client: Some(outgoing.parts), lasting: outgoing.lasting, sticky: None }
    }

    pub(super) fn lasts(&self) -> bool {
        self.kind == Kind::Watch || self.lasting.is_some()
    }
}

impl Peers {
    /// A place in flight to a member, once it is the user's turn.
    pub(super) async fn take_turn(
        &self,
        target: &Target,
        health: &MemberHealth,
        call: Call<'_>,
    ) -> Result<Place, SendError> {
        let flow = self.health.flows().of(call.client, &self.forwarder);
        let entered = health.gate(call.lasts()).enter(flow, self.health.now()).await;
        // Beside a slowed user, or for `system:masters`, a place may be free at once.
        match &entered {
            Ok(place) if place.waited() => self.metrics.took_turn(true),
            Ok(_) => {}
            Err(_) => self.metrics.took_turn(false),
        }
        entered.map_err(|refused| {
            let cause = format!("the API server {} is busy: {refused}", target.id);
            SendError::new(&target.id, Stage::Overloaded, cause)
        })
    }

    /// Notes whether a member has too many requests of this user.
    pub(super) fn note_load(
        &self,
        health: &MemberHealth,
        call: Call<'_>,
        place: &Place,
        response: &Response<Body>,
    ) {
        if response.status() != StatusCode::TOO_MANY_REQUESTS {
            place.served();
        } else if !call.lasts() && response.headers().contains_key(RETRY_AFTER) {
            let flow = self.health.flows().of(call.client, &self.forwarder);
            if health.gate(false).slow(flow, self.health.now()) {
                self.metrics.slowed();
            }
        }
    }
}
