//! Keeps discovery as fresh as the server behind it: a client that has seen an API at the local server
//! must find it in the merged document.
//!
//! The probe for consent carries the entity tag of our view. If the server answers with another one,
//! our view is out of date: that document is fetched again before the answer, in at most [`WAIT`]. A
//! load balancer has no local server: all healthy members are asked. Entry item:
//! [`Exchange::renewed`].

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::ETAG;
use mvp_core::Snapshot;
use mvp_core::discovery::Listed;
use mvp_core::member::{Member, Presence, View, ViewDocument};
use mvp_core::request::DiscoveryPath;

use super::consent::Consent;
use super::exchange::Exchange;

/// How long a request waits for the new document.
const WAIT: Duration = Duration::from_secs(1);

/// What the response to a probe tells about our view of a server.
pub(super) enum Evidence {
    /// The view is as the server answered, or nobody can tell.
    None,
    /// The view has another entity tag than this one.
    Tag(Box<str>),
    /// The server has what the view lacks, or lacks what the view has.
    Contents,
}

impl Evidence {
    /// Compares the response to a conditional probe with the view of the server that sent it.
    pub(super) fn of_tag(
        consent: &Consent,
        snapshot: &Snapshot,
        document: ViewDocument,
    ) -> Evidence {
        let known =
            snapshot.member_by_id(&consent.by).and_then(|member| member.view.etag(document));
        let tag = consent.response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
        match (known, tag) {
            (Some(known), Some(tag)) if consent.response.status() == StatusCode::OK => {
                if known == tag { Evidence::None } else { Evidence::Tag(tag.into()) }
            }
            // A server without tags, as all before 1.26.
            _ => Evidence::None,
        }
    }

    /// Compares the response to a probe for a document without a tag with the view.
    pub(super) fn of_contents(
        consent: &Consent,
        snapshot: &Snapshot,
        path: &DiscoveryPath<'_>,
        listed: Option<&Listed>,
    ) -> Evidence {
        let Some(view) = snapshot.member_by_id(&consent.by).map(|member| &member.view) else {
            return Evidence::None;
        };
        let served = consent.response.status() == StatusCode::OK;
        let agrees = match path {
            DiscoveryPath::Group(group) => served == has_group(view, group),
            DiscoveryPath::GroupVersion(group, version) => match view.version(group, version) {
                Some(known) => served && listed.is_none_or(|listed| listed.agrees(known)),
                None => !served,
            },
            _ => true,
        };
        if agrees { Evidence::None } else { Evidence::Contents }
    }
}

impl Exchange<'_> {
    /// A newer snapshot to answer from, if the view of the server `by` that consented is out of date.
    /// `None` if the present one is good. Only the local server is waited for, never a peer of it.
    pub(super) async fn renewed(
        &self,
        document: ViewDocument,
        snapshot: &Snapshot,
        by: &Arc<str>,
        evidence: Evidence,
    ) -> Option<Arc<Snapshot>> {
        if snapshot.local().is_some_and(|local| local.id != *by) {
            return None;
        }
        let since = self.request.at;
        let settled = |snapshot: &Snapshot| {
            let view = snapshot.member_by_id(by).map(|member| &member.view);
            view.is_none_or(|view| match &evidence {
                Evidence::None => true,
                Evidence::Tag(tag) if view.etag(document) == Some(tag) => true,
                _ => *view.asked.of(document) >= since,
            })
        };
        if settled(snapshot) {
            return None;
        }
        let of = Some(Arc::clone(by));
        Some(self.shared.reader.refresh_document(document, of, WAIT, settled).await)
    }

    /// A snapshot in which every healthy member has been asked for this document since the request
    /// arrived, for a load balancer: a client may have seen an API at any of them.
    pub(super) async fn renewed_from_all(&self, document: ViewDocument) -> Arc<Snapshot> {
        let since = self.request.at;
        let was_asked = |member: &Member| {
            let waited_for = member.presence == Presence::Present
                && member.address.is_some()
                && *member.view.asked.of(document) != Default::default()
                && self.peers.is_healthy(member);
            !waited_for || *member.view.asked.of(document) >= since
        };
        let settled = |snapshot: &Snapshot| snapshot.members().all(was_asked);
        self.shared.reader.refresh_document(document, None, WAIT, settled).await
    }
}

fn has_group(view: &View, group: &str) -> bool {
    view.apis.as_ref().is_some_and(|seen| seen.list.group(group).is_some())
}
