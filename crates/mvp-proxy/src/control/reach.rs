//! How the control loop reaches members. What it finds out on the way tells how they do.

use std::sync::Arc;

use http::{Request, Response};
use mvp_core::member::{Member, MemberKind};

use super::{Ask, AskError, Reach};
use crate::body::Body;
use crate::error::{SendError, Stage};
use crate::gateway::Refusal;
use crate::local::{LocalSlot, SharedLocal};
use crate::peers::{Answered, Health};
use crate::upstream::{Forwarder, Target, server_name};

/// How the control loop reaches members: the local one through the service that the layer is put
/// before, peers through connections of its own.
#[derive(Debug)]
pub struct Reachable {
    /// The local server's ID and place.
    pub local: Option<(Arc<str>, LocalSlot)>,
    /// Connections to peers, and how those do; without them only the local server is asked.
    pub peers: Option<(Arc<Forwarder>, Health)>,
}

impl Reachable {
    /// How a member of a snapshot is asked.
    pub(crate) fn reach_member(&self, member: &Member) -> Option<Reached> {
        self.reach(member)
    }
}

/// A member, ready to be asked.
#[derive(Debug, Clone)]
pub enum Reached {
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
            // Only a missing way is a fault for sure: a connection may end while it rests.
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
        let target = Target {
            id: Arc::clone(&member.id),
            address: Arc::clone(member.address.as_ref()?),
            server_name: server_name(),
            kind: member.kind,
            local: false,
        };
        let (forwarder, health) = self.peers.as_ref()?;
        Some(Reached::Peer(Arc::clone(forwarder), health.clone(), Arc::new(target)))
    }

    fn forget(&self, id: &str) {
        if let Some((_, health)) = &self.peers {
            health.forget(id);
        }
    }
}
