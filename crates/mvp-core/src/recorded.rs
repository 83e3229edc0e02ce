//! The resources that `StorageVersion` objects record for a server. They stand in for a view that was
//! never seen: a 404 for a recorded resource is withheld. They have no verbs and no subresources, so
//! no request is routed by them. Entry item: [`Recorded`].

/// The recorded resources of one server: group (empty for the core group), version, plural name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded(Vec<(String, String, String)>);

impl Recorded {
    /// Whether the resource is recorded.
    pub fn has(&self, group: &str, version: &str, resource: &str) -> bool {
        let at = |(g, v, r): &(String, String, String)| {
            (g.as_str(), v.as_str(), r.as_str()).cmp(&(group, version, resource))
        };
        self.0.binary_search_by(at).is_ok()
    }

    /// Whether a resource of the group and version is recorded.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        let first = self.0.partition_point(|(g, v, _)| (g.as_str(), v.as_str()) < (group, version));
        self.0.get(first).is_some_and(|(g, v, _)| g == group && v == version)
    }

    /// Whether a resource of the group is recorded.
    pub fn has_group(&self, group: &str) -> bool {
        let first = self.0.partition_point(|(g, _, _)| g.as_str() < group);
        self.0.get(first).is_some_and(|(g, _, _)| g == group)
    }

    /// The resources, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.0.iter().map(|(group, version, resource)| (&**group, &**version, &**resource))
    }
}

impl FromIterator<(String, String, String)> for Recorded {
    fn from_iter<I: IntoIterator<Item = (String, String, String)>>(resources: I) -> Recorded {
        let mut resources: Vec<_> = resources.into_iter().collect();
        resources.sort_unstable();
        resources.dedup();
        Recorded(resources)
    }
}
