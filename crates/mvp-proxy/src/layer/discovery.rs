//! Row 1: discovery is answered from the snapshot, if the local server consents.

use std::sync::Arc;

use http::{Response, StatusCode};
use mvp_core::discovery::negotiate::{Encoding, Negotiated};
use mvp_core::member::Member;
use mvp_core::request::DiscoveryPath;
use mvp_core::snapshot::Document;
use mvp_core::{RequestInfo, Snapshot};

use super::answer;
use super::exchange::Exchange;
use super::hashes::listed;
use super::progress::Attempt;
use super::renew::Evidence;
use crate::body::Body;
use crate::local::Local;
use crate::metrics::ServedBy;

/// A 404 for something that no member lists any more. It proves nothing yet.
struct Gone {
    /// The ID of the server that sent it.
    by: Arc<str>,
    response: Response<Body>,
}

impl Exchange<'_> {
    /// Answers a request for discovery or OpenAPI for the whole cluster.
    pub(super) async fn answer(&self, snapshot: &Snapshot, local: &mut Local) -> Attempt {
        let answered = match &self.info {
            RequestInfo::Discovery(path) => self.answer_discovery(path, snapshot, local).await,
            RequestInfo::OpenApi(path) => Ok(self.answer_openapi(path, snapshot, local).await),
            _ => Ok(self.pass_to_local(local).await),
        };
        match answered {
            Ok(response) => Attempt::Answered { by: ServedBy::Snapshot, member: None, response },
            Err(Gone { by, response }) => {
                Attempt::NotFound { member: Some(by), response, unrouted: true }
            }
        }
    }

    async fn answer_discovery(
        &self,
        path: &DiscoveryPath<'_>,
        snapshot: &Snapshot,
        local: &mut Local,
    ) -> Result<Response<Body>, Gone> {
        let parts = &self.request.parts;
        let mut accepted = answer::accepted_with_cbor(&parts.headers, path);
        let wants_cbor = accepted.is_some_and(|accepted| accepted.encoding == Encoding::Cbor);
        if wants_cbor && !self.has_cbor(path, snapshot, local).await {
            accepted = answer::accepted(&parts.headers, path);
        }
        let Some(accepted) = accepted else {
            // The local server may have a form that we do not. Its 404 is no answer: a peer may
            // serve the group.
            let response = self.pass_to_local(local).await;
            let denied = response.status() == StatusCode::NOT_FOUND;
            return Ok(if denied { answer::not_acceptable() } else { response });
        };
        let Negotiated { form, encoding, nopeer } = accepted;
        if document(snapshot, path, accepted).is_none() {
            return Ok(self.pass_to_local(local).await);
        }
        let probe = |member: &Member| answer::discovery_probe(parts, path, encoding, member);
        let consents = |status| answer::consents(status, path);
        let mut consent = match self.consent(snapshot, local, probe, consents).await {
            Ok(consent) => consent,
            Err(response) => return Ok(response),
        };
        let view_document = path.part().into();
        let version = match path {
            DiscoveryPath::GroupVersion(group, version) if path.aggregated().is_none() => {
                Some((&**group, &**version))
            }
            _ => None,
        };
        let own = match version {
            Some(_) => listed(&mut consent, answer::probed(encoding)).await,
            None => None,
        };
        let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
        let renewed = if root && snapshot.local().is_none() {
            Some(self.renewed_from_all(view_document).await)
        } else {
            let evidence = match root {
                true => Evidence::of_tag(&consent, snapshot, view_document),
                false => Evidence::of_contents(&consent, snapshot, path, own.as_ref()),
            };
            self.renewed(view_document, snapshot, &consent.by, evidence).await
        };
        let snapshot = renewed.as_deref().unwrap_or(snapshot);
        let Some(document) = document(snapshot, path, accepted) else {
            let (by, response) = (consent.by, consent.response);
            if response.status() == StatusCode::NOT_FOUND {
                return Err(Gone { by, response });
            }
            return Ok(self.pass_to_local(local).await);
        };
        let hashed = match (version, own) {
            (Some(of), Some(own)) => self.with_hashes(of, document, own, snapshot, nopeer).await,
            // Without the server's own list, nothing is known.
            _ => None,
        };
        let document = hashed.as_ref().unwrap_or(document);
        let answer = answer::answer(parts, document, form, encoding);
        Ok(answer.unwrap_or_else(answer::not_acceptable))
    }

    /// Whether the server that would consent gives discovery as CBOR.
    async fn has_cbor(
        &self,
        path: &DiscoveryPath<'_>,
        snapshot: &Snapshot,
        local: &mut Local,
    ) -> bool {
        let probe = |member: &Member| answer::cbor_probe(&self.request.parts, path, member);
        let probed = self.consent(snapshot, local, probe, |_| true).await;
        probed.is_ok_and(|consent| answer::has_cbor(&consent.response))
    }
}

fn document<'a>(
    snapshot: &'a Snapshot,
    path: &DiscoveryPath<'_>,
    accepted: Negotiated,
) -> Option<&'a Document> {
    match accepted.nopeer {
        true => snapshot.own_document(path, accepted.form),
        false => snapshot.document(path, accepted.form),
    }
}
