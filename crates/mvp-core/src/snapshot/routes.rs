//! The routing table: group, version and resource → the members that serve it. Entry item:
//! [`Routes`].

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::VerbSet;
use crate::discovery::{Part, Resource, Scope};
use crate::member::Member;

/// The routing table.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    table: HashTable<Route>,
    hasher: DefaultHashBuilder,
}

/// A resource, and the members that serve it.
#[derive(Debug)]
pub(crate) struct Route {
    group: Arc<str>,
    version: Arc<str>,
    resource: Arc<str>,
    /// The scope of its objects.
    pub(crate) scope: Scope,
    /// Whether an extension server serves it.
    pub(crate) extension: bool,
    /// Sorted by subresource (empty for the resource itself), then newest release first.
    providers: Vec<(Arc<str>, Provider)>,
}

/// A member that serves a resource or subresource, by its index in the snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Provider {
    pub(crate) member: u32,
    pub(crate) verbs: VerbSet,
}

impl Routes {
    /// Builds the table. The members must be in the order of their IDs.
    pub(super) fn build(members: &[Member], extensions: &[(String, String)]) -> Routes {
        let mut routes = Routes::default();
        let whole: Arc<str> = Arc::from("");
        for (index, member) in members.iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let seen = Part::ALL.iter().filter_map(|part| member.view.part(*part));
            for group in seen.flat_map(|seen| &seen.list.groups) {
                for version in &group.versions {
                    for resource in &version.resources {
                        let route = routes.entry(&group.name, &version.name, &resource.name);
                        route.add(&whole, index, resource);
                    }
                }
            }
        }
        // Newest release first: a write through an older server erases fields that it does not know.
        let age = |provider: &Provider| {
            let member = members.get(provider.member as usize);
            Reverse(member.and_then(|member| member.view.release))
        };
        for route in &mut routes.table {
            let key = |(_, provider): &(_, Provider)| (age(provider), provider.member);
            route.providers.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(key(a).cmp(&key(b))));
            route.providers.shrink_to_fit();
            let behind = |(g, v): &(String, String)| **g == *route.group && **v == *route.version;
            route.extension = extensions.iter().any(behind);
        }
        routes
    }

    /// The route of a resource, if any member serves it.
    pub(super) fn find(&self, group: &str, version: &str, resource: &str) -> Option<&Route> {
        let hash = self.hasher.hash_one((group, version, resource));
        self.table.find(hash, |route| route.is(group, version, resource))
    }

    fn entry(&mut self, group: &Arc<str>, version: &Arc<str>, resource: &Arc<str>) -> &mut Route {
        let Routes { table, hasher } = self;
        let hash = hasher.hash_one((&**group, &**version, &**resource));
        let rehash =
            |route: &Route| hasher.hash_one((&*route.group, &*route.version, &*route.resource));
        let entry = table.entry(hash, |route| route.is(group, version, resource), rehash);
        let new = || Route {
            group: Arc::clone(group),
            version: Arc::clone(version),
            resource: Arc::clone(resource),
            scope: Scope::Unknown,
            extension: false,
            providers: Vec::new(),
        };
        entry.or_insert_with(new).into_mut()
    }
}

impl Route {
    /// The members that serve the resource or one of its subresources, newest release first.
    #[inline]
    pub(crate) fn providers(&self, subresource: &str) -> impl Iterator<Item = Provider> + Clone {
        // The resource itself, the target of most requests, comes first.
        let before = |(name, _): &(Arc<str>, Provider)| &**name < subresource;
        let start = if subresource.is_empty() { 0 } else { self.providers.partition_point(before) };
        let from = self.providers.get(start..).unwrap_or_default().iter();
        from.take_while(move |(name, _)| &**name == subresource).map(|(_, provider)| *provider)
    }

    fn is(&self, group: &str, version: &str, resource: &str) -> bool {
        &*self.resource == resource && &*self.group == group && &*self.version == version
    }

    fn add(&mut self, whole: &Arc<str>, member: u32, resource: &Resource) {
        self.scope = match (self.providers.is_empty(), self.scope == resource.scope) {
            (true, _) => resource.scope,
            (false, true) => self.scope,
            // The members disagree.
            (false, false) => Scope::Unknown,
        };
        let provider = |name: &Arc<str>, verbs| (Arc::clone(name), Provider { member, verbs });
        let subresources = resource
            .subresources
            .iter()
            .map(|subresource| provider(&subresource.name, subresource.verbs));
        self.providers.push(provider(whole, resource.verbs));
        self.providers.extend(subresources);
    }
}
