//! What the page shows, as JSON. Entries: one function for each section.
//!
//! Times are absolute, so that a section changes only with what it tells: the page counts the seconds.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mvp_proxy::CallersReport;
use serde_json::{Value, json};

use super::board::Others;
use crate::operator::skew::{self, Server};
use crate::operator::status::findings as found;
use crate::report::advice;
use crate::report::{Answered, Kind, MemberState, Status, ViewOf};

/// The most rows of the differences, of all APIs, and of the callers.
const MAX_DIFFERENCES: usize = 3000;
const MAX_APIS: usize = 20_000;
const MAX_CALLERS: usize = 300;
/// The most cells of a matrix: a row has one for each server.
const MAX_CELLS: usize = 150_000;
/// Younger views are all the same: each is confirmed every second.
const YOUNG: f64 = 5.0;

/// A section, and what those see who may know users and addresses, if that is more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content<T> {
    pub(super) anybody: T,
    pub(super) trusted: Option<T>,
}

impl<T> Content<T> {
    /// The same for everybody.
    pub(super) fn of(anybody: T) -> Content<T> {
        Content { anybody, trusted: None }
    }

    pub(super) fn map<U>(self, convert: impl Fn(T) -> U) -> Content<U> {
        let trusted = self.trusted.map(&convert);
        Content { anybody: convert(self.anybody), trusted }
    }
}

/// The Unix time at which something happened that is so many seconds ago; none if that is young.
#[allow(clippy::cast_possible_truncation, reason = "it saturates")]
fn since(now: Duration, seconds_ago: f64) -> Option<i64> {
    (seconds_ago >= YOUNG).then(|| (now.as_secs_f64() - seconds_ago).round() as i64)
}

/// The gateway itself.
pub(super) fn gateway(status: &Status, now: Duration) -> Content<Value> {
    // A whole number of ten seconds: the difference of two clocks must not look like news.
    let started = status.uptime_seconds.map(|up| ((now.as_secs_f64() - up) / 10.0).round() * 10.0);
    let document = |trusted: bool| {
        json!({
            "id": status.id, "version": status.version, "commit": status.commit,
            "release": status.release, "started": started,
            "ready": status.ready, "live": status.live,
            "connections": { "limit": status.connections.limit, "refused": status.connections.refused },
            "steering": status.steering.as_ref().map(|steering| json!({
                "active": steering.active, "unsteered": steering.unsteered_connections,
            })),
            "named": trusted,
        })
    };
    Content { anybody: document(false), trusted: Some(document(true)) }
}

/// What needs action, and what to know. The texts of others can name addresses.
pub(super) fn findings(status: &Status) -> Content<Value> {
    let found = found::findings(status);
    let list = |trusted: bool| -> Value {
        let all = found.iter().map(|finding| {
            let what =
                if trusted { finding.what.clone() } else { without_addresses(&finding.what) };
            json!({ "urgent": finding.urgent, "what": what, "advice": finding.advice })
        });
        all.collect()
    };
    Content { anybody: list(false), trusted: Some(list(true)) }
}

/// The text with every address of a host replaced.
fn without_addresses(text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|end: char| "(),;\"'".contains(end));
        let bare = bare.rsplit_once("://").map_or(bare, |(_, rest)| rest);
        let bare = bare.split('/').next().unwrap_or(bare).trim_end_matches([':', '.']);
        if is_address(bare) { word.replace(bare, "…") } else { word.to_owned() }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Whether a word is an IP address, or a host name with a port.
fn is_address(word: &str) -> bool {
    let host = word.trim_start_matches('[').trim_end_matches(']');
    let named = |(host, port): (&str, &str)| host.contains('.') && port.parse::<u16>().is_ok();
    word.parse::<SocketAddr>().is_ok()
        || host.parse::<IpAddr>().is_ok()
        || word.rsplit_once(':').is_some_and(named)
}

/// The members as this gateway sees them.
pub(super) fn members(status: &Status, now: Duration) -> Content<Value> {
    let list = |trusted: bool| -> Value {
        status.members.iter().map(|member| one_member(member, now, trusted)).collect()
    };
    Content { anybody: list(false), trusted: Some(list(true)) }
}

