//! Building a snapshot: from members and their views to routes and merged documents. Entry item:
//! [`Snapshot::build`].

use std::sync::Arc;
use std::time::Duration;

use super::documents::MergedPart;
use super::entry::MemberEntry;
use super::routes::Routes;
use super::{PerPart, Snapshot};
use crate::Timestamp;
use crate::discovery::Part;
use crate::discovery::negotiate::Form;
use crate::member::Member;
use crate::openapi::OpenApi;

/// The input of [`Snapshot::build`].
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Every member, in any order, including those that left and are remembered. Of two with the
    /// same ID, the one heard from last counts.
    pub members: Vec<Member>,
    /// Whether `members` is complete. It is not before every membership source has reported.
    pub members_known: bool,
    /// The ID of the local server; `None` for a load balancer.
    pub local: Option<Arc<str>>,
    /// The groups and versions that an APIService delegates to an extension server. The 404s of
    /// extension servers can have any body.
    pub extension_versions: Arc<[(String, String)]>,
    /// The time at which this process started to look for members.
    pub started: Timestamp,
    /// The current time.
    pub now: Timestamp,
    /// The time limits.
    pub policy: Policy,
}

/// The time limits of a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How long a view stays fresh after it was confirmed.
    pub fresh_for: Duration,
    /// How long a member without a heartbeat still blocks 404s.
    pub heard_within: Duration,
    /// How long a member that cannot be asked blocks 404s. A dead or forged entry must not block a
    /// cluster forever.
    pub blocks_for: Duration,
    /// How long after the start merged documents are withheld while a member has no view yet.
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

impl Snapshot {
    /// Builds a snapshot. It reuses the parts of `previous` that did not change, so a round without
    /// changes costs next to nothing.
    pub fn build(inputs: Inputs, previous: Option<&Snapshot>) -> Snapshot {
        let mut members = inputs.members;
        members.sort_by(|a, b| (&a.id, b.heard, &a.address).cmp(&(&b.id, a.heard, &b.address)));
        members.dedup_by(|later, first| later.id == first.id);
        let local = inputs.local.and_then(|id| members.iter().position(|member| member.id == id));

        let merged = PerPart::new(|part| {
            let merged = merge(part, members.iter(), previous.map(|old| old.merged.of(part)));
            // The most requested document is written before the first request for it.
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

    /// Whether the routes can be reused. They refer to members by index and prefer newer releases, so
    /// neither may have changed.
    fn routes_hold(&self, members: &[Member], merged: &PerPart<Arc<MergedPart>>) -> bool {
        let key = |member: &Member| (Arc::clone(&member.id), member.view.release);
        Part::ALL.iter().all(|part| Arc::ptr_eq(self.merged.of(*part), merged.of(*part)))
            && self.members().map(key).eq(members.iter().map(key))
    }
}

/// One half of the API surface of these members, reused from `previous` if it did not change.
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
