//! The snapshot: one immutable value with the members, what each serves, and what all serve
//! together. The control loop builds one ([`Snapshot::build`]) and publishes it; a request pins
//! one at its start and never sees two.

mod documents;
mod routes;

use std::sync::Arc;
use std::time::Duration;

pub use documents::{Document, Encoded, etag};
pub(crate) use routes::{Provider, Route};

use crate::Timestamp;
use crate::discovery::Part;
use crate::discovery::negotiate::Form;
use crate::member::{Member, Presence, ViewState};
use crate::openapi::OpenApi;
use crate::recorded::Recorded;
use crate::request::{DiscoveryPath, OpenApiPath, RequestInfo, ResourceRequest};
use documents::MergedPart;
use routes::Routes;

/// What the cluster is and serves, at one moment.
#[derive(Debug)]
pub struct Snapshot {
    members: Vec<MemberEntry>,
    local: Option<usize>,
    built: Timestamp,
    starting: bool,
    /// Whether it is known who the members are.
    members_known: bool,
    /// Whether it is not, and that holds up answers.
    members_awaited: bool,
    extension_versions: Arc<[(String, String)]>,
    merged: PerPart<Arc<MergedPart>>,
    /// What the local server alone serves.
    own: PerPart<Arc<MergedPart>>,
    openapi: Arc<OpenApi>,
    routes: Arc<Routes>,
}

/// What a snapshot is built of.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Every member, remembered ones too, in any order. Of two with one ID the one heard of last
    /// counts.
    pub members: Vec<Member>,
    /// Whether these are all: sources of members may not have said anything yet.
    pub members_known: bool,
    /// The ID of the local server; a load balancer has none.
    pub local: Option<Arc<str>>,
    /// Groups and versions that an APIService hands to an extension server, whose 404s can say
    /// anything.
    pub extension_versions: Arc<[(String, String)]>,
    /// When this process started to look for members.
    pub started: Timestamp,
    /// The time.
    pub now: Timestamp,
    /// How long what counts.
    pub policy: Policy,
}

/// How long what counts.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// A view is fresh for so long after it was confirmed.
    pub fresh_for: Duration,
    /// A member without a sign of life for longer holds nothing up.
    pub heard_within: Duration,
    /// A member that could not be asked for longer holds nothing up: a dead or forged entry must
    /// not wedge a cluster.
    pub blocks_for: Duration,
    /// Merged documents are held back for so long after the start while a member was never seen.
    pub startup: Duration,
}

impl Policy {
    /// The default of [`Policy::heard_within`].
    pub const HEARD_WITHIN: Duration = Duration::from_secs(40);
    /// The default of [`Policy::blocks_for`].
    pub const BLOCKS_FOR: Duration = Duration::from_secs(300);
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            fresh_for: Duration::from_secs(5),
            heard_within: Policy::HEARD_WITHIN,
            blocks_for: Policy::BLOCKS_FOR,
            startup: Duration::from_secs(30),
        }
    }
}

/// One of each for the two halves of the API surface.
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

/// A member with what follows from its age.
#[derive(Debug)]
struct MemberEntry {
    member: Member,
    state: ViewState,
    accountable: PerPart<bool>,
    blocking: PerPart<bool>,
}

impl Snapshot {
    /// Builds a snapshot. What did not change since `previous` is taken over from it: documents are
    /// parsed once, and a round in which nothing changed costs next to nothing.
    pub fn build(inputs: Inputs, previous: Option<&Snapshot>) -> Snapshot {
        let mut members = inputs.members;
        members.sort_by(|a, b| (&a.id, b.heard, &a.address).cmp(&(&b.id, a.heard, &b.address)));
        members.dedup_by(|later, first| later.id == first.id);
        let local = inputs.local.and_then(|id| members.iter().position(|member| member.id == id));

        let merged = PerPart::new(|part| {
            let merged = merge(part, members.iter(), previous.map(|old| old.merged.of(part)));
            // What is asked for most is written before anybody asks.
            merged.root(part, Form::AggregatedV2);
            merged
        });
        let own = PerPart::new(|part| {
            let local = local.and_then(|local| members.get(local));
            merge(part, local.into_iter(), previous.map(|old| old.own.of(part)))
        });
        let same = |part: &Part| {
            previous.is_some_and(|old| Arc::ptr_eq(old.merged.of(*part), merged.of(*part)))
        };
        let surface_changed = !Part::ALL.iter().all(same);
        let openapi = OpenApi::build(&members, previous.map(|old| &old.openapi), surface_changed);
        let routes = match previous {
            Some(old)
                if old.routes_hold(&members, &merged)
                    && old.extension_versions == inputs.extension_versions =>
            {
                Arc::clone(&old.routes)
            }
            _ => Arc::new(Routes::build(&members, &inputs.extension_versions)),
        };

        let members = members
            .into_iter()
            .enumerate()
            .map(|(index, member)| {
                let is_local = local == Some(index);
                MemberEntry::new(member, is_local, inputs.now, &inputs.policy)
            })
            .collect();
        Snapshot {
            members,
            local,
            built: inputs.now,
            starting: inputs.now.since(inputs.started) < inputs.policy.startup,
            members_known: inputs.members_known,
            members_awaited: !inputs.members_known
                && inputs.now.since(inputs.started) <= inputs.policy.blocks_for,
            extension_versions: inputs.extension_versions,
            merged,
            own,
            openapi,
            routes,
        }
    }

