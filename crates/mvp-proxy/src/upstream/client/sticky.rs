//! A client connection stays with one member for each resource until that member fails, so that it
//! reads its own writes. Entry item: [`Sticky`].

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::DefaultHashBuilder;
use mvp_core::RequestInfo;

/// The number of resources that are remembered. Beyond it, the oldest is dropped.
const MAX_RESOURCES: usize = 64;

/// The members that served a client connection, by resource.
#[derive(Debug, Default)]
pub(crate) struct Sticky {
    members: Mutex<Vec<(Resource, Arc<str>)>>,
    hasher: DefaultHashBuilder,
}

/// The hash of a group, version and resource. Two with the same hash share a member, which is
/// harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resource(u64);

impl Sticky {
    /// The resource of a request; `None` for a path that is not a resource.
    pub(crate) fn resource(&self, info: &RequestInfo<'_>) -> Option<Resource> {
        let RequestInfo::Resource(request) = info else { return None };
        let names = (&*request.group, &*request.version, &*request.resource);
        Some(Resource(self.hasher.hash_one(names)))
    }

    /// The member that last served a resource.
    pub(crate) fn member(&self, resource: Resource) -> Option<Arc<str>> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let found = members.iter().find(|(known, _)| *known == resource);
        found.map(|(_, member)| Arc::clone(member))
    }

    /// Remembers the member that serves a resource.
    pub(crate) fn stay(&self, resource: Resource, member: &Arc<str>) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        match members.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, known)) if known == member => {}
            Some((_, known)) => *known = Arc::clone(member),
            None => {
                if members.len() >= MAX_RESOURCES {
                    members.remove(0);
                }
                members.push((resource, Arc::clone(member)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(path: &str) -> RequestInfo<'_> {
        RequestInfo::parse("GET", path, None)
    }

    #[test]
    fn a_resource_is_its_group_version_and_name() {
        let sticky = Sticky::default();
        let resource = |path| sticky.resource(&info(path)).unwrap();
        let one = resource("/apis/a.example/v1/namespaces/x/things/one");
        assert_eq!(one, resource("/apis/a.example/v1/things"));
        for other in ["/apis/a.example/v2/things", "/apis/b.example/v1/things", "/api/v1/things"] {
            assert_ne!(one, resource(other), "{other}");
        }
        assert!(sticky.resource(&info("/healthz")).is_none());
    }

    #[test]
    fn the_last_member_is_remembered_within_bounds() {
        let sticky = Sticky::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let of =
            |index| sticky.resource(&info(&format!("/apis/a.example/v1/things-{index}"))).unwrap();
        assert_eq!(sticky.member(of(0)), None);
        sticky.stay(of(0), &a);
        sticky.stay(of(0), &b);
        sticky.stay(of(1), &a);
        assert_eq!((sticky.member(of(0)), sticky.member(of(1))), (Some(b), Some(a.clone())));
        for index in 2..2 * MAX_RESOURCES {
            sticky.stay(of(index), &a);
        }
        assert_eq!(sticky.member(of(0)), None);
        assert_eq!(sticky.members.lock().unwrap().len(), MAX_RESOURCES);
    }
}
