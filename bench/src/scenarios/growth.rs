//! What `mvp` costs in clusters of growing size: with more members, with more APIs, and beside more
//! idle watches. One cluster for each size, at rest and then under requests.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use testkit::pki::PkiFiles;
use testkit::process::until;

use super::members::{Cluster, MVP, Size, workers_us};
use super::{GROWTH, LOAD, Run};
use crate::backend::{AGGREGATED, local_path, peer_path};
use crate::client::ask;
use crate::load::{Figures, Kind, Order};
use crate::members::{CHANGE_PATH, LOCAL, changing_group, legacy_path};
use crate::pki;
use crate::plan::{Plan, thousands};
use crate::targets::Programs;
use crate::usage::Usage;

/// The cases: what grows.
pub(crate) const MEMBERS: &str = "members";
pub(crate) const APIS: &str = "APIs";
pub(crate) const WATCHES: &str = "idle watches";

/// The members where something else grows.
const USUAL: usize = 3;
const BYTES: usize = 2_000;
/// The first fetches of all members are over.
const SETTLED: Duration = Duration::from_secs(1);
/// The time for a change to be fetched and published: members are asked once a second.
const CHANGE: Duration = Duration::from_millis(2_500);
const DEADLINE: Duration = Duration::from_secs(15);

pub(super) async fn run(
    run: &mut Run,
    plan: &Plan,
    programs: &Programs,
    folder: &Path,
) -> anyhow::Result<()> {
    let folder = folder.join("growth");
    let pki = pki::create(&folder.join("pki"))?;
    let growth = &plan.growth;
    for (case, sizes) in [(MEMBERS, growth.members), (APIS, growth.apis), (WATCHES, growth.watches)]
    {
        for size in sizes {
            let outcome = measure(plan, programs, &pki, &folder, case, *size).await;
            run.note(GROWTH, case, &thousands(*size), 0, outcome);
        }
    }
    Ok(())
}

/// Starts a cluster of one size, and measures it.
async fn measure(
    plan: &Plan,
    programs: &Programs,
    pki: &PkiFiles,
    folder: &Path,
    case: &str,
    count: usize,
) -> anyhow::Result<Figures> {
    let of = |grows: &str, usual: usize| if case == grows { count } else { usual };
    let size = Size { members: of(MEMBERS, USUAL), groups: of(APIS, 0) };
    let cluster = Cluster::start(programs, pki, folder, size).await?;
    tokio::time::sleep(SETTLED).await;

    let beside = Kind::Beside { server: LOCAL, watches: of(WATCHES, 0) };
    let mut figures = load(plan, &cluster, peer_path(BYTES), beside).await?;
    let peer = workers(&figures);
    let local = load(plan, &cluster, local_path(BYTES), Kind::Closed).await?;
    figures.extend([
        ("ready_seconds".to_owned(), cluster.ready_seconds),
        ("peer_cpu_us".to_owned(), peer),
        ("local_cpu_us".to_owned(), workers(&local)),
    ]);
    if case == APIS {
        let idle = figures.get("idle_control_percent").copied().unwrap_or_default();
        figures.insert("change_cpu_ms".to_owned(), change(pki, &cluster, idle / 100.0).await?);
        let document = load(plan, &cluster, "/apis".to_owned(), Kind::Closed).await?;
        figures.insert("discovery_cpu_us".to_owned(), workers(&document));
        let last = legacy_path(count.saturating_sub(1));
        let legacy = load(plan, &cluster, last, Kind::Closed).await?;
        figures.insert("legacy_cpu_us".to_owned(), workers(&legacy));
    }
    Ok(figures)
}

async fn load(
    plan: &Plan,
    cluster: &Cluster<'_>,
    path: String,
    kind: Kind,
) -> anyhow::Result<Figures> {
    // Documents of megabytes: few connections, so that many of them end in the time.
    let (accept, connections) =
        if path == "/apis" { (AGGREGATED, 4) } else { ("application/json", 32) };
    let order = Order {
        accept: accept.to_owned(),
        connections,
        streams: 1,
        warm_up_seconds: plan.warm_up_seconds,
        seconds: plan.growth.seconds,
        kind,
        ..cluster.order(plan, path)
    };
    order.carry_out(LOAD).await
}

fn workers(figures: &Figures) -> f64 {
    let of = |name: &str| figures.get(name).copied().unwrap_or_default();
    workers_us(of("cpu_share"), of("main_cpu_share"), of("requests_per_second"))
}

/// The CPU, in milliseconds, that the control loop spends when one group of one member comes or
/// goes, without its CPU at rest.
async fn change(pki: &PkiFiles, cluster: &Cluster<'_>, idle_share: f64) -> anyhow::Result<f64> {
    let path = format!("/apis/{}", changing_group());
    let mut seconds = 0.0;
    for status in [200, 404] {
        ask(pki, LOCAL, "POST", CHANGE_PATH, None).await?;
        let (before, started) = (Usage::of(&[cluster.mvp()]), Instant::now());
        // A large document takes longer on a busy machine.
        let shown = async || {
            tokio::time::sleep(CHANGE).await;
            let answer = ask(pki, MVP, "GET", &path, None).await?;
            ensure!(answer.status == status, "{path}: {}, not {status}", answer.status);
            Ok(Some(()))
        };
        until("the change is shown", DEADLINE, shown).await?;
        let spent = Usage::of(&[cluster.mvp()]).main_seconds - before.main_seconds;
        seconds += spent - idle_share * started.elapsed().as_secs_f64();
    }
    Ok(seconds * 1e3 / 2.0)
}