    /// The members in the order of their IDs.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().map(|entry| &entry.member)
    }

    /// The local server.
    pub fn local(&self) -> Option<&Member> {
        self.member(self.local?)
    }

    /// The member of that ID.
    pub fn member_by_id(&self, id: &str) -> Option<&Member> {
        self.members().find(|member| &*member.id == id)
    }

    /// How far the view of a member could be relied upon when this was built.
    pub fn view_state(&self, id: &str) -> Option<ViewState> {
        self.members.iter().find(|entry| &*entry.member.id == id).map(|entry| entry.state)
    }

    /// When this was built.
    pub fn built(&self) -> Timestamp {
        self.built
    }

    /// The members that hold up answers about one half of the API surface: alive, but their view
    /// of it is unknown or too old.
    pub fn blocking(&self, part: Part) -> impl Iterator<Item = &Member> {
        let blocking = move |entry: &&MemberEntry| *entry.blocking.of(part);
        self.members.iter().filter(blocking).map(|entry| &entry.member)
    }

    /// The members that have yet to confirm, in a fetch begun after `since`, what they serve of one
    /// half of the API surface. While there are any, nobody knows that a thing is not served.
    pub fn unconfirmed(&self, part: Part, since: Timestamp) -> impl Iterator<Item = &Member> {
        self.members
            .iter()
            .filter(move |entry| {
                *entry.accountable.of(part) && !confirmed_since(entry, part, since)
            })
            .map(|entry| &entry.member)
    }

    /// The members that are recorded to serve what a request is for, which nobody lists, and whose
    /// own word on that half of the API surface was never heard. A record knows no subresources: of
    /// a resource that somebody lists it says nothing new.
    pub fn recorded(&self, request: &RequestInfo<'_>) -> impl Iterator<Item = &Member> {
        let part = match request {
            RequestInfo::Resource(request) => Part::of_group(&request.group),
            RequestInfo::Discovery(path) => path.part(),
            RequestInfo::OpenApi(OpenApiPath::V3Document(key)) if !key.starts_with("apis/") => {
                Part::Api
            }
            _ => Part::Apis,
        };
        let says = move |recorded: &Recorded| match request {
            RequestInfo::Resource(request) => {
                recorded.has(&request.group, &request.version, &request.resource)
                    && self.route(request).is_none()
            }
            RequestInfo::Discovery(DiscoveryPath::Group(group)) => recorded.has_group(group),
            RequestInfo::Discovery(DiscoveryPath::GroupVersion(group, version)) => {
                recorded.has_version(group, version)
            }
            RequestInfo::OpenApi(OpenApiPath::V3Document(key)) => match key.split_once('/') {
                Some(("apis", group_version)) => group_version
                    .split_once('/')
                    .is_some_and(|(group, version)| recorded.has_version(group, version)),
                Some(("api", version)) => recorded.has_version("", version),
                _ => false,
            },
            _ => false,
        };
        self.members().filter(move |member| {
            member.view.part(part).is_none() && member.view.recorded.as_deref().is_some_and(says)
        })
    }

    /// The members that list a resource, the newest first.
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

    /// A merged discovery document. Nothing where no member serves what it would describe, or
    /// where the path has no such form.
    pub fn document(&self, path: &DiscoveryPath<'_>, form: Form) -> Option<&Document> {
        self.merged.document(path, form)
    }

    /// The same of the local server alone.
    pub fn own_document(&self, path: &DiscoveryPath<'_>, form: Form) -> Option<&Document> {
        let part = path.part();
        self.local().filter(|local| local.view.part(part).is_some())?;
        self.own.document(path, form)
    }

    /// What members say about their schemas.
    pub fn openapi(&self) -> &OpenApi {
        &self.openapi
    }

    /// Whether some member serves what a discovery path describes.
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

    /// Who serves the resource of a request.
    pub(crate) fn route(&self, request: &ResourceRequest<'_>) -> Option<&Route> {
        self.routes.find(&request.group, &request.version, &request.resource)
    }

    pub(crate) fn member(&self, index: usize) -> Option<&Member> {
        self.members.get(index).map(|entry| &entry.member)
    }

    pub(crate) fn is_local(&self, index: usize) -> bool {
        self.local == Some(index)
    }

    /// Whether a merged document would lack a member that is still being asked for the first time.
    pub fn is_incomplete_start(&self, part: Part) -> bool {
        let unseen = |member: &Member| member.view.part(part).is_none();
        let local_unseen = self.local().is_some_and(unseen);
        self.starting && (!self.members_known || local_unseen || self.blocking(part).any(unseen))
    }

    /// Whether there may be members that nobody has named yet. While there may, nobody knows that a
    /// thing is not served; but a source that never says anything must not wedge a cluster.
    pub fn awaits_members(&self) -> bool {
        self.members_awaited
    }

    /// Whether an APIService hands this group and version to an extension server.
    pub fn is_extension(&self, group: &str, version: &str) -> bool {
        let is = |(g, v): &(String, String)| g == group && v == version;
        self.extension_versions.iter().any(is)
    }

    /// Routes name members by their place and prefer the newer, so both must be as they were.
    fn routes_hold(&self, members: &[Member], merged: &PerPart<Arc<MergedPart>>) -> bool {
        let key = |member: &Member| (Arc::clone(&member.id), member.view.release);
        Part::ALL.iter().all(|part| Arc::ptr_eq(self.merged.of(*part), merged.of(*part)))
            && self.members().map(key).eq(members.iter().map(key))
    }
}

