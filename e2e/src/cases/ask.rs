//! What operators ask a cluster.

mod alerts;
mod callers;
mod canary;
mod dashboard;
mod doctor;
mod skew;
mod status;
mod traces;

use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "ask/callers",
            callers::of_a_removed_api,
            "mvp callers names who calls an API that the next releases remove; averted 404s are counted"
        ),
        case!(
            Mixed,
            "ask/status",
            status::one_gateway_and_all,
            "mvp status shows members, decisions and refusals with advice, of one gateway and of all"
        ),
        case!(
            Mixed,
            "ask/traces",
            traces::into_the_servers,
            "traces go through both gateways into kube-apiserver's own spans, if it trusts the user"
        ),
        case!(
            Mixed,
            "ask/dashboard",
            dashboard::in_a_browser,
            "the dashboard in Chromium: a killed peer within 2 s, the matrix of mvp skew, no violation of axe-core, its cost"
        ),
        case!(
            Mixed,
            "ask/skew",
            skew::differences,
            "mvp skew and kubectl mvp skew find what differs, and what is lost without a server"
        ),
        case!(
            Cable,
            "ask/skew-endpoints",
            skew::endpoints,
            "kubectl mvp skew asks every endpoint of the cluster behind one context"
        ),
        case!(
            Mixed,
            "ask/alerts",
            alerts::a_killed_peer,
            "Prometheus with the rules of deploy/: a killed peer fires alerts, which resolve when it is back"
        ),
        case!(
            Rolling,
            "ask/canary",
            canary::from_the_runbook,
            "the canary step of docs/upgrade.md, its commands run as they stand there"
        ),
        case!(
            Rolling,
            "ask/doctor-sound",
            doctor::sound,
            "mvp doctor finds nothing on a sound cluster, planned and running, and writes nothing"
        ),
        case!(
            Rolling,
            "ask/doctor-faults",
            doctor::faults,
            "mvp doctor finds each planted fault, by the check that names it, and nothing else"
        ),
    ]
}
