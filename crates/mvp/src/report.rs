//! What a gateway reports of itself, to operators and to its peers. Entry: [`Status`].
//!
//! - [`gather`]: the report of this gateway
//! - [`pages`]: reports on the API port, for peers only
//! - [`relay`]: the reports of all other members
//! - [`bounds`]: limits of a report that another gateway sent
//! - [`advice`]: what to do about each reason of a refusal

pub(crate) mod advice;
mod bounds;
pub(crate) mod gather;
pub(crate) mod pages;
pub(crate) mod relay;
mod samples;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The most members in a report, and the most that are asked for theirs.
pub(crate) const MAX_MEMBERS: usize = 128;
/// The most APIs in a list of counts.
const MAX_APIS: usize = 10;
/// The most pairs of a member and an API in a report: those with the most requests.
pub(crate) const MAX_EDGES: usize = 200;
/// The most conflicting IDs, or flags, in a report.
const MAX_TEXTS: usize = 32;
/// The most entries of every other list of a report that is read.
const MAX_LIST: usize = 256;
/// The longest text of a report that comes from elsewhere, in characters.
const MAX_TEXT: usize = 300;

/// Within so many seconds after its start, a gateway counts the connections that are not steered.
const COUNTED_WITHIN: f64 = 5.0;

/// The state of a gateway. Fields that a gateway of another version does not know have their default.
/// Counts are since its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    /// The ID of its server; none for a load balancer.
    #[serde(deserialize_with = "bounds::maybe_text")]
    pub(crate) id: Option<String>,
    /// The version of `mvp`.
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) version: String,
    /// The commit of that version; empty if it is not known.
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) commit: String,
    /// The release of its server.
    #[serde(deserialize_with = "bounds::maybe_text")]
    pub(crate) release: Option<String>,
    pub(crate) uptime_seconds: Option<f64>,
    pub(crate) ready: bool,
    pub(crate) live: bool,
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_LIST>")]
    pub(crate) readiness: Vec<CheckState>,
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_LIST>")]
    pub(crate) liveness: Vec<CheckState>,
    /// At most [`MAX_MEMBERS`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_MEMBERS>")]
    pub(crate) members: Vec<MemberState>,
    pub(crate) members_left_out: usize,
    /// IDs that two members use.
    #[serde(deserialize_with = "bounds::texts")]
    pub(crate) conflicts: Vec<String>,
    /// Requests by action.
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_LIST>")]
    pub(crate) requests: Vec<Count>,
    /// Requests for which the local server alone would have answered with a false 404.
    pub(crate) averted: Averted,
    /// Refusals by reason.
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_LIST>")]
    pub(crate) refusals: Vec<Count>,
    /// Requests for which no peer that serves them could be reached.
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_APIS>")]
    pub(crate) proxy_errors: Vec<ApiCount>,
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_LIST>")]
    pub(crate) certificates: Vec<Certificate>,
    /// The flags whose files cannot be used.
    #[serde(deserialize_with = "bounds::texts")]
    pub(crate) reloads_failing: Vec<String>,
    pub(crate) connections: Connections,
    /// None without `--steer`.
    pub(crate) steering: Option<SteeringState>,
    pub(crate) task_restarts: u64,
    pub(crate) log_lines_dropped: u64,
    /// Whether the gateway counts which member answers which requests.
    pub(crate) flow_recorded: bool,
    /// Those counts, the largest first.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounds::list::<_, _, MAX_EDGES>"
    )]
    pub(crate) flow: Vec<FlowEdge>,
}

/// Requests that a member answered for an API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FlowEdge {
    /// The member that answered; empty for refusals.
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) member: String,
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) group: String,
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) version: String,
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) resource: String,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
}

/// A check of readiness or liveness.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CheckState {
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) name: String,
    /// Why it fails; none if it passes.
    #[serde(deserialize_with = "bounds::maybe_text")]
    pub(crate) problem: Option<String>,
    #[serde(deserialize_with = "bounds::maybe_text")]
    pub(crate) remark: Option<String>,
}

