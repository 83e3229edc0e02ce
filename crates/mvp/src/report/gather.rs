//! The report of this gateway, from its snapshot, its checks and its metrics. Entry: [`Reporter::status`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use mvp_core::Snapshot;
use mvp_core::discovery::Part;
use mvp_core::member::{Member, MemberKind, Presence, ViewState};
use mvp_proxy::FlowCount;
use mvp_proxy::control::SnapshotReader;

use super::samples::{Sample, samples};
use super::{
    ApiCount, Averted, Certificate, CheckState, Connections, Count, FlowEdge, Kind, MAX_APIS,
    MAX_EDGES, MAX_MEMBERS, MAX_TEXTS, MemberState, Status, SteeringState, ViewOf, clipped,
};
use crate::admin::Check;
use crate::build_info;
use crate::health::Probes;

const DAY: f64 = 86_400.0;

/// What a report is made from.
pub(crate) struct Reporter {
    pub(crate) id: Option<Arc<str>>,
    pub(crate) reader: SnapshotReader,
    pub(crate) probes: Arc<Probes>,
    /// Writes the metrics as OpenMetrics text.
    pub(crate) metrics: Arc<dyn Fn(&mut String) + Send + Sync>,
    /// The IDs that two members use, as sentences.
    pub(crate) conflicts: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// The steering; none without `--steer`.
    pub(crate) steering: Box<dyn Fn() -> Option<SteeringState> + Send + Sync>,
    /// The limit of client connections.
    pub(crate) connection_limit: usize,
    /// Which member answered which requests; `None` if that is not counted.
    pub(crate) flow: Box<dyn Fn() -> Option<Vec<FlowCount>> + Send + Sync>,
}

impl Reporter {
    /// The state of this gateway now.
    pub(crate) fn status(&self) -> Status {
        let mut text = String::new();
        (self.metrics)(&mut text);
        let found = Found::new(&text);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let snapshot = self.reader.load();
        let (readiness, liveness) = (self.probes.readiness(), self.probes.liveness());
        let passes = |checks: &[Check]| checks.iter().all(|check| check.problem.is_none());
        let release = snapshot.local().and_then(|local| local.view.release);
        let started = found.one("process_start_time_seconds").map(|sample| sample.value);
        let flow = (self.flow)();
        Status {
            id: self.id.as_deref().map(str::to_owned),
            version: build_info::VERSION.to_owned(),
            commit: build_info::COMMIT.to_owned(),
            release: release.map(|release| release.to_string()),
            uptime_seconds: started.map(|started| (now - started).max(0.0)),
            ready: passes(&readiness),
            live: passes(&liveness),
            readiness: readiness.into_iter().map(CheckState::from).collect(),
            liveness: liveness.into_iter().map(CheckState::from).collect(),
            members: self.members(&snapshot, &found),
            members_left_out: snapshot.members().count().saturating_sub(MAX_MEMBERS),
            conflicts: (self.conflicts)().iter().take(MAX_TEXTS).map(|c| clipped(c)).collect(),
            requests: found.by("mvp_requests_total", "action"),
            averted: found.averted(),
            refusals: found.by("mvp_refusals_total", "reason"),
            proxy_errors: found.apis("apiserver_peer_proxy_errors_total"),
            certificates: found.certificates(now),
            reloads_failing: found.flags("mvp_reload_failing"),
            connections: Connections {
                open: found.total("mvp_client_connections"),
                limit: u64::try_from(self.connection_limit).unwrap_or(u64::MAX),
                refused: found.total("mvp_client_connections_refused_total"),
                evicted: found.total("mvp_client_connections_evicted_total"),
                ended: found.total("mvp_client_connections_ended_total"),
                overloaded: found.total("mvp_overloaded_requests_total"),
            },
            steering: (self.steering)(),
            task_restarts: found.total("mvp_task_restarts_total"),
            log_lines_dropped: found.total("mvp_log_lines_dropped_total"),
            flow_recorded: flow.is_some(),
            flow: flow.into_iter().flatten().take(MAX_EDGES).map(FlowEdge::from).collect(),
        }
    }