fn one_member(member: &MemberState, now: Duration, trusted: bool) -> Value {
    let error = member.last_error.as_deref();
    json!({
        "id": member.id, "local": member.local, "present": member.present,
        "release": member.release, "ejected": member.ejected,
        "kind": match member.kind { Kind::Mvp => "mvp", Kind::Bare => "bare", Kind::Unknown => "unknown" },
        "view": match member.view {
            ViewOf::Fresh => "fresh", ViewOf::Stale => "stale", ViewOf::Unknown => "unknown",
        },
        "never": member.confirmed_seconds_ago.is_none(),
        "confirmed": member.confirmed_seconds_ago.and_then(|ago| since(now, ago)),
        "error": error.map(|error| if trusted { error.to_owned() } else { without_addresses(error) }),
        "address": member.address.as_ref().filter(|_| trusted),
    })
}

/// The other gateways, as they report themselves.
pub(super) fn others(others: &Others, now: Duration) -> Content<Value> {
    let list = |trusted: bool| -> Value {
        others.iter().map(|other| one_other(other, now, trusted)).collect()
    };
    Content { anybody: list(false), trusted: Some(list(true)) }
}

fn one_other(other: &Answered<Status>, now: Duration, trusted: bool) -> Value {
    let hide = |text: &String| if trusted { text.clone() } else { without_addresses(text) };
    let state = other.status.as_ref().map(|status| {
        let fresh = status.members.iter().filter(|member| member.view == ViewOf::Fresh).count();
        let days = status.certificates.iter().map(|one| one.expires).min();
        let urgent = found::findings(status).into_iter().filter(|finding| finding.urgent).count();
        // Another member tells these counts: any numbers.
        let counts = status.refusals.iter().map(|count| count.count);
        let refused = counts.fold(0, u64::saturating_add);
        json!({
            "version": status.version, "ready": status.ready, "live": status.live,
            "started": status.uptime_seconds.map(|up| ((now.as_secs_f64() - up) / 10.0).round() * 10.0),
            "fresh": fresh, "known": status.members.len(), "urgent": urgent,
            "averted": status.averted.total,
            "refused": refused,
            "expires": days,
        })
    });
    json!({
        "id": other.id, "release": other.release, "left": other.left,
        "kind": match other.kind { Kind::Bare => "bare", _ => "mvp" },
        "state": state, "noAnswer": other.no_answer.as_ref().map(hide),
    })
}

/// False 404s that were averted. `bars` has those of the last hour, minute by minute.
pub(super) fn averted(status: &Status, bars: Value) -> Value {
    json!({ "total": status.averted.total, "apis": status.averted.apis, "bars": bars })
}

/// Refusals since the start and recently, each reason with advice.
pub(super) fn refusals(status: &Status, bars: &Value, recent: &Value) -> Value {
    let total = status.refusals.iter().map(|count| {
        json!({ "reason": count.name, "count": count.count, "advice": advice::named(&count.name) })
    });
    json!({ "total": total.collect::<Value>(), "bars": bars, "recent": recent })
}

/// The certificates, the first to expire first.
pub(super) fn certificates(status: &Status) -> Value {
    let one =
        |one: &crate::report::Certificate| json!({ "flag": one.flag, "expires": one.expires });
    let list: Value = status.certificates.iter().map(one).collect();
    json!({ "list": list, "failing": status.reloads_failing })
}

/// Requests in a second between members.
pub(super) fn flow(id: &str, recorded: bool, edges: Vec<Value>) -> Value {
    json!({ "id": id, "recorded": recorded, "edges": edges })
}

/// The most rows of a matrix.
fn most_rows(servers: usize, all: bool) -> usize {
    let most = if all { MAX_APIS } else { MAX_DIFFERENCES };
    most.min(MAX_CELLS / servers.max(1))
}

/// The APIs of servers side by side. Why a server does not answer is told by its member, with the time.
pub(super) fn skew(servers: &[Server], all: bool) -> Value {
    let mut document = skew::compared(servers, all, most_rows(servers.len(), all));
    let servers = document.get_mut("servers").and_then(Value::as_array_mut);
    for server in servers.into_iter().flatten().filter_map(Value::as_object_mut) {
        let silent = server.get("problem").is_some_and(Value::is_string);
        server.insert("problem".to_owned(), json!(silent));
    }
    document
}

