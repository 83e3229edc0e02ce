//! The scenarios. Each measures its targets in turn, round after round, so that other work on the
//! machine affects all of them alike. Entry item: [`run`].

mod discovery;
mod embedded;
mod fairness;
mod growth;
mod handshakes;
mod kube;
mod latency;
mod members;
mod requests;
mod watches;

use std::path::Path;

use crate::cores::Cores;
use crate::load::{Figures, Kind, Order, Protocol};
use crate::pki::ADMIN;
use crate::plan::Plan;
use crate::results::Sample;
use crate::targets::{Bench, Programs, Target};

pub(crate) use discovery::{KNOWN, MERGED, PASSED_ON};
pub(crate) use embedded::{AT_REST, CASE as EMBEDDED_CASE};
pub(crate) use fairness::{ALONE, BESIDE, CASE as FAIRNESS_CASE};
pub(crate) use growth::{
    APIS as GROWING_APIS, MEMBERS as GROWING_MEMBERS, WATCHES as GROWING_WATCHES,
};
pub(crate) use handshakes::{FULL, RESUMED};
pub(crate) use kube::{KubePrograms, MOST, NATIVE, PACED};
pub(crate) use members::{CALM, CASE as MEMBERS_CASE, CHANGING};

/// The names of the scenarios, in the order of a run.
pub(crate) const REQUESTS: &str = "requests";
pub(crate) const LATENCY: &str = "latency";
pub(crate) const HANDSHAKES: &str = "handshakes";
pub(crate) const WATCHES: &str = "watches";
pub(crate) const DISCOVERY: &str = "discovery";
pub(crate) const MEMBERS: &str = "members";
pub(crate) const GROWTH: &str = "growth";
pub(crate) const EMBEDDED: &str = "embedded";
pub(crate) const FAIRNESS: &str = "fairness";
pub(crate) const KUBE: &str = "kube";
pub(crate) const ALL: [&str; 10] =
    [REQUESTS, LATENCY, HANDSHAKES, WATCHES, DISCOVERY, MEMBERS, GROWTH, FAIRNESS, EMBEDDED, KUBE];

/// Runs the wanted scenarios. Failures are reported and left out.
pub(crate) async fn run(
    plan: &Plan,
    wanted: &[String],
    programs: &Programs,
    kube: Option<&KubePrograms>,
    folder: &Path,
) -> anyhow::Result<(Vec<Sample>, Vec<String>)> {
    let mut run = Run { samples: Vec::new(), failures: Vec::new() };
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    if [REQUESTS, LATENCY, HANDSHAKES, WATCHES].iter().any(|name| is_wanted(name)) {
        let mut bench = Bench::start(programs, folder, 0, &Target::ALL).await?;
        run.without("start", &mut bench);
        if is_wanted(REQUESTS) {
            let outcome = requests::run(&mut run, plan, &mut bench).await;
            run.ended(REQUESTS, outcome);
        }
        if is_wanted(LATENCY) {
            let outcome = latency::run(&mut run, plan, &bench).await;
            run.ended(LATENCY, outcome);
        }
        if is_wanted(HANDSHAKES) {
            handshakes::run(&mut run, plan, &bench).await;
        }
        if is_wanted(WATCHES) {
            let outcome = watches::run(&mut run, plan, &mut bench).await;
            run.ended(WATCHES, outcome);
        }
    }
    if is_wanted(DISCOVERY) {
        let outcome = discovery::run(&mut run, plan, programs, folder).await;
        run.ended(DISCOVERY, outcome);
    }
    if is_wanted(MEMBERS) {
        let outcome = members::run(&mut run, plan, programs, folder).await;
        run.ended(MEMBERS, outcome);
    }
    if is_wanted(GROWTH) && (plan.full || !wanted.is_empty()) {
        let outcome = growth::run(&mut run, plan, programs, folder).await;
        run.ended(GROWTH, outcome);
    }
    if is_wanted(FAIRNESS) && (plan.full || !wanted.is_empty()) {
        let outcome = fairness::run(&mut run, plan, programs, folder).await;
        run.ended(FAIRNESS, outcome);
    }
    if is_wanted(EMBEDDED) {
        let outcome = embedded::run(&mut run, plan, programs, folder).await;
        run.ended(EMBEDDED, outcome);
    }
    if let Some(kube) = kube.filter(|_| is_wanted(KUBE) || is_wanted(WATCHES)) {
        let wanted = kube::Wanted { requests: is_wanted(KUBE), watches: is_wanted(WATCHES) };
        let outcome = kube::run(&mut run, plan, programs, kube, folder, wanted).await;
        run.ended(KUBE, outcome);
    }
    Ok((run.samples, run.failures))
}

