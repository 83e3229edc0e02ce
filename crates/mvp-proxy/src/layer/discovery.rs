//! Row 1: what describes the API surface is answered by us, if a server consents in its own name.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body as HttpBody;
use mvp_core::decide::{LocalHealth, Origin, Reason};
use mvp_core::member::Member;
use mvp_core::request::DiscoveryPath;
use mvp_core::{RequestInfo, Snapshot};
use tower_service::Service;

use super::{Exchange, body_is_gone, call};
use crate::body::{Body, BodyError};
use crate::data::{Outgoing, answer, refuse};
use crate::peers::Peers;
use crate::status;

impl Exchange<'_> {
    /// Answers from the snapshot.
    pub(super) async fn answer<S, R>(
        &self,
        info: &RequestInfo<'_>,
        snapshot: &Snapshot,
        peers: &Peers,
        local: &mut S,
    ) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        match info {
            RequestInfo::Discovery(path) => {
                self.answer_discovery(info, path, snapshot, peers, local).await
            }
            RequestInfo::OpenApi(path) => {
                self.answer_openapi(info, path, snapshot, peers, local).await
            }
            _ => self.pass_to_local(local).await,
        }
    }

    async fn answer_discovery<S, R>(
        &self,
        info: &RequestInfo<'_>,
        path: &DiscoveryPath<'_>,
        snapshot: &Snapshot,
        peers: &Peers,
        local: &mut S,
    ) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let accepted = answer::accepted(&self.parts.headers, path);
        let Some(accepted) = accepted else {
            // What we cannot give at all, the local server may be able to; but what a peer serves
            // is there, whatever it says.
            let response = self.pass_to_local(local).await;
            let denied = response.status() == StatusCode::NOT_FOUND;
            return if denied { status::not_acceptable() } else { response };
        };
        let document = match accepted.nopeer {
            true => snapshot.own_document(path, accepted.form),
            false => snapshot.document(path, accepted.form),
        };
        let Some(document) = document else { return self.pass_to_local(local).await };
        let encoding = accepted.encoding;
        let probe = |member: &Member| answer::discovery_probe(&self.parts, path, encoding, member);
        let consents = |status| answer::consents(status, path);
        match self.consent(info, snapshot, peers, local, probe, consents).await {
            Ok(()) => answer::answer(&self.parts, document, accepted.form, encoding)
                .unwrap_or_else(status::not_acceptable),
            Err(said) => said,
        }
    }

    /// Whether the local server lets the caller have it, or a peer while that is down, or not
    /// ready: a server that starts forbids what it will allow. If not, what it says.
    pub(super) async fn consent<S, R>(
        &self,
        info: &RequestInfo<'_>,
        snapshot: &Snapshot,
        peers: &Peers,
        local: &mut S,
        probe: impl Fn(&Member) -> Request<Body>,
        consents: impl Fn(StatusCode) -> bool,
    ) -> Result<(), Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        // What says that it was passed on is not passed on.
        let may_ask_peers = self.origin == Origin::Client;
        let mut tried = Vec::new();
        let mut said = None;
        let unready = self.local_health(None) == LocalHealth::Unready;
        if unready && may_ask_peers {
            said = consent_of_peers(snapshot, peers, &probe, &mut tried).await;
        }
        if said.is_none() {
            said = self.consent_of_local(snapshot, local, &probe).await;
        }
        if said.is_none() && !unready && may_ask_peers {
            said = consent_of_peers(snapshot, peers, &probe, &mut tried).await;
        }
        match said {
            None => Err(refuse::refuse(info, Reason::LocalDown, &tried, &self.identity)),
            Some(said) if consents(said.status()) => Ok(()),
            Some(said) => Err(said),
        }
    }

    /// What the local server says in the caller's name; nothing where it says nothing.
    async fn consent_of_local<S, R>(
        &self,
        snapshot: &Snapshot,
        local: &mut S,
        probe: impl Fn(&Member) -> Request<Body>,
    ) -> Option<Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        if self.local_health(None) == LocalHealth::Unreachable {
            return None;
        }
        let said = call(local, probe(snapshot.local()?)).await;
        match self.lost(&said) {
            Some(_) => None,
            None => Some(said),
        }
    }

    /// Sends it to the local server as it is.
    pub(super) async fn pass_to_local<S, R>(&self, local: &mut S) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let outgoing = Outgoing { parts: &self.parts, body: &self.body, lasting: None };
        self.ask_local(local, &outgoing, false).await.unwrap_or_else(body_is_gone)
    }
}

/// What a peer says; nothing where none says anything.
async fn consent_of_peers(
    snapshot: &Snapshot,
    peers: &Peers,
    probe: impl Fn(&Member) -> Request<Body>,
    tried: &mut Vec<String>,
) -> Option<Response<Body>> {
    match peers.ask_any(snapshot, probe).await {
        Ok((_, said)) => Some(said),
        Err(failed) => {
            *tried = failed.tried;
            None
        }
    }
}
