//! Which groups and versions stand behind an APIService: a part of the second step of the control
//! loop. Their answers are an extension server's, who may say anything, a 404 in the shape of one of
//! routing too. Entry items: [`find`] and [`Extensions`].

use std::sync::Arc;

use http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use super::Ask;
use super::fetch::{MAX_SMALL, SMALL_TIMEOUT, get};

/// All APIServices but those that the server keeps for what it serves itself, custom resources
/// too; out of its cache, which costs it next to nothing.
const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices\
?labelSelector=%21kube-aggregator.kubernetes.io%2Fautomanaged&resourceVersion=0";

/// What a server said when it was asked for its extensions.
#[derive(Debug)]
pub(crate) enum Found {
    /// It was not asked, or did not say.
    Nothing,
    /// We may not know.
    Forbidden,
    /// Groups and versions.
    Versions(Vec<(String, String)>),
}

/// Asks a server what it hands to extension servers.
pub(super) async fn find(ask: &impl Ask) -> Found {
    let asked = timeout(SMALL_TIMEOUT, get(ask, PATH, "application/json", None, MAX_SMALL));
    let Ok(Ok(answer)) = asked.await else { return Found::Nothing };
    if answer.status == StatusCode::FORBIDDEN {
        return Found::Forbidden;
    }
    let list = answer.ok().ok().and_then(|body| serde_json::from_slice::<List>(&body).ok());
    list.map_or(Found::Nothing, |list| Found::Versions(list.extension_versions()))
}

/// What is known of extensions: what was last said.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    versions: Arc<[(String, String)]>,
    forbidden: bool,
}

impl Extensions {
    pub(super) fn versions(&self) -> Arc<[(String, String)]> {
        Arc::clone(&self.versions)
    }

    /// Takes over what a server said, if it said something. While it starts it forbids all, so that
    /// it counts only beside documents of the same round.
    pub(super) fn apply(&mut self, found: Found, beside_documents: bool) {
        match found {
            Found::Versions(versions) => {
                self.forbidden = false;
                if *self.versions != *versions {
                    tracing::info!(?versions, "what extension servers serve changed");
                    self.versions = versions.into();
                }
            }
            Found::Forbidden if beside_documents && !self.forbidden => {
                self.forbidden = true;
                tracing::warn!(
                    "APIServices cannot be listed: a 404 of an extension server may become a 503; \
                     let user system:apiserver list apiservices.apiregistration.k8s.io (deploy/rbac.yaml)"
                );
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
    /// Without one, the server itself is behind it.
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