/// Who called which resource in the last hour; for anybody without names.
pub(super) fn callers(report: Option<&CallersReport>, now: u64) -> Content<Value> {
    let Some(report) = report else { return Content::of(json!({ "recorded": false })) };
    let mut resources: Vec<_> = report.resources.iter().collect();
    let sum = |one: &mvp_proxy::ResourceCallers| {
        one.callers
            .iter()
            .fold(one.more_requests, |sum, caller| sum.saturating_add(caller.requests))
    };
    resources.sort_by_key(|one| std::cmp::Reverse(sum(one)));
    let left_out = resources.len().saturating_sub(MAX_CALLERS);
    resources.truncate(MAX_CALLERS);
    let list = |trusted: bool| -> Value {
        let one = |one: &&mvp_proxy::ResourceCallers| {
            let callers = trusted.then(|| {
                let caller = |caller: &mvp_proxy::RecordedCaller| {
                    // Whole minutes: each request of a busy caller is no news.
                    let seen = now.saturating_sub(caller.last_seen_seconds_ago) / 60 * 60;
                    json!({
                        "user": caller.user, "source": caller.user_source, "agent": caller.user_agent,
                        "requests": caller.requests, "seen": seen,
                    })
                };
                one.callers.iter().map(caller).collect::<Value>()
            });
            json!({
                "group": one.group, "version": one.version, "resource": one.resource,
                "count": one.callers.len(), "requests": sum(one), "callers": callers,
                "more": one.more_requests,
            })
        };
        let list: Value = resources.iter().map(one).collect();
        json!({ "recorded": true, "named": trusted, "resources": list, "leftOut": left_out })
    };
    Content { anybody: list(false), trusted: Some(list(true)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Count;

    #[test]
    fn addresses_are_left_out_of_texts() {
        for (text, shown) in [
            ("connect: 10.0.0.1:6443: refused", "connect: …: refused"),
            (
                "the server at https://10.0.0.1:6443/apis (10.0.0.1) is down",
                "the server at https://…/apis (…) is down",
            ),
            ("no answer from [fd00::1]:443, or fd00::1", "no answer from …, or …"),
            ("api.example.com:6443 is unknown", "… is unknown"),
            ("status 503 after 3 s, release 1.36.4", "status 503 after 3 s, release 1.36.4"),
        ] {
            assert_eq!(without_addresses(text), shown);
        }
    }

    #[test]
    fn the_counts_of_others_do_not_overflow() {
        let count = |name: &str| Count { name: name.to_owned(), count: u64::MAX };
        let refusals = vec![count("view-suspect"), count("local-down")];
        let status = Some(Status { refusals, ..Status::default() });
        let other = Answered { status, ..Answered::default() };
        let shown = others(&Vec::from([other]), Duration::from_secs(1000));
        assert_eq!(shown.anybody[0]["state"]["refused"], u64::MAX);
    }

    /// As `mvp callers` tells it.
    #[test]
    fn requests_of_more_callers_are_told() {
        let of = json!({
            "group": "batch", "version": "v1", "resource": "jobs", "callers": [], "moreRequests": 7,
        });
        let report = json!({ "windowSeconds": 3600, "resources": [of], "moreRequests": 0 });
        let report: CallersReport = serde_json::from_value(report).unwrap();
        let shown = callers(Some(&report), 1000).trusted.unwrap();
        assert_eq!(
            (&shown["resources"][0]["more"], &shown["resources"][0]["requests"]),
            (&json!(7), &json!(7))
        );
    }

    #[test]
    fn many_servers_have_fewer_rows() {
        let rows = [(0, true), (7, true), (50, true), (50, false), (128, false)];
        let rows = rows.map(|(servers, all)| most_rows(servers, all));
        assert_eq!(rows, [20_000, 20_000, 3000, 3000, 1171]);
    }

    #[test]
    fn a_young_view_has_no_time() {
        let now = Duration::from_secs(1000);
        assert_eq!(since(now, 0.2), None);
        assert_eq!(since(now, 4.9), None);
        assert_eq!(since(now, 10.0), Some(990));
    }
}
