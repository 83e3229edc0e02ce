//! What the control loop does for the roster: the roster itself logs, counts and fetches nothing.

use std::sync::Arc;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::discovery::DocumentError;
use mvp_core::member::Member;

use super::super::fetch::{Known, Scope};
use crate::gateway::Who;

/// Something that the control loop must do after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Fetch what a member serves.
    Fetch(Box<FetchRequest>),
    /// Tell the membership who answered at an address.
    Answered { address: Arc<str>, who: Who },
    /// Store why the last fetch from a member failed, or that it did not. For operators only.
    LastError { id: Arc<str>, error: Option<String> },
    /// Drop whatever is kept about a member that is forgotten.
    Forget(Arc<str>),
    /// Counts a refresh that requests have to wait for: members are asked only so often.
    CountDelayed,
    /// Count documents that could not be fetched.
    CountFailures(usize),
    /// Write a log line.
    Report(Report),
}

impl Effect {
    /// What counts a refresh, of which each member says whether it has to wait.
    pub(super) fn of_delayed(wait: impl Iterator<Item = bool>) -> Vec<Effect> {
        // All of them are asked: each notes that it is wanted.
        let waits = wait.fold(false, |any, waits| any | waits);
        waits.then_some(Effect::CountDelayed).into_iter().collect()
    }
}

/// A fetch that is to start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchRequest {
    pub(crate) member: Member,
    /// What earlier fetches learned, for conditional requests.
    pub(crate) known: Known,
    pub(crate) scope: Scope,
    pub(crate) ticket: Ticket,
}

/// Which fetch a result belongs to. The result of a fetch that is no longer current is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) id: Arc<str>,
    pub(crate) address: Option<Arc<str>>,
    pub(crate) begun: Timestamp,
}

/// A log line. Conditions are reported once, and again after they have cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// A member serves something else than before.
    ViewChanged { id: Arc<str>, document: &'static str, groups: usize },
    /// A part of a document cannot be used.
    DocumentProblem { id: Arc<str>, problem: DocumentError },
    /// Documents of a member cannot be fetched. A member that no source vouches for and that never
    /// answered may not exist.
    DiscoveryFailed { id: Arc<str>, may_not_exist: bool, error: String },
    /// A member answers 401 to requests with our certificate. A gateway that trusts us passes on the
    /// 401 of its own server, which does not trust the gateway.
    ProxyCertificateRejected { id: Arc<str>, by_its_server: bool },
    /// The gateway at the address of a member says that its server has another ID.
    OtherId { id: Arc<str>, address: Option<Arc<str>>, told: Arc<str> },
    /// A server without a gateway answers at the address of a gateway.
    NoGateway { id: Arc<str>, address: Option<Arc<str>> },
    /// Documents of a member can be fetched again.
    DiscoveryRecovered { id: Arc<str> },
    /// The OpenAPI index of a member cannot be fetched, but its other documents can.
    OpenApiFailed { id: Arc<str>, error: String },
    /// The OpenAPI index of a member can be fetched again.
    OpenApiRecovered { id: Arc<str> },
    /// The views of a member were not confirmed within the time limit: 404s no longer wait for it.
    MemberTimedOut { id: Arc<str>, after: Duration },
    /// The wait budget for members that never answered is spent.
    UnverifiedTimedOut { after: Duration },
    /// The sources did not name all members within the time limit.
    MembersUnknown { after: Duration },
}

impl Report {
    /// Writes the log line.
    pub(crate) fn log(&self) {
        match self {
            Report::ViewChanged { id, document, groups } => {
                tracing::info!(member = %id, document, groups, "discovery changed");
            }
            Report::DocumentProblem { id, problem } => {
                let error = problem.to_string();
                tracing::warn!(member = %id, error, "discovery document partly invalid");
            }
            Report::DiscoveryFailed { id, may_not_exist: false, error } => {
                tracing::warn!(member = %id, error, "discovery failed; the last known view stays in use");
            }
            Report::DiscoveryFailed { id, may_not_exist: true, error } => {
                tracing::info!(member = %id, error, "member does not answer");
            }
            Report::ProxyCertificateRejected { id, by_its_server: true } => tracing::warn!(
                member = %id,
                status = 401,
                hint = "its gateway trusts ours, but its server does not trust its gateway: see the log of \
                        that gateway",
                "proxy client certificate rejected"
            ),
            Report::ProxyCertificateRejected { id, by_its_server: false } => tracing::warn!(
                member = %id,
                status = 401,
                flag = "--proxy-client-cert-file",
                hint = "sign it with a CA of that server's --requestheader-client-ca-file, with a name in \
                        its --requestheader-allowed-names",
                "proxy client certificate rejected"
            ),
            Report::OtherId { id, address, told } => tracing::warn!(
                member = %id,
                address = address.as_deref(),
                answers_as = %told,
                hint = "give the ID that it answers with in --peer or the peers file, or correct the \
                        address",
                "member has another ID"
            ),
            Report::NoGateway { id, address } => tracing::warn!(
                member = %id,
                address = address.as_deref(),
                hint = "add kind=bare to its --peer (kind: bare in the peers file), or run a gateway \
                        there: otherwise tokens are sent over the proxy client certificate",
                "member has no gateway"
            ),
            Report::DiscoveryRecovered { id } => {
                tracing::info!(member = %id, "discovery recovered");
            }
            Report::OpenApiFailed { id, error } => {
                tracing::warn!(member = %id, error, "OpenAPI failed; the last known index stays in use");
            }
            Report::OpenApiRecovered { id } => tracing::info!(member = %id, "OpenAPI recovered"),
            Report::MemberTimedOut { id, after } => tracing::warn!(
                member = %id,
                seconds = after.as_secs(),
                "member timed out; 404s no longer wait for its view; repair the member, or remove it \
                 from the members"
            ),
            Report::UnverifiedTimedOut { after } => tracing::warn!(
                seconds = after.as_secs(),
                "unverified members timed out; 404s no longer wait for their views; check who creates \
                 Leases in kube-system"
            ),
            Report::MembersUnknown { after } => tracing::warn!(
                seconds = after.as_secs(),
                "members unknown; 404s no longer wait for the membership sources; see /readyz for the \
                 reason"
            ),
        }
    }
}
