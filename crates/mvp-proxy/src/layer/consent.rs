//! Consent: a caller gets a document of the whole cluster only if a server would give it its own. The
//! local server is asked with the caller's identity, or a peer while it is down or unready.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use mvp_core::Snapshot;
use mvp_core::decide::{LocalHealth, Origin, Reason};
use mvp_core::member::Member;

use super::exchange::{Arrived, Exchange, no_response, send_local};
use super::progress::body_gone;
use super::refuse::refuse;
use crate::body::Body;
use crate::envelope::Envelope;
use crate::error::SendError;
use crate::local::Local;
use crate::upstream::Outgoing;

/// A server's consent.
pub(super) struct Consent {
    /// The ID of the server.
    pub(super) by: Arc<str>,
    /// Its response to the probe.
    pub(super) response: Response<Body>,
}

impl Exchange<'_> {
    /// Asks whether the caller may have a document: `Ok`, or the response to give instead. An
    /// unready server is asked last, because one that starts forbids everything.
    pub(super) async fn consent(
        &self,
        snapshot: &Snapshot,
        local: &mut Local,
        probe: impl Fn(&Member) -> Request<Body>,
        consents: impl Fn(StatusCode) -> bool,
    ) -> Result<Consent, Response<Body>> {
        let mut tried = Vec::new();
        let mut response = None;
        let unready = self.local_health() == LocalHealth::Unready;
        if unready && self.may_ask_peers() {
            response = self.probe_peers(snapshot, &probe, &mut tried).await;
        }
        if response.is_none() {
            response = self.probe_local(snapshot, local, &probe).await;
        }
        if response.is_none() && !unready && self.may_ask_peers() {
            response = self.probe_peers(snapshot, &probe, &mut tried).await;
        }
        match response {
            None => Err(refuse(&self.info, Reason::LocalDown, &tried, &self.request.identity)),
            Some((by, response)) if consents(response.status()) => Ok(Consent { by, response }),
            Some((_, response)) => Err(response),
        }
    }

    /// Whether peers may be asked: a request is proxied once.
    pub(super) fn may_ask_peers(&self) -> bool {
        self.request.origin == Origin::Client
    }

    /// The local server's response; `None` if there is none.
    async fn probe_local(
        &self,
        snapshot: &Snapshot,
        local: &mut Local,
        probe: impl Fn(&Member) -> Request<Body>,
    ) -> Option<(Arc<str>, Response<Body>)> {
        let member = snapshot.local()?;
        let response = self.ask_local_for(probe(member), local).await?;
        Some((Arc::clone(&member.id), response))
    }

    /// A peer's response; `None` if none responds.
    async fn probe_peers(
        &self,
        snapshot: &Snapshot,
        probe: impl Fn(&Member) -> Request<Body>,
        tried: &mut Vec<String>,
    ) -> Option<(Arc<str>, Response<Body>)> {
        match self.peers.ask_any(snapshot, self.request.trace.as_ref(), probe).await {
            Ok(answered) => Some(answered),
            Err(failed) => {
                *tried = failed.tried();
                None
            }
        }
    }

    /// The local server's response to a request of our own; `None` if it is unreachable.
    pub(super) async fn ask_local_for(
        &self,
        request: Request<Body>,
        local: &mut Local,
    ) -> Option<Response<Body>> {
        if self.local_health() == LocalHealth::Unreachable {
            return None;
        }
        let request = Envelope { trace: self.request.trace.as_ref(), ..request.into() };
        let sent = local.send(request).await.or_else(SendError::into_response);
        sent.inspect_err(|error| self.local_failed(error)).ok()
    }

    /// The local server's response to the request as it is, or an error if it sends none.
    pub(super) async fn try_local(&self, local: &mut Local) -> Result<Response<Body>, SendError> {
        let Arrived { parts, body, trace, .. } = self.request;
        let outgoing = Outgoing { parts, body, lasting: None, trace: trace.as_ref() };
        let sent = send_local(local, &outgoing, false).await;
        let sent = sent.unwrap_or_else(|| Ok(body_gone())).or_else(SendError::into_response);
        sent.inspect_err(|error| self.local_failed(error))
    }

    /// Passes the request to the local server as it is.
    pub(super) async fn pass_to_local(&self, local: &mut Local) -> Response<Body> {
        self.try_local(local).await.unwrap_or_else(no_response)
    }
}
