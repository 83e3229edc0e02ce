//! The callers of some resources, without a lock. Entry item: [`Table`].
//!
//! Bounds: a resource has places for 64 callers, so a busy resource never takes the place of a caller
//! of another. One user has at most 8 of them with user agents of their own. Tokens that are shown as a
//! hash have 16, and those that no server has accepted 16 more. A caller keeps its place until it
//! expires; requests of callers without a place are counted.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use mvp_core::Timestamp;

use super::report::{CallersReport, RecordedCaller, ResourceCallers};
use super::window::{RECORDED_FOR, Window, slot};
use crate::metrics::caller::TOKEN_HASH;

/// The most callers of a resource.
const MAX_CALLERS: usize = 64;
/// The most user agents of a user at a resource. Further ones share a place.
const MAX_AGENTS: usize = 8;
/// The most tokens at a resource without a name, and the most that no server has accepted. Clients
/// can have any number of both.
const MAX_TOKENS: usize = 16;
/// The most resources of a table.
const MAX_RESOURCES: usize = 128;
/// The most keys of a table. All are dropped when there are more; each is learned again.
const MAX_KEYS: usize = 4096;
/// Stands for the user agents of a user that has too many.
const OTHER_AGENTS: &str = "(other user agents)";

/// The callers of some resources.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The callers by the hash of a resource, a user agent and credentials. A caller with several
    /// tokens has several keys.
    keys: HashMap<u64, Place, BuildHasherDefault<Hashed>>,
    resources: Vec<Resource>,
    /// Requests for resources that found no place.
    more: Window,
    /// The slot of time of the last sweep.
    swept: u64,
}

/// Where the requests of a key are counted. Only a sweep moves places, and it drops all keys then.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// At a caller of a resource.
    Caller { resource: usize, caller: usize },
    /// At a resource that had no room for the caller.
    Full { resource: usize, provisional: bool },
    /// There was no room for the resource.
    Nowhere,
}

#[derive(Debug)]
struct Resource {
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    callers: Vec<Recorded>,
    /// Requests of callers that found no place.
    more: Window,
}

#[derive(Debug)]
struct Recorded {
    described: Described,
    requests: Window,
    seen: Timestamp,
    address: Option<IpAddr>,
}

/// A caller, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) user: Option<Box<str>>,
    /// How far the name can be trusted.
    pub(super) source: &'static str,
    pub(super) agent: Box<str>,
    /// Whether the caller has a token that no server has accepted yet.
    pub(super) provisional: bool,
}

/// One request of a caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) at: Timestamp,
    pub(super) address: Option<IpAddr>,
    /// Whether the response proves the caller's token.
    pub(super) proves: bool,
}

impl Table {
    /// Counts a request of a caller whose key is known. Returns whether it is.
    #[inline]
    pub(super) fn count_known(&mut self, key: u64, call: Call) -> bool {
        match self.keys.get(&key) {
            None => return false,
            Some(Place::Nowhere) => self.more.add(call.at),
            // Now its name is known, and may have a place.
            Some(Place::Full { provisional: true, .. }) if call.proves => return false,
            Some(Place::Full { resource, .. }) => match self.resources.get_mut(*resource) {
                Some(resource) => resource.more.add(call.at),
                None => return false,
            },
            Some(Place::Caller { resource, caller }) => {
                let resource = self.resources.get_mut(*resource);
                match resource.and_then(|resource| resource.callers.get_mut(*caller)) {
                    // Now its name may be shown.
                    Some(caller) if caller.described.provisional && call.proves => return false,
                    Some(caller) => caller.count(call),
                    None => return false,
                }
            }
        }
        true
    }

    /// Whether a resource is recorded.
    pub(super) fn has(&self, resource: (&str, &str, &str)) -> bool {
        self.position(resource).is_some()
    }

    fn position(&self, (group, version, resource): (&str, &str, &str)) -> Option<usize> {
        self.resources
            .iter()
            .position(|r| *r.resource == *resource && *r.group == *group && *r.version == *version)
    }

    /// Counts a request of a caller whose key is not known. A resource that is not listed is recorded
    /// only if it was before.
    pub(super) fn count_new(
        &mut self,
        resource: (&str, &str, &str),
        is_listed: bool,
        key: u64,
        described: Described,
        call: Call,
    ) {
        // A sweep moves resources and callers, so it must come before their places are known.
        let found = self.position(resource).and_then(|place| self.resources.get(place));
        let may_make_room = match found {
            Some(found) => found.is_full_of_expired(call.at),
            None if !is_listed => return,
            None => self.resources.len() >= MAX_RESOURCES && self.swept != slot(call.at),
        };
        if may_make_room {
            self.sweep(call.at);
        }
        let place = match self.position(resource).or_else(|| self.add(resource)) {
            Some(place) => self.count_at(place, described, call),
            None => {
                self.more.add(call.at);
                Place::Nowhere
            }
        };
        if self.keys.len() >= MAX_KEYS {
            self.keys.clear();
        }
        self.keys.insert(key, place);
    }

