//! Row 1: discovery is answered from the snapshot, if a server consents in its own name.

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
use crate::data::{answer, refuse};
use crate::peers::Peers;
use crate::status;

impl Exchange<'_> {
    /// Answers from the snapshot, if the local server consents; a peer while that is down, or not
    /// ready: a server that starts forbids what it will allow.
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
        // The documents of OpenAPI are the local server's for now.
        let RequestInfo::Discovery(path) = info else {
            return self.ask_local(local, false).await.unwrap_or_else(body_is_gone);
        };
        let accepted = answer::accepted(&self.parts.headers, path);
        let document = accepted
            .and_then(|accepted| Some((snapshot.document(path, accepted.form)?, accepted.form)));
        let Some((document, form)) = document else {
            // What we cannot give at all, the local server may be able to; but what a peer serves
            // is there, whatever it says.
            let response = self.ask_local(local, false).await.unwrap_or_else(body_is_gone);
            let denied = response.status() == StatusCode::NOT_FOUND;
            return if denied { status::not_acceptable() } else { response };
        };
        // What says that it was passed on is not passed on.
        let may_ask_peers = self.origin == Origin::Client;
        let mut tried = Vec::new();
        let mut said = None;
        let unready = self.local_health(None) == LocalHealth::Unready;
        if unready && may_ask_peers {
            said = self.consent_of_peers(path, snapshot, peers, &mut tried).await;
        }
        if said.is_none() {
            said = self.consent_of_local(path, snapshot, local).await;
        }
        if said.is_none() && !unready && may_ask_peers {
            said = self.consent_of_peers(path, snapshot, peers, &mut tried).await;
        }
        let Some(said) = said else {
            return refuse::refuse(info, Reason::LocalDown, &tried, &self.identity);
        };
        if !answer::consents(said.status(), path) {
            return said;
        }
        answer::answer(&self.parts, document, form)
    }

    /// The same of a peer; nothing where none says anything.
    async fn consent_of_peers(
        &self,
        path: &DiscoveryPath<'_>,
        snapshot: &Snapshot,
        peers: &Peers,
        tried: &mut Vec<String>,
    ) -> Option<Response<Body>> {
        let probe = |member: &Member| answer::probe(&self.parts, path, member);
        match peers.ask_any(snapshot, probe).await {
            Ok((_, said)) => Some(said),
            Err(failed) => {
                *tried = failed.tried;
                None
            }
        }
    }

    /// What the local server says to a request for discovery in the caller's name; nothing where it
    /// says nothing.
    async fn consent_of_local<S, R>(
        &self,
        path: &DiscoveryPath<'_>,
        snapshot: &Snapshot,
        local: &mut S,
    ) -> Option<Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        if self.local_health(None) == LocalHealth::Unreachable {
            return None;
        }
        let said = call(local, answer::probe(&self.parts, path, snapshot.local()?)).await;
        match self.lost(&said) {
            Some(_) => None,
            None => Some(said),
        }
    }
}
