//! What an operator should look at, with what to do about it. Entry: [`findings`].

use std::time::Duration;

use mvp_core::decide::Reason;

use super::screen::{duration, plural};
use crate::report::advice::advice;
use crate::report::{Certificate, MemberState, Status, SteeringState, ViewOf};

/// Certificates with less than this many days left need action, or a look.
const URGENT_DAYS: f64 = 7.0;
const SOON_DAYS: f64 = 30.0;

/// What happened less than this many seconds ago is shown.
const LATELY: u64 = 3_600;

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Whether it is wrong now. The others happened since the start, or will happen.
    pub(crate) urgent: bool,
    pub(crate) what: String,
    pub(crate) advice: Option<String>,
}

impl Finding {
    pub(super) fn urgent(what: String, advice: &str) -> Finding {
        Finding { urgent: true, what, advice: given(advice) }
    }

    fn note(what: String, advice: &str) -> Finding {
        Finding { urgent: false, what, advice: given(advice) }
    }
}

fn given(advice: &str) -> Option<String> {
    (!advice.is_empty()).then(|| advice.to_owned())
}

/// All findings of a report, the urgent ones first.
pub(crate) fn findings(status: &Status) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(checks(status));
    // A failing check names the local server.
    let told = !status.ready;
    let members = status.members.iter().filter(|member| !(member.local && told));
    all.extend(members.filter_map(member));
    for conflict in &status.conflicts {
        let advice = "give one of them another --server-id";
        all.push(Finding::urgent(conflict.clone(), advice));
    }
    for flag in &status.reloads_failing {
        let advice = "the old contents stay in use; the log line \"not reloaded\" has the reason";
        all.push(Finding::urgent(format!("the file of {flag} cannot be used"), advice));
    }
    all.extend(status.certificates.iter().filter_map(certificate));
    all.extend(steering(status));
    all.extend(status.steering.as_ref().and_then(lapses));
    all.extend(refusals(status));
    all.extend(limits(status));
    // Stable: what belongs together stays together.
    all.sort_by_key(|finding| !finding.urgent);
    all
}

fn checks(status: &Status) -> Vec<Finding> {
    let stuck = "keep the log, and let the supervisor restart the process";
    let mut found = Vec::new();
    for (page, checks, advice) in
        [("readyz", &status.readiness, ""), ("livez", &status.liveness, stuck)]
    {
        for check in checks {
            if let Some(problem) = &check.problem {
                found.push(Finding::urgent(format!("{page} {}: {problem}", check.name), advice));
            } else if let Some(remark) = &check.remark {
                found.push(Finding::note(format!("{page} {}: {remark}", check.name), ""));
            }
        }
    }
    found
}

fn member(member: &MemberState) -> Option<Finding> {
    let MemberState { id, .. } = member;
    let because = member.last_error.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    if !member.present {
        let what = format!("{id} left; requests for APIs that only it serves get 503{because}");
        let advice = format!("if it is gone for good, run on each host: mvp forget {id}");
        return Some(Finding::note(what, &advice));
    }
    if member.local && member.view != ViewOf::Stale {
        return None;
    }
    let age = member.confirmed_seconds_ago.map(duration);
    if member.view == ViewOf::Unknown && member.address.is_none() {
        let what = format!("the address of {id} is not known, so nobody asks it for its APIs");
        let advice = "run mvp on its host, or let it advertise an address to its peers";
        return Some(Finding::urgent(what, advice));
    }
    let what = match (member.view, age) {
        (ViewOf::Stale, Some(age)) => format!("{id} has not confirmed its APIs for {age}{because}"),
        (ViewOf::Stale | ViewOf::Unknown, _) => format!("{id} was never seen{because}"),
        (ViewOf::Fresh, _) if member.ejected => format!("{id} is ejected: it is chosen last"),
        (ViewOf::Fresh, _) => {
            let error = member.last_error.as_ref()?;
            return Some(Finding::note(format!("{id}, last error: {error}"), ""));
        }
    };
    let advice = match (member.view, member.ejected) {
        (ViewOf::Fresh, _) => "it did not respond to requests; look at that server and its network",
        _ => {
            "look at that server, its gateway and the network; if it is gone for good, remove it \
              from its source of members"
        }
    };
    Some(Finding::urgent(what, advice))
}

