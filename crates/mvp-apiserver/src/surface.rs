//! What a server serves at one moment: its groups and the documents about them. Entry: [`Served`].
//!
//! A [`Surface`] never changes. A request takes the current one at its start and keeps it to its end,
//! so that routing, rendering and discovery agree even if another surface is installed meanwhile.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::crd::{Custom, Definitions};
use crate::describe::Description;
use crate::release::{Release, SchemaOf};
use crate::route::Target;
use crate::spec::{GroupSpec, ServerSpec};

/// The current surface of a server.
#[derive(Debug)]
pub(crate) struct Served {
    spec: ServerSpec,
    surface: RwLock<Arc<Surface>>,
    /// Whether a task follows the definitions of custom resources.
    establishing: AtomicBool,
    /// The milliseconds until a new definition is served.
    delay: AtomicU64,
    /// Dropped with the server.
    alive: watch::Sender<()>,
}

/// The groups of a server, and its discovery documents.
#[derive(Debug)]
pub(crate) struct Surface {
    /// All groups.
    pub(crate) groups: Vec<GroupSpec>,
    pub(crate) description: Description,
    /// The release whose schemas the built-in groups have.
    pub(crate) release: Option<Release>,
    pub(crate) git_version: String,
    /// The custom resources.
    pub(crate) definitions: Arc<Definitions>,
    /// The groups without custom resources.
    built_in: Vec<GroupSpec>,
}

/// The time until a new definition is served, unless it is set otherwise.
const DELAY: Duration = Duration::from_millis(200);

impl Served {
    /// Serves the groups of `spec`.
    pub(crate) fn new(spec: &ServerSpec) -> Served {
        let surface = Surface::new(spec, spec.groups.clone(), Arc::default());
        let served = Served {
            spec: spec.clone(),
            surface: RwLock::new(Arc::new(surface)),
            establishing: AtomicBool::new(false),
            delay: AtomicU64::new(0),
            alive: watch::Sender::new(()),
        };
        served.set_delay(DELAY);
        served
    }

    /// The current surface.
    pub(crate) fn current(&self) -> Arc<Surface> {
        // A surface is complete before it is installed: a panic cannot leave a part of one.
        Arc::clone(&self.surface.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves other groups, from the next request on. Custom resources stay.
    pub(crate) fn replace_groups(&self, groups: Vec<GroupSpec>) {
        let mut surface = self.surface.write().unwrap_or_else(PoisonError::into_inner);
        let definitions = Arc::clone(&surface.definitions);
        *surface = Arc::new(Surface::new(&self.spec, groups, definitions));
    }

    /// Serves these custom resources, from the next request on. Groups stay.
    pub(crate) fn define(&self, definitions: Definitions) {
        let mut surface = self.surface.write().unwrap_or_else(PoisonError::into_inner);
        let groups = surface.built_in.clone();
        *surface = Arc::new(Surface::new(&self.spec, groups, Arc::new(definitions)));
    }

    /// The time until a new definition is served.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay.load(Ordering::SeqCst))
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        let milliseconds = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay.store(milliseconds, Ordering::SeqCst);
    }

    /// Whether somebody follows the definitions.
    pub(crate) fn is_establishing(&self) -> bool {
        self.establishing.load(Ordering::SeqCst)
    }

    /// Returns true if nobody follows the definitions yet: the caller must do it.
    pub(crate) fn begin_establishing(&self) -> bool {
        !self.establishing.swap(true, Ordering::SeqCst)
    }

    /// Nobody follows the definitions any more.
    pub(crate) fn end_establishing(&self) {
        self.establishing.store(false, Ordering::SeqCst);
    }

    /// Waits for the end of the server.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut alive = self.alive.subscribe();
        async move { while alive.changed().await.is_ok() {} }
    }
}

impl Surface {
    /// The surface of a server of `spec` that serves these groups and custom resources.
    fn new(spec: &ServerSpec, built_in: Vec<GroupSpec>, definitions: Arc<Definitions>) -> Surface {
        let mut groups = built_in.clone();
        definitions.add_to(&mut groups);
        Surface {
            description: Description::new(&spec.id, &spec.git_version, &groups),
            groups,
            release: spec.release,
            git_version: spec.git_version.clone(),
            definitions,
            built_in,
        }
    }

    /// Whether a resource is served in any version.
    pub(crate) fn serves(&self, group: &str, resource: &str) -> bool {
        serve(&self.groups, group, resource)
    }

    /// Whether a resource is served in any version without a definition.
    pub(crate) fn is_built_in(&self, group: &str, resource: &str) -> bool {
        serve(&self.built_in, group, resource)
    }

    /// The custom resource of a target. A definition does not change a built-in resource.
    pub(crate) fn custom(&self, target: &Target<'_>) -> Option<Custom> {
        if self.is_built_in(&target.group.name, &target.resource.plural) {
            return None;
        }
        self.definitions.find(target)
    }

    /// The schema of a built-in kind. `None` if it is not known: such objects have any fields.
    pub(crate) fn schema_of(&self, group: &str, version: &str, kind: &str) -> Option<SchemaOf> {
        self.release?.schemas().of_kind(group, version, kind)
    }

    /// The component schemas of custom resources in one group and version, by name, for their
    /// OpenAPI document.
    pub(crate) fn custom_schemas(&self, group: &str, version: &str) -> Option<&Map<String, Value>> {
        self.definitions.schemas(group, version)
    }
}

/// Whether groups have a resource in any version.
pub(crate) fn serve(groups: &[GroupSpec], group: &str, resource: &str) -> bool {
    groups.iter().filter(|entry| entry.name == group).any(|group| {
        let mut resources = group.versions.iter().flat_map(|version| &version.resources);
        resources.any(|entry| entry.plural == resource)
    })
}
