//! What a server serves at one moment: its groups and the documents about them. Entry: [`Served`].
//!
//! A [`Surface`] never changes. A request takes the current one at its start and keeps it to its end,
//! so that routing, rendering and discovery agree even if another surface is installed meanwhile.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Map, Value};

use crate::describe::Description;
use crate::release::{Release, SchemaOf};
use crate::spec::{GroupSpec, ServerSpec};

/// The current surface of a server.
#[derive(Debug)]
pub(crate) struct Served(RwLock<Arc<Surface>>);

/// The groups of a server, and its discovery documents.
#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) groups: Vec<GroupSpec>,
    pub(crate) description: Description,
    /// The release whose schemas the built-in groups have.
    pub(crate) release: Option<Release>,
    pub(crate) git_version: String,
}

impl Served {
    /// Serves the groups of `spec`.
    pub(crate) fn new(spec: &ServerSpec) -> Served {
        Served(RwLock::new(Arc::new(Surface::new(spec, spec.groups.clone()))))
    }

    /// The current surface.
    pub(crate) fn current(&self) -> Arc<Surface> {
        // A surface is complete before it is installed: a panic cannot leave a part of one.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Installs a surface for all requests that start after this.
    pub(crate) fn install(&self, surface: Surface) {
        let surface = Arc::new(surface);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = surface;
    }
}

impl Surface {
    /// The surface of a server of `spec` that serves these groups.
    pub(crate) fn new(spec: &ServerSpec, groups: Vec<GroupSpec>) -> Surface {
        Surface {
            description: Description::new(&spec.id, &spec.git_version, &groups),
            groups,
            release: spec.release,
            git_version: spec.git_version.clone(),
        }
    }

    /// The schema of a kind. `None` if it is not known: such objects have any fields.
    pub(crate) fn schema_of(&self, group: &str, version: &str, kind: &str) -> Option<SchemaOf> {
        self.release?.schemas().of_kind(group, version, kind)
    }

    /// The component schemas of custom resources in one group and version, by name, for their
    /// OpenAPI document.
    pub(crate) fn custom_schemas(
        &self,
        _group: &str,
        _version: &str,
    ) -> Option<&Map<String, Value>> {
        None
    }
}
