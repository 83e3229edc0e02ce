//! What is written down that a server serves, by others than its own discovery: `StorageVersion`
//! objects. It stands in for a view that was never seen, and is no more than a witness: it knows no
//! verbs and no subresources, and nothing is routed by it. Entry item: [`Recorded`].

/// The resources of one server: group, version, plural name. The core group's is empty.
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

    /// Whether any resource of that group and version is.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        let first = self.0.partition_point(|(g, v, _)| (g.as_str(), v.as_str()) < (group, version));
        self.0.get(first).is_some_and(|(g, v, _)| g == group && v == version)
    }

    /// Whether any resource of that group is.
    pub fn has_group(&self, group: &str) -> bool {
        let first = self.0.partition_point(|(g, _, _)| g.as_str() < group);
        self.0.get(first).is_some_and(|(g, _, _)| g == group)
    }

    /// Every resource, in order.
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