/// The measurements so far.
struct Run {
    samples: Vec<Sample>,
    failures: Vec<String>,
}

impl Run {
    /// Records a measurement, or why there is none.
    fn note(
        &mut self,
        scenario: &str,
        case: &str,
        target: &str,
        round: usize,
        outcome: anyhow::Result<Figures>,
    ) {
        match outcome {
            Ok(figures) => {
                let main = shown(&figures);
                eprintln!("  {scenario}  {case}  round {}  {target:12} {main}", round + 1);
                self.samples.push(Sample {
                    scenario: scenario.to_owned(),
                    case: case.to_owned(),
                    target: target.to_owned(),
                    round,
                    figures,
                });
            }
            Err(error) => self.fail(&format!("{scenario}, {case}, {target}"), &error),
        }
    }

    /// Records the end of a scenario. A failed one keeps its measurements.
    fn ended(&mut self, scenario: &str, outcome: anyhow::Result<()>) {
        if let Err(error) = outcome {
            self.fail(scenario, &error);
        }
    }

    /// Records the proxies that did not start.
    fn without(&mut self, scenario: &str, bench: &mut Bench) {
        for (target, error) in std::mem::take(&mut bench.failures) {
            self.fail(&format!("{scenario}, {}", target.name()), &error);
        }
    }

    fn fail(&mut self, what: &str, error: &anyhow::Error) {
        eprintln!("  {what}: {error:#}");
        let line = format!("{what}: {error:#}");
        if !self.failures.contains(&line) {
            self.failures.push(line);
        }
    }
}

/// The figures of a measurement that the terminal shows.
fn shown(figures: &Figures) -> String {
    let names = [
        ("control_cpu_percent", "% of a core for the control loop"),
        ("idle_control_percent", "% of a core for the control loop at rest"),
        ("change_cpu_ms", "ms CPU a change"),
        ("requests_per_second", "requests/s"),
        ("connections_per_second", "connections/s"),
        ("events_per_second", "events/s"),
        ("body_bytes_per_second", "bytes/s"),
        ("cpu_us_per_request", "µs CPU a request"),
        ("cpu_us_per_connection", "µs CPU a connection"),
        ("cpu_us_per_event", "µs CPU an event"),
        ("idle_bytes_per_watch", "bytes a watch"),
        ("pss_mib", "MiB PSS"),
        ("created_per_second", "created/s"),
        ("list_seconds", "s a whole list"),
        ("p99_us", "µs p99"),
        ("watches_ended", "watches ended"),
        ("failures", "failures"),
        ("unanswered", "unanswered"),
    ];
    let parts = names.iter().filter_map(|(name, unit)| {
        let value = figures.get(*name)?;
        let zero = matches!(*name, "failures" | "unanswered") && *value == 0.0;
        (!zero).then(|| format!("{value:.1} {unit}"))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// An order for a target, for the caller to adapt.
pub(crate) fn order(plan: &Plan, bench: &Bench, target: Target, path: String) -> Order {
    Order {
        to: bench.address(target),
        path,
        accept: "application/json".to_owned(),
        etag: None,
        protocol: Protocol::Http2,
        connections: 32,
        streams: 1,
        warm_up_seconds: plan.warm_up_seconds,
        seconds: plan.seconds,
        processes: bench.processes(target),
        pki: bench.pki.folder().to_owned(),
        user: ADMIN.to_owned(),
        kind: Kind::Closed,
    }
}

/// The path for a target: a local API for `mvp, local`, else an API of the peer.
pub(crate) fn path(target: Target, bytes: usize) -> String {
    match target {
        Target::MvpLocal => crate::backend::local_path(bytes),
        _ => crate::backend::peer_path(bytes),
    }
}

/// The cores of the load.
pub(crate) const LOAD: Cores = Cores::Load;
