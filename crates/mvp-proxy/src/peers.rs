//! Peers: which of them gets a request, and the next one when that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::request::Parts;
use http::{Request, Response};
use mvp_core::decide::Candidates;
use mvp_core::member::{Member, Presence};
use mvp_core::{RequestInfo, Snapshot};

use crate::body::Body;
use crate::control::{Ask, MemberRecord, Reach};
use crate::data::tunnel::is_asked_for;
use crate::data::{Forwarder, Replay, Target, server_name};
use crate::error::{SendError, Stage};
use crate::local::{LocalSlot, SharedLocal};
use crate::metrics::Metrics;

/// The way to peers.
#[derive(Debug, Clone)]
pub struct Peers {
    forwarder: Arc<Forwarder>,
    metrics: Arc<Metrics>,
    next: Arc<AtomicUsize>,
}

impl Peers {
    /// Peers over these connections.
    pub fn new(forwarder: Arc<Forwarder>, metrics: Arc<Metrics>) -> Peers {
        Peers { forwarder, metrics, next: Arc::default() }
    }

    /// Sends a request to the best candidate, and to the next where that cannot have processed it.
    /// Fails with what was tried.
    pub(crate) async fn send(
        &self,
        candidates: &Candidates<'_>,
        info: &RequestInfo<'_>,
        parts: &Parts,
        body: &Replay,
    ) -> Result<(Arc<str>, Response<Body>), Vec<String>> {
        let mut members: Vec<&Member> = candidates.iter().collect();
        let read = matches!(info, RequestInfo::Resource(request) if request.verb.is_read());
        if read && !members.is_empty() {
            // Reads are spread; writes go to the newest first.
            let turn = self.next.fetch_add(1, Ordering::Relaxed) % members.len();
            members.rotate_left(turn);
        }
        let replayable = replayable(info) && !is_asked_for(parts);
        self.send_to(members, replayable, parts, body).await
    }

    /// Sends a request to any member at all.
    pub(crate) async fn send_any(
        &self,
        snapshot: &Snapshot,
        parts: &Parts,
        body: &Replay,
    ) -> Result<(Arc<str>, Response<Body>), Vec<String>> {
        let mut members: Vec<&Member> =
            snapshot.members().filter(|member| member.presence == Presence::Present).collect();
        if !members.is_empty() {
            let turn = self.next.fetch_add(1, Ordering::Relaxed) % members.len();
            members.rotate_left(turn);
        }
        self.send_to(members, false, parts, body).await
    }

    async fn send_to(
        &self,
        members: Vec<&Member>,
        replayable: bool,
        parts: &Parts,
        body: &Replay,
    ) -> Result<(Arc<str>, Response<Body>), Vec<String>> {
        let mut tried: Vec<String> = Vec::new();
        let mut replayed = false;
        let mut members = members.into_iter();
        let mut next = members.next();
        while let Some(member) = next {
            let Some(target) = target(member) else {
                next = members.next();
                continue;
            };
            let Some(body) = body.attempt() else { break };
            let request = Request::from_parts(parts.clone(), body);
            let passed_on = self.metrics.passed_on();
            let error = match self.forwarder.send(&target, request).await {
                Ok(response) => {
                    let response = response.map(|body| body.keeping(passed_on));
                    return Ok((Arc::clone(&member.id), response));
                }
                Err(error) => error,
            };
            tracing::warn!(%error, "a peer gave no answer");
            // What a leaving server gave back may go to its successor, once.
            let again = error.stage == Stage::NotSent && !tried.iter().any(|id| **id == *member.id);
            tried.push(error.member.to_string());
            // What may have been processed goes to another member once at the most, and only if it
            // changes nothing.
            let may_go_on = error.stage.is_unprocessed() || (replayable && !replayed);
            replayed = replayed || !error.stage.is_unprocessed();
            if !may_go_on {
                break;
            }
            if !again {
                next = members.next();
            }
        }
        tried.dedup();
        Err(tried)
    }
}

/// Reads may be sent again; but what opens a way to a container or a backend is no read.
fn replayable(info: &RequestInfo<'_>) -> bool {
    matches!(info, RequestInfo::Resource(request)
        if request.verb.is_read()
            && !matches!(&*request.subresource, "exec" | "attach" | "portforward" | "proxy"))
}

fn target(member: &Member) -> Option<Target> {
    Some(Target {
        id: Arc::clone(&member.id),
        address: Arc::clone(member.address.as_ref()?),
        server_name: server_name(),
        kind: member.kind,
        local: false,
    })
}

/// How the control loop reaches members: the local one through the service that the layer is put
/// before, peers through connections of its own.
#[derive(Debug)]
pub struct Reachable {
    /// The local server's ID and place.
    pub local: Option<(Arc<str>, LocalSlot)>,
    /// Connections to peers; without them only the local server is asked.
    pub forwarder: Option<Arc<Forwarder>>,
}

/// A member, ready to be asked.
#[derive(Debug, Clone)]
pub enum Reached {
    /// The local server.
    Local(SharedLocal),
    /// A peer.
    Peer(Arc<Forwarder>, Arc<Target>),
}

impl Ask for Reached {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, String> {
        match self {
            Reached::Local(local) => local.ask(request).await,
            Reached::Peer(forwarder, target) => {
                let sent = forwarder.send(target, request).await;
                sent.map_err(|error: SendError| format!("{}: {}", error.stage, error.cause))
            }
        }
    }
}

impl Reach for Reachable {
    type Ask = Reached;

    fn reach(&self, id: &Arc<str>, record: Option<&MemberRecord>) -> Option<Reached> {
        if let Some((local, slot)) = &self.local
            && local == id
        {
            return slot.get().map(Reached::Local);
        }
        let record = record?;
        let target = Target {
            id: Arc::clone(id),
            address: Arc::clone(record.address.as_ref()?),
            server_name: server_name(),
            kind: record.kind,
            local: false,
        };
        Some(Reached::Peer(Arc::clone(self.forwarder.as_ref()?), Arc::new(target)))
    }
}
