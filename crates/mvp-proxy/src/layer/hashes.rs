//! The hashes of storage versions in `/apis/G/V` and `/api/v1`: those of the server that consented,
//! and for what it does not serve those of the first peer that does. Aggregated documents do not have
//! them (docs/decisions/0014). Entry item: [`Exchange::with_hashes`].

use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use mvp_core::Snapshot;
use mvp_core::discovery::Listed;
use mvp_core::discovery::negotiate::Encoding;
use mvp_core::member::Member;
use mvp_core::snapshot::Document;
use tokio::time::timeout;

use super::answer;
use super::consent::Consent;
use super::exchange::Exchange;
use crate::body::Body;

/// The time limit for the list of a server. A response without hashes is better than none.
const LIMIT: Duration = Duration::from_secs(1);
/// How many peers are asked for one document.
const MAX_PEERS: usize = 3;

/// Reads what the server that consented lists: nothing if it does not serve the version, and `None`
/// if its document cannot be read.
pub(super) async fn listed(consent: &mut Consent, encoding: Encoding) -> Option<Listed> {
    match consent.response.status() {
        StatusCode::NOT_FOUND => Some(Listed::default()),
        _ => {
            let body = std::mem::replace(consent.response.body_mut(), Body::empty());
            read(body, encoding).await
        }
    }
}

async fn read(body: Body, encoding: Encoding) -> Option<Listed> {
    let read = timeout(LIMIT, Limited::new(body, Listed::MAX_BYTES).collect()).await;
    Listed::parse(read.ok()?.ok()?.to_bytes(), encoding)
}

impl Exchange<'_> {
    /// The document of a version with the hashes of its storage versions. `own` is what the server
    /// that consented lists. With `nopeer` nobody else counts.
    pub(super) async fn with_hashes(
        &self,
        (group, version): (&str, &str),
        document: &Document,
        own: Listed,
        snapshot: &Snapshot,
        nopeer: bool,
    ) -> Option<Document> {
        let mut peers = Vec::new();
        if !nopeer && self.may_ask_peers() {
            peers = snapshot.first_candidates(group, version, &own);
            peers.retain(|member| self.peers.is_healthy(member));
            peers.truncate(MAX_PEERS);
        }
        let asked = join_all(peers.into_iter().map(|member| self.list_of(member))).await;
        let lists: Vec<Listed> = std::iter::once(own).chain(asked.into_iter().flatten()).collect();
        document.with_hashes(&lists)
    }

    /// What a peer lists for the version, with the caller's own credentials.
    async fn list_of(&self, member: &Member) -> Option<Listed> {
        let json = HeaderValue::from_static(Encoding::Json.media_type());
        let request = |_: &Member| answer::probe(&self.request.parts, json.clone(), None);
        let asked = timeout(LIMIT, self.peers.ask_one(member, request)).await;
        let response: Response<Body> = asked.ok()?.ok()?.1;
        if response.status() != StatusCode::OK {
            return None;
        }
        read(response.into_body(), Encoding::Json).await
    }
}
