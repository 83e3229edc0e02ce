//! The snapshot: one immutable value with the members, the APIs that each serves, and the merged
//! documents of all. The control loop builds it ([`Snapshot::build`]) and publishes it; a request
//! loads one at its start and keeps it.

mod build;
mod documents;
mod entry;
mod routes;

use std::cmp::Reverse;
use std::sync::Arc;

pub use build::{Inputs, Policy};
pub use documents::{Document, Encoded, etag};
pub(crate) use routes::{Provider, Route};

use crate::Timestamp;
use crate::discovery::negotiate::Form;
use crate::discovery::{Listed, Part};
use crate::member::{Member, Presence, ViewState};
use crate::openapi::{self, OpenApi};
use crate::recorded::Recorded;
use crate::request::{DiscoveryPath, OpenApiPath, RequestInfo, ResourceRequest};
use documents::MergedPart;
use entry::MemberEntry;
use routes::Routes;

/// The members of the cluster and the APIs that they serve, at one moment.
#[derive(Debug)]
pub struct Snapshot {
    members: Vec<MemberEntry>,
    local: Option<usize>,
    built: Timestamp,
    starting: bool,
    /// Whether the list of members is complete.
    members_known: bool,
    /// Whether 404s are withheld because it is not.
    members_awaited: bool,
    extension_versions: Arc<[(String, String)]>,
    merged: PerPart<Arc<MergedPart>>,
    /// The documents of the local server alone.
    own: PerPart<Arc<MergedPart>>,
    openapi: Arc<OpenApi>,
    routes: Arc<Routes>,
}