/// A member, as the gateway sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MemberState {
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) id: String,
    pub(crate) local: bool,
    pub(crate) kind: Kind,
    #[serde(deserialize_with = "bounds::maybe_text")]
    pub(crate) address: Option<String>,
    pub(crate) present: bool,
    #[serde(deserialize_with = "bounds::maybe_text")]
    pub(crate) release: Option<String>,
    pub(crate) view: ViewOf,
    /// The time since it last confirmed what it serves; none for never.
    pub(crate) confirmed_seconds_ago: Option<f64>,
    pub(crate) heard_seconds_ago: f64,
    pub(crate) ejected: bool,
    #[serde(deserialize_with = "bounds::maybe_text")]
    pub(crate) last_error: Option<String>,
}

/// What listens at the address of a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A gateway, or an API server with the layer inside.
    #[default]
    Mvp,
    /// A kube-apiserver.
    Bare,
    /// What only a newer gateway knows.
    #[serde(other)]
    Unknown,
}

/// What is known of the APIs of a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ViewOf {
    Fresh,
    Stale,
    #[default]
    #[serde(other)]
    Unknown,
}

/// A count under a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Count {
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) name: String,
    pub(crate) count: u64,
}

/// A count for an API. `kind` is the type of an error, or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ApiCount {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "bounds::text")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) group: String,
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) version: String,
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) resource: String,
    pub(crate) count: u64,
}

/// False 404s that were averted; no total if the gateway does not count them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Averted {
    pub(crate) total: Option<u64>,
    /// The APIs with the most of them.
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_APIS>")]
    pub(crate) apis: Vec<ApiCount>,
}

/// The first certificate of a file that expires.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Certificate {
    #[serde(deserialize_with = "bounds::text")]
    pub(crate) flag: String,
    /// Unix time.
    pub(crate) expires: i64,
    pub(crate) days_left: f64,
}

/// Client connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Connections {
    pub(crate) open: u64,
    /// The limit; 0 if it is not known.
    pub(crate) limit: u64,
    pub(crate) refused: u64,
    pub(crate) evicted: u64,
    /// Ended because they reset too many requests.
    pub(crate) ended: u64,
    /// Requests for which no connection to a server was free.
    pub(crate) overloaded: u64,
}

/// Steering of new connections to the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SteeringState {
    /// The port whose connections are steered.
    pub(crate) port: u16,
    /// The only address of the port whose connections are steered, if it is not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<IpAddr>,
    /// Whether new connections come to the gateway now.
    pub(crate) active: bool,
    /// Connections that do not go through the gateway; none if they cannot be counted.
    pub(crate) unsteered_connections: Option<u64>,
    /// Further ones from this host that may be the server's own.
    pub(crate) unclear_connections: u64,
    /// Times in which new connections did not come because a thread was late, since the start.
    pub(crate) lapses: u64,
    /// The time since the last of them.
    pub(crate) lapsed_seconds_ago: Option<u64>,
}

/// What a member answered, or why it did not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Answered<T> {
    /// The ID of the member; none for a load balancer.
    pub(crate) id: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) release: Option<String>,
    /// Whether it left the cluster, and is only remembered.
    pub(crate) left: bool,
    pub(crate) status: Option<T>,
    pub(crate) no_answer: Option<String>,
}

impl Status {
    /// Whether all clients come through a gateway that steers: not if nobody can count those that do
    /// not. `None` without steering, and before the first count.
    pub(crate) fn all_come_through(&self) -> Option<bool> {
        let starts = self.uptime_seconds.is_some_and(|uptime| uptime < COUNTED_WITHIN);
        match self.steering.as_ref()?.unsteered_connections {
            None if starts => None,
            unsteered => Some(unsteered == Some(0)),
        }
    }
}

/// The reports of several gateways. The first is that of the gateway that was asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Gateways {
    pub(crate) gateways: Vec<Answered<Status>>,
    /// The number of members that were not asked, because there are too many.
    pub(crate) left_out: usize,
}

/// The start of a text.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl Answered<Status> {
    /// The gateway's own report.
    pub(crate) fn own(status: Status) -> Answered<Status> {
        let (id, release) = (status.id.clone(), status.release.clone());
        Answered { id, release, status: Some(status), ..Answered::default() }
    }
}
