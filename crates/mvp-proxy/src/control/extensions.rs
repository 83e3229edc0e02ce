//! The groups and versions behind an APIService: part of the second step of the control loop.
//! Extension servers may answer anything, even a 404 that looks like an unrouted 404. Entry items:
//! [`find`] and [`Extensions`].

use std::sync::Arc;

use http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use super::fetch::{MAX_SMALL, SMALL_TIMEOUT, get};
use super::report_once::ReportOnce;
use crate::ask::Ask;

/// All APIServices except those that the server manages for its own groups and custom resources.
/// Read from the server's cache, which is cheap.
const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices\
?labelSelector=%21kube-aggregator.kubernetes.io%2Fautomanaged&resourceVersion=0";

/// A server's APIServices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// They were not fetched, or the fetch failed.
    Nothing,
    /// The proxy may not list them.
    Forbidden,
    /// The groups and versions that extension servers serve.
    Versions(Vec<(String, String)>),
}

/// Fetches which groups and versions a server hands to extension servers.
pub(super) async fn find(ask: &impl Ask) -> Found {
    let fetched = timeout(SMALL_TIMEOUT, get(ask, PATH, "application/json", None, MAX_SMALL));
    let Ok(Ok(answer)) = fetched.await else { return Found::Nothing };
    if answer.status == StatusCode::FORBIDDEN {
        return Found::Forbidden;
    }
    let list = answer.ok().ok().and_then(|body| serde_json::from_slice::<List>(&body).ok());
    list.map_or(Found::Nothing, |list| Found::Versions(list.extension_versions()))
}

/// The groups and versions behind an APIService, as last fetched.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    versions: Arc<[(String, String)]>,
    forbidden: ReportOnce,
}

impl Extensions {
    pub(super) fn versions(&self) -> Arc<[(String, String)]> {
        Arc::clone(&self.versions)
    }

    /// Applies a result. A server that starts forbids everything, so that a denial counts only if
    /// the same fetch got the discovery documents.
    pub(super) fn apply(&mut self, found: Found, has_documents: bool) {
        match found {
            Found::Versions(versions) => {
                self.forbidden.clear();
                if *self.versions != *versions {
                    tracing::info!(?versions, "extension APIs changed");
                    self.versions = versions.into();
                }
            }
            Found::Forbidden if has_documents => {
                if self.forbidden.report() {
                    tracing::warn!(
                        "listing APIServices is forbidden; a 404 of an extension server may become a \
                         503; allow user system:apiserver to list \
                         apiservices.apiregistration.k8s.io (deploy/rbac.yaml)"
                    );
                }
            }
            Found::Forbidden | Found::Nothing => {}
        }
    }
}

#[derive(Deserialize)]
struct List {
    items: Vec<ApiService>,
}

#[derive(Deserialize)]
struct ApiService {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    /// Absent for an APIService that the server itself serves.
    service: Option<IgnoredAny>,
}

impl List {
    fn extension_versions(self) -> Vec<(String, String)> {
        let behind = self.items.into_iter().filter(|item| item.spec.service.is_some());
        let mut versions: Vec<_> =
            behind.map(|item| (item.spec.group, item.spec.version)).collect();
        versions.sort();
        versions
    }
}