    /// The members: the local server first, then those that need attention, if not all fit.
    fn members(&self, snapshot: &Snapshot, found: &Found<'_>) -> Vec<MemberState> {
        let mut members: Vec<MemberState> =
            snapshot.members().map(|member| self.member(snapshot, member, found)).collect();
        members.sort_by_key(|member| (!member.local, member.view == ViewOf::Fresh));
        members.truncate(MAX_MEMBERS);
        members.sort_by(|a, b| (!a.local, &a.id).cmp(&(!b.local, &b.id)));
        members
    }

    fn member(&self, snapshot: &Snapshot, member: &Member, found: &Found<'_>) -> MemberState {
        let now = self.reader.now();
        // As in the metric: that of the older half.
        let confirmed = Part::ALL
            .into_iter()
            .map(|part| member.view.part(part).map(|seen| now.since(seen.confirmed).as_secs_f64()));
        let ejected = found.named("mvp_ejected").filter(|sample| sample.value > 0.0);
        let local = snapshot.local().is_some_and(|local| local.id == member.id);
        MemberState {
            id: clipped(&member.id),
            local,
            // To the others, this gateway and its server are one member.
            kind: if local { Kind::Mvp } else { member.kind.into() },
            address: member.address.as_deref().map(clipped),
            present: member.presence == Presence::Present,
            release: member.view.release.map(|release| release.to_string()),
            view: match snapshot.view_state(&member.id) {
                Some(ViewState::Fresh) => ViewOf::Fresh,
                Some(ViewState::Stale(_)) => ViewOf::Stale,
                Some(ViewState::Unknown) | None => ViewOf::Unknown,
            },
            confirmed_seconds_ago: confirmed.reduce(|one, other| Some(one?.max(other?))).flatten(),
            heard_seconds_ago: now.since(member.heard).as_secs_f64(),
            ejected: ejected.into_iter().any(|sample| sample.label("member") == &*member.id),
            last_error: self.reader.trouble(&member.id).map(|trouble| clipped(&trouble)),
        }
    }
}

impl From<MemberKind> for Kind {
    fn from(kind: MemberKind) -> Kind {
        match kind {
            MemberKind::Mvp => Kind::Mvp,
            MemberKind::Bare => Kind::Bare,
        }
    }
}

impl From<FlowCount> for FlowEdge {
    fn from(count: FlowCount) -> FlowEdge {
        let FlowCount { member, group, version, resource, requests, errors } = count;
        FlowEdge { member: clipped(&member), group, version, resource, requests, errors }
    }
}

impl From<Check> for CheckState {
    fn from(Check { name, problem, remark }: Check) -> CheckState {
        let clip = |text: Option<String>| text.map(|text| clipped(&text));
        CheckState { name, problem: clip(problem), remark: clip(remark) }
    }
}

/// The samples of the metrics, by name.
struct Found<'a>(BTreeMap<&'a str, Vec<Sample<'a>>>);

impl<'a> Found<'a> {
    fn new(text: &'a str) -> Found<'a> {
        let mut found: BTreeMap<&str, Vec<Sample<'_>>> = BTreeMap::new();
        for sample in samples(text) {
            found.entry(sample.name).or_default().push(sample);
        }
        Found(found)
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &Sample<'a>> {
        self.0.get(name).into_iter().flatten()
    }

    fn one(&self, name: &str) -> Option<&Sample<'a>> {
        self.named(name).next()
    }

    fn total(&self, name: &str) -> u64 {
        self.named(name).fold(0, |sum, sample| sum.saturating_add(sample.count()))
    }