fn certificate(certificate: &Certificate) -> Option<Finding> {
    let Certificate { flag, days_left, .. } = certificate;
    let advice = "renew it; the new file is used without a restart";
    let what = match *days_left {
        days if days < 0.0 => format!("a certificate of {flag} has expired"),
        days if days < SOON_DAYS => {
            format!("a certificate of {flag} expires in {}", duration(days * 86_400.0))
        }
        _ => return None,
    };
    let urgent = *days_left < URGENT_DAYS;
    Some(Finding { urgent, ..Finding::note(what, advice) })
}

/// Clients that do not come through the gateway yet. While it does not steer, the check of readiness
/// says so.
fn steering(status: &Status) -> Option<Finding> {
    let state = status.steering.as_ref().filter(|state| state.active)?;
    if status.all_come_through() != Some(false) {
        return None;
    }
    let port = state.port;
    Some(match state.unsteered_connections {
        Some(count) => {
            let connections = plural(count, "connection", "connections");
            let what =
                format!("not protected yet: {connections} to port {port} from before the steering");
            Finding::urgent(what, "run mvp adopt on the host of this gateway")
        }
        None => {
            let what = format!(
                "it is not known how many connections to port {port} are from before the steering"
            );
            let advice = "see the log line \"cannot count unsteered connections\"";
            Finding::urgent(what, advice)
        }
    })
}

/// New connections that did not come lately, because a thread of the gateway was late.
fn lapses(state: &SteeringState) -> Option<Finding> {
    let ago = state.lapsed_seconds_ago.filter(|ago| *ago < LATELY)?;
    let times = plural(state.lapses, "time", "times");
    let ago = duration(Duration::from_secs(ago).as_secs_f64());
    let what = format!(
        "new connections reached the server itself {times}, last {ago} ago: mvp was short of CPU"
    );
    Some(Finding::note(what, "give mvp more CPU; the log lines \"steering lapsed\" have the times"))
}

fn refusals(status: &Status) -> impl Iterator<Item = Finding> {
    status.refusals.iter().map(|refusal| {
        let requests = plural(refusal.count, "request was", "requests were");
        let reason = Reason::from_label(&refusal.name);
        let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let what = format!("{requests} refused with 503, {}{because}", refusal.name);
        let unknown = "see docs/operate.md of the release of that gateway";
        Finding::note(what, reason.and_then(advice).unwrap_or(unknown))
    })
}

fn limits(status: &Status) -> impl Iterator<Item = Finding> {
    let connections = &status.connections;
    let counts = [
        (
            connections.refused,
            "client connection was refused because of a limit",
            "client connections were refused because of a limit",
            "raise --max-client-connections or --max-client-connections-per-address, or find the \
             client that opens so many",
        ),
        (
            connections.ended,
            "client connection was ended: it reset too many requests",
            "client connections were ended: they reset too many requests",
            "look at the client that the log names: client connection ended",
        ),
        (
            connections.overloaded,
            "request was refused with 429: no connection to a server was free",
            "requests were refused with 429: no connection to a server was free",
            "find the caller without valid credentials, and fix them",
        ),
        (
            status.task_restarts,
            "background task was restarted after a panic",
            "background tasks were restarted after a panic",
            "keep the log, and report it",
        ),
        (
            status.log_lines_dropped,
            "log line was dropped",
            "log lines were dropped",
            "standard error is read too slowly",
        ),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    counts.map(|(count, one, many, advice)| Finding::note(plural(count, one, many), advice))
}
