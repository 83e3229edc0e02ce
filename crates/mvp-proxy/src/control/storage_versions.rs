//! Which resources servers are recorded to serve, by the cluster's `StorageVersion` objects: a
//! witness for members whose discovery was never seen, and asked for only while there are any. Beside
//! the second step of the control loop, which never waits for it. Entry item: [`StorageVersions`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use mvp_core::discovery::Part;
use mvp_core::member::Member;
use mvp_core::recorded::Recorded;
use mvp_core::{Snapshot, Timestamp};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fetch::get;
use super::table::Table;
use super::{Ask, MemberRecord, Reach};

const GROUP: &str = "internal.apiserver.k8s.io";
const VERSION: &str = "v1alpha1";
const RESOURCE: &str = "storageversions";
/// Out of the server's cache, which costs it little.
const PATH: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions?resourceVersion=0";
/// Servers write them when they start.
const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Two servers have 80 KB of them.
const MAX_BYTES: usize = 8 << 20;
/// A server that starts forbids everything, for a second or so.
const FORBIDDEN_FOR_GOOD: u32 = 2;

/// What is known of them: what was last said, by whichever member serves them.
#[derive(Debug, Default)]
pub(super) struct StorageVersions {
    by_server: BTreeMap<String, Arc<Recorded>>,
    asked: JoinSet<Result<Found, String>>,
    due: Timestamp,
    /// How often in a row we were told nothing: the next one is asked another member.
    failed: usize,
    /// How often in a row we were not to know.
    forbidden: u32,
    /// Whether it was ever told, or refused for good.
    settled: bool,
}

/// What a server said.
#[derive(Debug)]
enum Found {
    Forbidden,
    Servers(BTreeMap<String, Arc<Recorded>>),
}

impl StorageVersions {
    /// Has a member asked for them, where that can matter. Gives when it is to be called again.
    pub(super) fn ask<R: Reach>(
        &mut self,
        snapshot: &Snapshot,
        reach: &R,
        records: &[MemberRecord],
        now: Timestamp,
    ) -> Option<Timestamp> {
        if !snapshot.members().any(is_unseen) {
            return None;
        }
        if !self.asked.is_empty() {
            return None;
        }
        if self.due > now {
            return Some(self.due);
        }
        let mut serving: Vec<&Member> = snapshot.listing(GROUP, VERSION, RESOURCE).collect();
        if serving.is_empty() {
            // Nobody keeps them up to date, and nobody could delete one.
            self.by_server.clear();
            return None;
        }
        self.due = now.after(INTERVAL);
        let local = snapshot.local().map(|local| &local.id);
        serving.sort_by_key(|member| Some(&member.id) != local);
        let asks = serving.iter().filter_map(|member| {
            let record = records.iter().find(|record| record.id == member.id);
            reach.reach(&member.id, record)
        });
        let mut asks: Vec<R::Ask> = asks.collect();
        if let Some(place) = self.failed.checked_rem(asks.len()) {
            self.asked.spawn(find(asks.swap_remove(place)));
        }
        Some(self.due)
    }

    /// Whether they were never heard although they can matter: then it is not known yet who serves what.
    pub(super) fn are_awaited(&self, table: &Table) -> bool {
        let lists = |member: &Member| {
            let list = member.view.apis.as_ref().map(|seen| &seen.list);
            let groups = list.into_iter().flat_map(|list| &list.groups);
            let mut groups = groups.filter(|group| &*group.name == GROUP);
            groups.any(|group| group.versions.iter().any(|version| &*version.name == VERSION))
        };
        let members = || table.present();
        !self.settled && members().any(is_unseen) && members().any(lists)
    }

    /// Ends when a member said something, or that it does not.
    pub(super) async fn heard(&mut self) {
        let Some(found) = self.asked.join_next().await else {
            return std::future::pending().await;
        };
        // A panic of an embedder's server is no answer.
        match found.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(Found::Servers(by_server)) => {
                self.by_server = by_server;
                (self.failed, self.forbidden, self.settled) = (0, 0, true);
            }
            Ok(Found::Forbidden) => {
                self.failed = self.failed.wrapping_add(1);
                self.forbidden = self.forbidden.saturating_add(1);
                if self.forbidden == FORBIDDEN_FOR_GOOD {
                    self.settled = true;
                    tracing::warn!(
                        "StorageVersions cannot be listed: what only a server has that could never be \
                         asked is 404, not 503; let user system:apiserver list \
                         storageversions.internal.apiserver.k8s.io (deploy/rbac.yaml)"
                    );
                }
            }
            Err(problem) => {
                self.failed = self.failed.wrapping_add(1);
                tracing::debug!("StorageVersions cannot be had, what is known stays: {problem}");
            }
        }
    }

    /// Writes down what is recorded of members whose discovery was never seen.
    pub(super) fn witness(&self, table: &mut Table) {
        for row in table.rows() {
            let recorded = self.by_server.get(&*row.member.id);
            row.member.view.recorded = recorded.filter(|_| is_unseen(&row.member)).cloned();
        }
    }
}

fn is_unseen(member: &Member) -> bool {
    Part::ALL.into_iter().any(|part| member.view.part(part).is_none())
}

async fn find(ask: impl Ask) -> Result<Found, String> {
    let asked = timeout(TIMEOUT, get(&ask, PATH, "application/json", None, MAX_BYTES)).await;
    let answer = asked.map_err(|_| format!("{PATH}: no answer within {TIMEOUT:?}"))??;
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
    /// As `apiVersion` has them. Older servers do not say; what they can decode is more.
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
