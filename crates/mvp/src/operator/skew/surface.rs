//! What a server serves, as sorted names. Entry: [`Surface`].

use std::collections::BTreeMap;
use std::fmt;

use mvp_core::discovery::GroupList;
use mvp_core::{Verb, VerbSet};
use serde::Deserialize;

/// The resources and subresources that a server serves, with their verbs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Surface(BTreeMap<Api, VerbSet>);

/// A resource of a group and version, or a subresource of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Api {
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: Option<String>,
}

impl Surface {
    /// Adds the APIs of a discovery document.
    pub(crate) fn add(&mut self, list: &GroupList) {
        for group in &list.groups {
            for version in &group.versions {
                for entry in &version.resources {
                    let api = Api::new(&group.name, &version.name, &entry.name);
                    for part in &entry.subresources {
                        self.0.insert(api.sub(&part.name), part.verbs);
                    }
                    self.0.insert(api, entry.verbs);
                }
            }
        }
    }

    pub(crate) fn insert(&mut self, api: Api, verbs: VerbSet) {
        self.0.insert(api, verbs);
    }

    pub(crate) fn verbs(&self, api: &Api) -> Option<VerbSet> {
        self.0.get(api).copied()
    }

    pub(crate) fn has(&self, api: &Api) -> bool {
        self.0.contains_key(api)
    }

    /// Whether a resource of this group is served.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.0.keys().any(|api| api.group == group)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Api, VerbSet)> {
        self.0.iter().map(|(api, verbs)| (api, *verbs))
    }

    /// The number of resources, subresources not counted.
    pub(crate) fn resources(&self) -> usize {
        self.0.keys().filter(|api| api.subresource.is_none()).count()
    }

    /// The versions other than its own in which this resource is served.
    pub(crate) fn other_versions(&self, api: &Api) -> Vec<String> {
        let is_other = |other: &&Api| {
            other.group == api.group
                && other.resource == api.resource
                && other.subresource == api.subresource
                && other.version != api.version
        };
        self.0.keys().filter(is_other).map(|other| other.version.clone()).collect()
    }

    /// The APIs of all of them, with the verbs of all of them.
    pub(crate) fn union<'a>(surfaces: impl IntoIterator<Item = &'a Surface>) -> Surface {
        let mut all = Surface::default();
        for (api, verbs) in surfaces.into_iter().flat_map(Surface::iter) {
            let known = all.0.entry(api.clone()).or_default();
            *known = known.union(verbs);
        }
        all
    }
}

impl Api {
    pub(crate) fn new(group: &str, version: &str, resource: &str) -> Api {
        let (group, version) = (group.to_owned(), version.to_owned());
        Api { group, version, resource: resource.to_owned(), subresource: None }
    }

    /// A subresource of this resource.
    pub(crate) fn sub(&self, name: &str) -> Api {
        Api { subresource: Some(name.to_owned()), ..self.clone() }
    }

    /// The resource of a subresource; a resource itself.
    pub(crate) fn parent(&self) -> Api {
        Api { subresource: None, ..self.clone() }
    }

    /// `GROUP/VERSION`; only the version for the core group.
    pub(crate) fn group_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `RESOURCE` or `RESOURCE/SUBRESOURCE`.
    pub(crate) fn name(&self) -> String {
        match &self.subresource {
            None => self.resource.clone(),
            Some(part) => format!("{}/{part}", self.resource),
        }
    }

    /// The path of its objects in all namespaces.
    pub(crate) fn path(&self) -> String {
        let prefix = if self.group.is_empty() { "/api" } else { "/apis" };
        format!("{prefix}/{}/{}", self.group_version(), self.resource)
    }
}

impl fmt::Display for Api {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.group_version(), self.name())
    }
}

/// Verbs as text, such as `get,list`.
pub(crate) fn joined(verbs: VerbSet) -> String {
    verbs.iter().map(Verb::as_str).collect::<Vec<_>>().join(",")
}

/// The verbs of the first set that the second one lacks.
pub(crate) fn minus(verbs: VerbSet, others: VerbSet) -> VerbSet {
    verbs.iter().filter(|verb| !others.allows(*verb)).map(Verb::as_str).collect()
}

/// A resource in the document of a gateway: see [`crate::inside::apis`].
#[derive(Debug, Deserialize)]
pub(crate) struct Listed {
    group: String,
    version: String,
    resource: String,
    verbs: Vec<String>,
    subresources: Vec<ListedPart>,
}

#[derive(Debug, Deserialize)]
struct ListedPart {
    name: String,
    verbs: Vec<String>,
}

impl FromIterator<Listed> for Surface {
    fn from_iter<I: IntoIterator<Item = Listed>>(listed: I) -> Surface {
        let set = |verbs: &[String]| verbs.iter().map(String::as_str).collect::<VerbSet>();
        let mut surface = Surface::default();
        for entry in listed {
            let api = Api::new(&entry.group, &entry.version, &entry.resource);
            for part in &entry.subresources {
                surface.insert(api.sub(&part.name), set(&part.verbs));
            }
            surface.insert(api, set(&entry.verbs));
        }
        surface
    }
}
