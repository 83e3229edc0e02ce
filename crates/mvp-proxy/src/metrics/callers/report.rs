//! The callers as operators see them. Entry item: [`CallersReport`].

use std::cmp::Reverse;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Who called which resource lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallersReport {
    /// How long a caller stays in the report after its last request.
    pub window_seconds: u64,
    /// The resources that had callers, in the order of group, version and resource.
    pub resources: Vec<ResourceCallers>,
    /// Requests for resources that found no place.
    pub more_requests: u64,
}

/// The callers of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceCallers {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The resource, without a subresource.
    pub resource: String,
    /// The callers, the busiest first.
    pub callers: Vec<RecordedCaller>,
    /// Requests of callers that found no place.
    pub more_requests: u64,
}

/// A user with a user agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCaller {
    /// The user; `None` where no name is known.
    pub user: Option<String>,
    /// How far the name can be trusted, as in the log line of a request.
    pub user_source: String,
    /// The user agent. Clients choose it.
    pub user_agent: String,
    /// The number of requests.
    pub requests: u64,
    /// The age of the last request.
    pub last_seen_seconds_ago: u64,
    /// The address of the last request's client, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

impl CallersReport {
    pub(super) fn empty(window: Duration) -> CallersReport {
        let window_seconds = window.as_secs();
        CallersReport { window_seconds, resources: Vec::new(), more_requests: 0 }
    }

    pub(super) fn sort(&mut self) {
        let name = |r: &ResourceCallers| (r.group.clone(), r.version.clone(), r.resource.clone());
        self.resources.sort_by_cached_key(name);
        for resource in &mut self.resources {
            resource.callers.sort_by_cached_key(|caller| {
                (Reverse(caller.requests), caller.user.clone(), caller.user_agent.clone())
            });
        }
    }
}
