//! The resources that servers are recorded to serve, by the cluster's `StorageVersion` objects.
//! They stand in for the discovery of members that was never seen, and are fetched only while there
//! are such members. Runs beside the second step of the control loop, which never waits for it.
//! Entry item: [`StorageVersions`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use mvp_core::member::{Member, Presence};
use mvp_core::recorded::Recorded;
use mvp_core::{Snapshot, Timestamp};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fetch::get;
use super::reach::Reach;
use super::roster::{RosterState, is_unseen};
use crate::ask::Ask;

const GROUP: &str = "internal.apiserver.k8s.io";
const VERSION: &str = "v1alpha1";
const RESOURCE: &str = "storageversions";
/// Read from the server's cache, which is cheap.
const PATH: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions?resourceVersion=0";
/// Servers write StorageVersions only when they start.
const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Two servers have 80 KB of StorageVersions.
const MAX_BYTES: usize = 8 << 20;
/// Denials in a row that count as final. A server that starts forbids everything for about a
/// second.
const FINAL_DENIALS: u32 = 2;

/// The StorageVersions as last fetched, from whichever member serves them.
#[derive(Debug, Default)]
pub(super) struct StorageVersions {
    by_server: Arc<BTreeMap<String, Arc<Recorded>>>,
    fetch: JoinSet<Result<Found, String>>,
    due: Timestamp,
    /// Failures in a row: each one moves on to the next member.
    failures: usize,
    /// Denials in a row.
    denials: u32,
    /// Whether they were fetched once, or finally denied.
    settled: bool,
}

/// The result of a fetch.
#[derive(Debug)]
pub(super) enum Found {
    Forbidden,
    Servers(BTreeMap<String, Arc<Recorded>>),
}

impl StorageVersions {
    /// Starts a fetch if one is due and can matter. Returns when to call again.
    pub(super) fn ask<R: Reach>(
        &mut self,
        snapshot: &Snapshot,
        reach: &R,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if !snapshot.members().any(is_unseen) || !self.fetch.is_empty() {
            return None;
        }
        if self.due > now {
            return Some(self.due);
        }
        let mut serving: Vec<&Member> = snapshot.listing(GROUP, VERSION, RESOURCE).collect();
        if serving.is_empty() {
            // No server keeps them up to date, so they prove nothing.
            self.by_server = Arc::default();
            return None;
        }
        self.due = now.after(INTERVAL);
        let local = snapshot.local().map(|local| &local.id);
        serving.sort_by_key(|member| Some(&member.id) != local);
        let present = serving.into_iter().filter(|member| member.presence == Presence::Present);
        let mut asks: Vec<R::Ask> = present.filter_map(|member| reach.reach(member)).collect();
        if let Some(place) = self.failures.checked_rem(asks.len()) {
            self.fetch.spawn(find(asks.swap_remove(place)));
        }
        Some(self.due)
    }

    /// Whether they can matter and were not fetched yet: then it is unknown what some members
    /// serve.
    pub(super) fn are_awaited(&self, roster: &RosterState) -> bool {
        let lists = |member: &Member| {
            let list = member.view.apis.as_ref().map(|seen| &seen.list);
            let groups = list.into_iter().flat_map(|list| &list.groups);
            let mut groups = groups.filter(|group| &*group.name == GROUP);
            groups.any(|group| group.versions.iter().any(|version| &*version.name == VERSION))
        };
        let is_present = |member: &&Member| member.presence == Presence::Present;
        let members = || roster.members().filter(is_present);
        !self.settled && members().any(is_unseen) && members().any(lists)
    }

    /// Resolves when a fetch ends.
    pub(super) async fn heard(&mut self) {
        let Some(found) = self.fetch.join_next().await else {
            return std::future::pending().await;
        };
        // A panic of an embedder's server is a failed fetch.
        match found.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(Found::Servers(by_server)) => {
                self.by_server = Arc::new(by_server);
                (self.failures, self.denials, self.settled) = (0, 0, true);
            }
            Ok(Found::Forbidden) => {
                self.failures = self.failures.wrapping_add(1);
                self.denials = self.denials.saturating_add(1);
                if self.denials == FINAL_DENIALS {
                    self.settled = true;
                    tracing::warn!(
                        "listing StorageVersions is forbidden; APIs that only a server serves whose \
                         discovery was never seen are 404, not 503; allow user system:apiserver to \
                         list storageversions.internal.apiserver.k8s.io (deploy/rbac.yaml)"
                    );
                }
            }
            Err(error) => {
                self.failures = self.failures.wrapping_add(1);
                tracing::debug!(error, "StorageVersions failed; the last known ones stay in use");
            }
        }
    }

    /// What each server is recorded to serve.
    pub(super) fn by_server(&self) -> Arc<BTreeMap<String, Arc<Recorded>>> {
        Arc::clone(&self.by_server)
    }
}

pub(super) async fn find(ask: impl Ask) -> Result<Found, String> {
    let fetched = timeout(TIMEOUT, get(&ask, PATH, "application/json", None, MAX_BYTES)).await;
    let answer = fetched.map_err(|_| format!("{PATH}: timed out after {TIMEOUT:?}"))??;
    if answer.status == StatusCode::FORBIDDEN {
        return Ok(Found::Forbidden);
    }
    let list: List = serde_json::from_slice(&answer.ok()?).map_err(|e| format!("{PATH}: {e}"))?;
    Ok(Found::Servers(list.by_server()))
}

#[derive(Deserialize)]
struct List {
    items: Vec<StorageVersion>,
}

#[derive(Deserialize)]
struct StorageVersion {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    /// `GROUP.RESOURCE`, with `core` for the core group.
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    storage_versions: Vec<ServerVersions>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ServerVersions {
    #[serde(rename = "apiServerID")]
    server: String,
    /// In the format of `apiVersion`. Older servers leave it out; `decodableVersions` lists more
    /// than they serve.
    #[serde(rename = "servedVersions")]
    served: Vec<String>,
}

impl List {
    fn by_server(self) -> BTreeMap<String, Arc<Recorded>> {
        let mut resources: BTreeMap<String, Vec<(String, String, String)>> = BTreeMap::new();
        for item in self.items {
            let Some((_, resource)) = item.metadata.name.rsplit_once('.') else { continue };
            for ServerVersions { server, served } in item.status.storage_versions {
                let of_server = resources.entry(server).or_default();
                of_server.extend(served.iter().map(|group_version| {
                    let (group, version) =
                        group_version.split_once('/').unwrap_or(("", group_version));
                    (group.to_owned(), version.to_owned(), resource.to_owned())
                }));
            }
        }
        let recorded = |(server, resources): (String, Vec<_>)| {
            (server, Arc::new(resources.into_iter().collect()))
        };
        resources.into_iter().map(recorded).collect()
    }
}

#[cfg(test)]
mod tests;