/// What these members serve of one half of the API surface, taken over where it did not change.
fn merge<'a>(
    part: Part,
    members: impl Iterator<Item = &'a Member> + Clone,
    previous: Option<&Arc<MergedPart>>,
) -> Arc<MergedPart> {
    let sources = members.filter_map(|member| Some((&member.id, &member.view.part(part)?.list)));
    match previous {
        Some(old) if old.is_of(sources.clone()) => Arc::clone(old),
        _ => Arc::new(MergedPart::build(sources)),
    }
}

impl PerPart<Arc<MergedPart>> {
    fn document(&self, path: &DiscoveryPath<'_>, form: Form) -> Option<&Document> {
        if let Some(form) = path.aggregated() {
            return Some(self.apis.root(Part::Apis, form));
        }
        match path {
            DiscoveryPath::Api => Some(self.api.root(Part::Api, form)),
            DiscoveryPath::Apis => Some(self.apis.root(Part::Apis, form)),
            DiscoveryPath::Group(group) if form == Form::Legacy => self.apis.group(group),
            DiscoveryPath::GroupVersion(group, version) if form == Form::Legacy => {
                self.of(Part::of_group(group)).version(group, version)
            }
            _ => None,
        }
    }
}

impl MemberEntry {
    fn new(member: Member, is_local: bool, now: Timestamp, policy: &Policy) -> MemberEntry {
        let can_be_asked = !is_local
            && member.presence == Presence::Present
            && member.address.is_some()
            && now.since(member.heard) <= policy.heard_within;
        let accountable = PerPart::new(|part| {
            let known = member.view.part(part).map(|seen| seen.confirmed);
            // Who is back after a while may serve something new; as long as it is waited for.
            let back = if member.awaited { member.joined } else { Timestamp::default() };
            let silent_since = known.map_or(member.joined, |confirmed| confirmed.max(back));
            can_be_asked
                && (member.awaited || known.is_some())
                && now.since(silent_since) <= policy.blocks_for
        });
        let blocking = PerPart::new(|part| {
            let fresh = member
                .view
                .part(part)
                .is_some_and(|seen| now.since(seen.confirmed) <= policy.fresh_for);
            *accountable.of(part) && !fresh
        });
        MemberEntry {
            state: member.view.state(now, policy.fresh_for),
            member,
            accountable,
            blocking,
        }
    }
}

fn confirmed_since(entry: &MemberEntry, part: Part, since: Timestamp) -> bool {
    entry.member.view.part(part).is_some_and(|seen| seen.confirmed >= since)
}