    /// Adds a resource. Returns its place, if there is room.
    fn add(&mut self, (group, version, resource): (&str, &str, &str)) -> Option<usize> {
        if self.resources.len() >= MAX_RESOURCES {
            return None;
        }
        self.resources.push(Resource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            callers: Vec::new(),
            more: Window::default(),
        });
        Some(self.resources.len() - 1)
    }

    /// Counts a request for the resource at a place.
    fn count_at(&mut self, resource: usize, described: Described, call: Call) -> Place {
        let provisional = described.provisional;
        let found = self.resources.get_mut(resource);
        match found.and_then(|found| found.count(described, call)) {
            Some(caller) => Place::Caller { resource, caller },
            None => Place::Full { resource, provisional },
        }
    }

    /// Drops expired callers and resources without callers. If there are any, drops all keys.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.swept = slot(now);
        if !self.resources.iter().any(|resource| resource.is_swept(now)) {
            return;
        }
        self.keys.clear();
        for resource in &mut self.resources {
            resource.callers.retain(|caller| caller.is_recent(now));
        }
        self.resources.retain(|resource| !resource.is_unused(now));
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn report(&self, now: Timestamp, addresses: bool, report: &mut CallersReport) {
        report.more_requests += self.more.sum(now);
        for resource in &self.resources {
            let recent = resource.callers.iter().filter(|caller| caller.is_recent(now));
            let callers: Vec<_> = recent.map(|caller| caller.report(now, addresses)).collect();
            let more_requests = resource.more.sum(now);
            if !callers.is_empty() || more_requests > 0 {
                report.resources.push(ResourceCallers {
                    group: resource.group.to_string(),
                    version: resource.version.to_string(),
                    resource: resource.resource.to_string(),
                    callers,
                    more_requests,
                });
            }
        }
    }

    /// Calls `see` for each resource with the number of its callers.
    pub(super) fn count_callers(
        &self,
        now: Timestamp,
        see: &mut impl FnMut(&str, &str, &str, usize),
    ) {
        for Resource { group, version, resource, callers, .. } in &self.resources {
            let count = callers.iter().filter(|caller| caller.is_recent(now)).count();
            see(group, version, resource, count);
        }
    }
}

impl Resource {
    /// Whether a sweep drops something of it.
    fn is_swept(&self, now: Timestamp) -> bool {
        self.is_unused(now) || self.callers.iter().any(|caller| !caller.is_recent(now))
    }

    fn is_unused(&self, now: Timestamp) -> bool {
        self.callers.is_empty() && self.more.sum(now) == 0
    }

    /// Whether a sweep would make room.
    fn is_full_of_expired(&self, now: Timestamp) -> bool {
        self.callers.len() >= MAX_CALLERS && self.callers.iter().any(|c| !c.is_recent(now))
    }

    /// Counts a request. Returns the place of its caller, if it has one.
    fn count(&mut self, mut described: Described, call: Call) -> Option<usize> {
        if self.position(&described).is_none() {
            let same_user =
                |c: &&Recorded| c.described.user == described.user && !described.provisional;
            if self.callers.iter().filter(same_user).count() >= MAX_AGENTS {
                described.agent = OTHER_AGENTS.into();
            }
        }
        if let Some(place) = self.position(&described) {
            self.callers.get_mut(place)?.count(call);
            return Some(place);
        }
        let same_kind = |c: &&Recorded| {
            c.described.is_token() && c.described.provisional == described.provisional
        };
        let has_room = self.callers.len() < MAX_CALLERS
            && !(described.is_token()
                && self.callers.iter().filter(same_kind).count() >= MAX_TOKENS);
        if !has_room {
            self.more.add(call.at);
            return None;
        }
        let mut caller =
            Recorded { described, requests: Window::default(), seen: call.at, address: None };
        caller.count(call);
        self.callers.push(caller);
        Some(self.callers.len() - 1)
    }

    fn position(&self, described: &Described) -> Option<usize> {
        self.callers.iter().position(|caller| caller.described == *described)
    }
}

impl Described {
    /// Whether a token alone tells it from other callers.
    fn is_token(&self) -> bool {
        self.provisional || self.source == TOKEN_HASH
    }
}

impl Recorded {
    fn count(&mut self, call: Call) {
        self.requests.add(call.at);
        self.seen = self.seen.max(call.at);
        self.address = call.address;
    }

    fn is_recent(&self, now: Timestamp) -> bool {
        now.since(self.seen) <= RECORDED_FOR
    }

    fn report(&self, now: Timestamp, addresses: bool) -> RecordedCaller {
        let Described { user, source, agent, .. } = &self.described;
        RecordedCaller {
            user: user.as_ref().map(ToString::to_string),
            user_source: (*source).to_owned(),
            user_agent: agent.to_string(),
            requests: self.requests.sum(now),
            last_seen_seconds_ago: now.since(self.seen).as_secs(),
            address: self.address.filter(|_| addresses).map(|address| address.to_string()),
        }
    }
}

/// The hasher of keys that are hashes already, under a random key of the process.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