impl Snapshot {
    /// The members in the order of their IDs.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().map(|entry| &entry.member)
    }

    /// The local server.
    #[inline]
    pub fn local(&self) -> Option<&Member> {
        self.member(self.local?)
    }

    /// The member with this ID.
    pub fn member_by_id(&self, id: &str) -> Option<&Member> {
        self.members().find(|member| &*member.id == id)
    }

    /// The state of a member's view at the time of the snapshot.
    pub fn view_state(&self, id: &str) -> Option<ViewState> {
        self.members.iter().find(|entry| &*entry.member.id == id).map(|entry| entry.state)
    }

    /// The time at which the snapshot was built.
    pub fn built(&self) -> Timestamp {
        self.built
    }

    /// The members that block 404s about one half of the API surface: alive, but with an unknown or
    /// stale view of it.
    pub fn blocking(&self, part: Part) -> impl Iterator<Item = &Member> {
        let blocking = move |entry: &&MemberEntry| *entry.blocking.of(part);
        self.members.iter().filter(blocking).map(|entry| &entry.member)
    }

    /// The members that have not confirmed, in a fetch that began at `since` or later, which APIs they
    /// serve of one half of the API surface. While there is one, no 404 is proved. For a request, the
    /// half is [`RequestInfo::part`].
    pub fn unconfirmed(&self, part: Part, since: Timestamp) -> impl Iterator<Item = &Member> {
        self.members
            .iter()
            .filter(move |entry| *entry.accountable.of(part) && !entry.confirmed_since(part, since))
            .map(|entry| &entry.member)
    }

    /// The members for which a StorageVersion records the request, and whose own view of that half of
    /// the API surface was never seen. A record has no subresources, so it does not count for a
    /// resource that some member lists.
    pub fn recorded(&self, request: &RequestInfo<'_>) -> impl Iterator<Item = &Member> {
        let part = request.part();
        let records = move |recorded: &Recorded| match request {
            RequestInfo::Resource(request) => {
                recorded.has(&request.group, &request.version, &request.resource)
                    && self.route(request).is_none()
            }
            RequestInfo::Discovery(DiscoveryPath::Group(group)) => recorded.has_group(group),
            RequestInfo::Discovery(DiscoveryPath::GroupVersion(group, version)) => {
                recorded.has_version(group, version)
            }
            RequestInfo::OpenApi(OpenApiPath::V3Document(key)) => openapi::group_version(key)
                .is_some_and(|(group, version)| recorded.has_version(group, version)),
            _ => false,
        };
        self.members().filter(move |member| {
            member.view.part(part).is_none() && member.view.recorded.as_deref().is_some_and(records)
        })
    }

    /// The members that list a resource, newest release first.
    pub fn listing(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> impl Iterator<Item = &Member> {
        let route = self.routes.find(group, version, resource);
        let providers = route.into_iter().flat_map(|route| route.providers(""));
        providers.filter_map(|provider| self.member(provider.member as usize))
    }

    /// A merged discovery document; `None` if no member serves what it would describe, or if the path
    /// has no such form.
    pub fn document(&self, path: &DiscoveryPath<'_>, form: Form) -> Option<&Document> {
        self.merged.document(path, form)
    }

    /// As [`Snapshot::document`], for the local server alone.
    pub fn own_document(&self, path: &DiscoveryPath<'_>, form: Form) -> Option<&Document> {
        let part = path.part();
        self.local().filter(|local| local.view.part(part).is_some())?;
        self.own.document(path, form)
    }

    /// The members to ask for what another server does not list of a version: for each resource the
    /// first one that serves it and can be asked, newest release first.
    pub fn first_candidates(&self, group: &str, version: &str, listed: &Listed) -> Vec<&Member> {
        let resources = self.merged.of(Part::of_group(group)).resources(group, version);
        let askable =
            |member: &&Member| member.presence == Presence::Present && member.address.is_some();
        let mut members: Vec<&Member> = resources
            .iter()
            .filter(|resource| !listed.has(&resource.name))
            .filter_map(|resource| self.listing(group, version, &resource.name).find(askable))
            .collect();
        members.sort_by_key(|member| (Reverse(member.view.release), &member.id));
        members.dedup_by_key(|member| &member.id);
        members
    }

    /// The OpenAPI documents of the members.
    pub fn openapi(&self) -> &OpenApi {
        &self.openapi
    }

    /// Whether a member serves what a discovery path describes.
    pub(crate) fn describes(&self, path: &DiscoveryPath<'_>) -> bool {
        if path.aggregated().is_some() {
            return true;
        }
        match path {
            DiscoveryPath::Api | DiscoveryPath::Apis => true,
            DiscoveryPath::Group(group) => self.merged.apis.has_group(group),
            DiscoveryPath::GroupVersion(group, version) => {
                self.merged.of(Part::of_group(group)).has_version(group, version)
            }
        }
    }

    /// The members that serve the resource of a request.
    #[inline]
    pub(crate) fn route(&self, request: &ResourceRequest<'_>) -> Option<&Route> {
        self.routes.find(&request.group, &request.version, &request.resource)
    }

    #[inline]
    pub(crate) fn member(&self, index: usize) -> Option<&Member> {
        self.members.get(index).map(|entry| &entry.member)
    }

    #[inline]
    pub(crate) fn is_local(&self, index: usize) -> bool {
        self.local == Some(index)
    }

    /// Whether merged documents are withheld, shortly after the start, because a member has no view
    /// yet.
    pub fn is_incomplete_start(&self, part: Part) -> bool {
        let unseen = |member: &Member| member.view.part(part).is_none();
        let local_unseen = self.local().is_some_and(unseen);
        self.starting && (!self.members_known || local_unseen || self.blocking(part).any(unseen))
    }

    /// Whether there may be members that no source has reported yet. Then no 404 is proved, up to
    /// [`Policy::blocks_for`] after the start: a source that never reports must not block a cluster.
    pub fn awaits_members(&self) -> bool {
        self.members_awaited
    }

    /// Whether an APIService delegates this group and version to an extension server.
    pub fn is_extension(&self, group: &str, version: &str) -> bool {
        let is = |(g, v): &(String, String)| g == group && v == version;
        self.extension_versions.iter().any(is)
    }
}

/// A value for each of the two halves of the API surface.
#[derive(Debug)]
struct PerPart<T> {
    api: T,
    apis: T,
}

impl<T> PerPart<T> {
    fn new(make: impl Fn(Part) -> T) -> PerPart<T> {
        PerPart { api: make(Part::Api), apis: make(Part::Apis) }
    }

    fn of(&self, part: Part) -> &T {
        match part {
            Part::Api => &self.api,
            Part::Apis => &self.apis,
        }
    }
}
