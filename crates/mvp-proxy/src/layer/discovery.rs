//! Row 1: discovery is answered from the snapshot, if the local server consents.

use http::{Response, StatusCode};
use mvp_core::member::Member;
use mvp_core::request::DiscoveryPath;
use mvp_core::{RequestInfo, Snapshot};

use super::answer;
use super::exchange::Exchange;
use crate::body::Body;
use crate::local::Local;

impl Exchange<'_> {
    /// Answers a request for discovery or OpenAPI for the whole cluster.
    pub(super) async fn answer(&self, snapshot: &Snapshot, local: &mut Local) -> Response<Body> {
        match &self.info {
            RequestInfo::Discovery(path) => self.answer_discovery(path, snapshot, local).await,
            RequestInfo::OpenApi(path) => self.answer_openapi(path, snapshot, local).await,
            _ => self.pass_to_local(local).await,
        }
    }

    async fn answer_discovery(
        &self,
        path: &DiscoveryPath<'_>,
        snapshot: &Snapshot,
        local: &mut Local,
    ) -> Response<Body> {
        let parts = &self.request.parts;
        let Some(accepted) = answer::accepted(&parts.headers, path) else {
            // The local server may have a form that we do not. Its 404 is no answer: a peer may
            // serve the group.
            let response = self.pass_to_local(local).await;
            let denied = response.status() == StatusCode::NOT_FOUND;
            return if denied { answer::not_acceptable() } else { response };
        };
        let document = match accepted.nopeer {
            true => snapshot.own_document(path, accepted.form),
            false => snapshot.document(path, accepted.form),
        };
        let Some(document) = document else { return self.pass_to_local(local).await };
        let encoding = accepted.encoding;
        let probe = |member: &Member| answer::discovery_probe(parts, path, encoding, member);
        let consents = |status| answer::consents(status, path);
        match self.consent(snapshot, local, probe, consents).await {
            Ok(()) => answer::answer(parts, document, accepted.form, encoding)
                .unwrap_or_else(answer::not_acceptable),
            Err(response) => response,
        }
    }
}
