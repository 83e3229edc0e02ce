//! How the control loop reaches members. The outcome of each request counts for their health.

use std::sync::Arc;

use http::{Request, Response};
use mvp_core::member::{Member, MemberKind};

use crate::ask::{Ask, AskError};
use crate::body::Body;
use crate::error::{SendError, Stage};
use crate::gateway::Refusal;
use crate::local::{LocalSlot, SharedLocal};
use crate::peers::{Answered, Health};
use crate::upstream::{Forwarder, Target};

/// Finds the way to a member.
pub(crate) trait Reach: Send + 'static {
    /// The way to a member.
    type Ask: Ask + Clone + 'static;

    /// The way to this member: the local server, or a peer by its address. `None` if there is none.
    fn reach(&self, member: &Member) -> Option<Self::Ask>;

    /// Drops whatever is kept about a member that is forgotten.
    fn forget(&self, _id: &str) {}
}

/// The local server through the service that the layer is in front of, peers through connections.
#[derive(Debug)]
pub(crate) struct Reachable {
    /// The ID and the slot of the local server.
    pub(crate) local: Option<(Arc<str>, LocalSlot)>,
    /// The connections to peers, and their health. Without them only the local server is asked.
    pub(crate) peers: Option<(Arc<Forwarder>, Health)>,
}

/// A member, ready to be asked.
#[derive(Debug, Clone)]
pub(crate) enum Reached {
    /// The local server.
    Local(SharedLocal),
    /// A peer.
    Peer(Arc<Forwarder>, Health, Arc<Target>),
}

impl Ask for Reached {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let (forwarder, health, target) = match self {
            Reached::Local(local) => return local.ask(request).await,
            Reached::Peer(forwarder, health, target) => (forwarder, health, target),
        };
        let sent = forwarder.send(target, request).await;
        let member = health.of(&target.id);
        match &sent {
            Ok(response)
                if target.kind == MemberKind::Mvp
                    && Refusal::of(response.headers()) == Some(Refusal::Down) =>
            {
                health.failed(&target.id, &member, Stage::Refused);
            }
            Ok(_) => health.answered(&target.id, &member, Answered::Probe),
            // Other failures prove nothing: a connection may close while it is idle.
            Err(error) if error.stage == Stage::Connect => {
                health.failed(&target.id, &member, Stage::Connect);
            }
            Err(_) => {}
        }
        sent.map_err(|error: SendError| AskError::new(format!("{}: {}", error.stage, error.cause)))
    }
}

impl Reach for Reachable {
    type Ask = Reached;

    fn reach(&self, member: &Member) -> Option<Reached> {
        if let Some((local, slot)) = &self.local
            && *local == member.id
        {
            return slot.get().map(Reached::Local);
        }
        let target = Target::peer(member)?;
        let (forwarder, health) = self.peers.as_ref()?;
        Some(Reached::Peer(Arc::clone(forwarder), health.clone(), Arc::new(target)))
    }

    fn forget(&self, id: &str) {
        if let Some((_, health)) = &self.peers {
            health.forget(id);
        }
    }
}
