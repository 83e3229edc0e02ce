//! The specification of a server: its groups, versions and resources. Entry: [`ServerSpec`].

use mvp_core::Verb;

use crate::release::Release;

/// The ID, version and groups of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerSpec {
    /// Its ID within the cluster.
    pub id: String,
    /// Its release in `/version`, such as `v1.36.4`.
    pub git_version: String,
    /// The groups that it serves; the core group has an empty name.
    pub groups: Vec<GroupSpec>,
    /// The release whose schemas it has. Without one, it has no OpenAPI documents, and objects may
    /// have any fields.
    pub release: Option<Release>,
}

/// A group and its versions, the preferred one first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupSpec {
    /// The name; empty for the core group.
    pub name: String,
    /// Its versions. Objects are shared among them.
    pub versions: Vec<VersionSpec>,
}

/// A version of a group and its resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionSpec {
    /// The name, such as `v1`.
    pub version: String,
    /// Its resources.
    pub resources: Vec<ResourceSpec>,
}

/// A resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceSpec {
    /// Its name in paths, such as `widgets`.
    pub plural: String,
    /// Its singular name, such as `widget`.
    pub singular: String,
    /// The kind of its objects, such as `Widget`.
    pub kind: String,
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// Its short names, such as `wg`.
    pub short_names: Vec<String>,
    /// Its categories, such as `all`.
    pub categories: Vec<String>,
    /// Its verbs; others get 405.
    pub verbs: Vec<Verb>,
    /// Its subresources.
    pub subresources: Vec<SubresourceSpec>,
}

/// A subresource: the field of that name, read and written separately from the rest of the object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubresourceSpec {
    /// The name, such as `status`.
    pub name: String,
    /// Its verbs: `get`, `patch` and `update`.
    pub verbs: Vec<Verb>,
    /// The kind of its objects, if it is not the kind of the resource.
    pub kind: Option<ResponseKind>,
}

/// The kind of a subresource. Group and version are empty if they are those of the resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseKind {
    /// The group, such as `autoscaling`.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Scale`.
    pub kind: String,
}

impl GroupSpec {
    /// A group without versions.
    pub fn new(name: &str) -> GroupSpec {
        GroupSpec { name: name.to_owned(), versions: Vec::new() }
    }

    /// Adds a version.
    #[must_use]
    pub fn version(
        mut self,
        version: &str,
        resources: impl IntoIterator<Item = ResourceSpec>,
    ) -> GroupSpec {
        let resources = resources.into_iter().collect();
        self.versions.push(VersionSpec { version: version.to_owned(), resources });
        self
    }
}

impl ResourceSpec {
    /// A namespaced resource with every verb.
    pub fn namespaced(plural: &str, kind: &str) -> ResourceSpec {
        ResourceSpec { namespaced: true, ..ResourceSpec::cluster(plural, kind) }
    }

    /// A cluster-scoped resource with every verb.
    pub fn cluster(plural: &str, kind: &str) -> ResourceSpec {
        ResourceSpec {
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            verbs: vec![
                Verb::Create,
                Verb::Delete,
                Verb::DeleteCollection,
                Verb::Get,
                Verb::List,
                Verb::Patch,
                Verb::Update,
                Verb::Watch,
            ],
            ..ResourceSpec::default()
        }
    }

    /// The resource `selfsubjectreviews`, which returns the caller. It works in the group
    /// `authentication.k8s.io`.
    pub fn self_subject_reviews() -> ResourceSpec {
        let verbs = vec![Verb::Create];
        ResourceSpec { verbs, ..ResourceSpec::cluster("selfsubjectreviews", "SelfSubjectReview") }
    }

    /// Adds a `status` subresource.
    #[must_use]
    pub fn with_status(mut self) -> ResourceSpec {
        let verbs = vec![Verb::Get, Verb::Patch, Verb::Update];
        self.subresources.push(SubresourceSpec { name: "status".to_owned(), verbs, kind: None });
        self
    }

    /// Adds a short name.
    #[must_use]
    pub fn with_short_name(mut self, name: &str) -> ResourceSpec {
        self.short_names.push(name.to_owned());
        self
    }
}