    /// Counts by one label, the largest first.
    fn by(&self, name: &str, label: &str) -> Vec<Count> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for sample in self.named(name) {
            let sum = sums.entry(sample.label(label)).or_default();
            *sum = sum.saturating_add(sample.count());
        }
        let counts = sums.into_iter().filter(|(_, count)| *count > 0);
        let mut counts: Vec<Count> =
            counts.map(|(name, count)| Count { name: name.to_owned(), count }).collect();
        counts.sort_by_key(|count| std::cmp::Reverse(count.count));
        counts
    }

    /// Counts by API, the largest first.
    fn apis(&self, name: &str) -> Vec<ApiCount> {
        let mut counts: Vec<ApiCount> = self
            .named(name)
            .map(|sample| ApiCount {
                kind: sample.label("type").to_owned(),
                group: sample.label("group").to_owned(),
                version: sample.label("version").to_owned(),
                resource: sample.label("resource").to_owned(),
                count: sample.count(),
            })
            .filter(|api| api.count > 0)
            .collect();
        counts.sort_by_key(|count| std::cmp::Reverse(count.count));
        counts.truncate(MAX_APIS);
        counts
    }

    fn averted(&self) -> Averted {
        let name = "mvp_false_not_found_averted_total";
        let total = self.0.contains_key(name).then(|| self.total(name));
        Averted { total, apis: self.apis(name) }
    }

    fn certificates(&self, now: f64) -> Vec<Certificate> {
        let expirations = self.named("mvp_certificate_expiration_timestamp_seconds");
        let mut certificates: Vec<Certificate> = expirations
            .map(|sample| Certificate {
                flag: format!("--{}", sample.label("flag")),
                expires: seconds(sample.value),
                days_left: (sample.value - now) / DAY,
            })
            .collect();
        certificates.sort_by(|a, b| (a.expires, &a.flag).cmp(&(b.expires, &b.flag)));
        certificates
    }

    /// The flags for which a gauge is 1.
    fn flags(&self, name: &str) -> Vec<String> {
        let set = self.named(name).filter(|sample| sample.value > 0.0);
        let mut flags: Vec<String> =
            set.map(|sample| format!("--{}", sample.label("flag"))).collect();
        flags.sort();
        flags
    }
}

#[allow(clippy::cast_possible_truncation, reason = "it saturates")]
fn seconds(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE mvp_requests counter
mvp_requests_total{action=\"local\",reason=\"served-locally\",code=\"200\"} 5
mvp_requests_total{action=\"local\",reason=\"served-locally\",code=\"404\"} 2
mvp_requests_total{action=\"refuse\",reason=\"unconfirmed\",code=\"503\"} 9
mvp_refusals_total{reason=\"unconfirmed\"} 9
mvp_refusals_total{reason=\"starting\"} 0
mvp_false_not_found_averted_total{group=\"batch\",version=\"v1\",resource=\"jobs\"} 3
mvp_false_not_found_averted_total{group=\"apps\",version=\"v1\",resource=\"deployments\"} 4
mvp_certificate_expiration_timestamp_seconds{flag=\"tls-cert-file\"} 864000
mvp_certificate_expiration_timestamp_seconds{flag=\"client-ca-file\"} 43200
mvp_reload_failing{flag=\"tls-cert-file\"} 1
mvp_reload_failing{flag=\"client-ca-file\"} 0
";

    #[test]
    fn counts_are_summed_and_sorted() {
        let found = Found::new(TEXT);
        let named = |counts: Vec<Count>| -> Vec<(String, u64)> {
            counts.into_iter().map(|count| (count.name, count.count)).collect()
        };
        let requests = named(found.by("mvp_requests_total", "action"));
        assert_eq!(requests, [("refuse".to_owned(), 9), ("local".to_owned(), 7)]);
        let refusals = named(found.by("mvp_refusals_total", "reason"));
        assert_eq!(refusals, [("unconfirmed".to_owned(), 9)]);
        let averted = found.averted();
        assert_eq!(averted.total, Some(7));
        let resources: Vec<&str> = averted.apis.iter().map(|api| &*api.resource).collect();
        assert_eq!(resources, ["deployments", "jobs"]);
        assert_eq!(Found::new("").averted(), Averted::default());
    }

    #[test]
    fn the_certificate_that_expires_first_comes_first() {
        let found = Found::new(TEXT);
        let certificates = found.certificates(86_400.0);
        let days: Vec<(&str, f64)> =
            certificates.iter().map(|one| (&*one.flag, one.days_left)).collect();
        assert_eq!(days, [("--client-ca-file", -0.5), ("--tls-cert-file", 9.0)]);
        assert_eq!(found.flags("mvp_reload_failing"), ["--tls-cert-file"]);
    }
}
