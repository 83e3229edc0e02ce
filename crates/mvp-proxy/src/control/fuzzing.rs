//! What the fuzz targets in `fuzz/` reach of the control loop. Exists with `cfg(fuzzing)` alone.

use std::sync::Arc;

use mvp_core::discovery::{GroupList, Limits};
use mvp_core::member::Release;
use mvp_core::openapi::Index;

use super::fetch::{self, Fetched, Known, OpenApiOutcome, Outcome, Scope};
use super::{Ask, request_headers, storage_versions};

/// What a server serves, as far as its answers tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Serves {
    /// `/api` and `/apis`.
    pub parts: [Option<Arc<GroupList>>; 2],
    /// `/openapi/v3`
    pub openapi: Option<Arc<Index>>,
    /// `/version`
    pub release: Option<Release>,
}

/// Asks a server for everything, as the control loop does.
pub async fn fetch(ask: &impl Ask) -> Serves {
    let known = Known::default();
    let (scope, limits) = (Scope::Everything, Limits::default());
    let fetched = fetch::fetch(ask, "apiserver-a", &known, &scope, true, &limits, None).await;
    let Fetched { parts, openapi, release, .. } = fetched;
    let parts = parts.map(|part| match part {
        Outcome::Changed { list, .. } => Some(list),
        _ => None,
    });
    let openapi = match openapi {
        OpenApiOutcome::Changed(index, _) => Some(index),
        _ => None,
    };
    Serves { parts, openapi, release }
}

/// Reads StorageVersions and the headers that servers read users from.
pub async fn find(ask: &(impl Ask + Clone)) -> String {
    let recorded = storage_versions::find(ask.clone()).await;
    format!("{recorded:?} {:?}", request_headers::find(ask).await)
}
