//! Real servers under load for as long as asked, while they are upgraded, restarted and killed in a
//! loop: what clients see must stay right, and the gateways must not grow. Entry item: [`soak`].

mod churn;
mod figures;
mod report;
mod trend;
mod watches;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::{Cluster, ClusterSpec, ServerSpec};
use crate::history::{Extent, History, Judged};
use crate::load::Subject;
use crate::programs::{Minor, Programs};
use churn::Churn;
use figures::Sampler;
use report::Report;
use watches::Watches;

/// The extent of a soak.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) minutes: u64,
    pub(crate) watches: usize,
    pub(crate) report: PathBuf,
}

/// Few objects, so that clients meet. Each round has objects of its own: what the checker
/// remembers ends with the round.
const OBJECTS: Extent = Extent { objects: 24, clients: 2, pause: Duration::from_millis(40) };
const NAMESPACE: &str = "soak";

/// Runs until the time is over, or until SIGINT or SIGTERM. Its processes and its folder are gone
/// when this returns. Returns whether everything was right.
pub(crate) async fn soak(plan: &Plan) -> anyhow::Result<bool> {
    let programs = Programs::get()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let folder = tempfile::Builder::new().prefix("mvp-soak-").tempdir()?;
    let outcome = tokio::select! {
        outcome = run(plan, &programs, folder.path()) => outcome,
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted: no verdict")),
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated: no verdict")),
    };
    let report = outcome?;
    print!("\n{report}");
    std::fs::write(&plan.report, report.to_string())
        .with_context(|| format!("cannot write {:?}", plan.report))?;
    if !report.passed() {
        eprintln!("e2e: logs are in {}", folder.keep().display());
    }
    Ok(report.passed())
}

/// Servers of two releases.
fn servers() -> ClusterSpec {
    let servers = vec![
        ServerSpec::of_release("a", Minor::V1_36),
        ServerSpec::of_release("b", Minor::V1_34),
        ServerSpec::of_release("c", Minor::V1_34),
    ];
    ClusterSpec { name: "soak", servers, native_proxy: false, cable: false }
}

async fn run(plan: &Plan, programs: &Programs, folder: &Path) -> anyhow::Result<Report> {
    let mut cluster = Cluster::start(&servers(), programs, folder).await?;
    cluster.namespace(NAMESPACE).await?;
    cluster.namespace("soak-watches").await?;
    let admin = cluster.admin.clone();
    let addresses: Vec<SocketAddr> = cluster.servers.iter().map(|one| one.through()).collect();
    let collection = "/api/v1/namespaces/soak-watches/configmaps";
    let watches = Watches::open(&admin, &addresses, collection, plan.watches).await?;
    let sampler = Sampler::start();
    let mut churn = Churn { cluster: &mut cluster, sampler: &sampler, counts: Default::default() };
    churn.follow()?;

    let started = Instant::now();
    println!("{} watches at three gateways; {} minutes from now on.", plan.watches, plan.minutes);
    let mut judged = Judged::default();
    let faults = tokio::select! {
        outcome = rounds(plan, &mut churn, &admin, &addresses, &mut judged) => outcome,
        never = progress(started, &sampler, &watches) => match never {},
    };
    let took = started.elapsed();
    let faults = match (faults, watches.end().await) {
        (Ok(()), Ok(figures)) => Ok(figures),
        (Err(fault), _) | (Ok(()), Err(fault)) => Err(fault),
    };
    let counts = churn.counts;
    let lines = sampler.lines();
    Ok(Report::new(took, programs.described(), plan, counts, judged, faults, &lines))
}

/// Rounds until the time is over. Each has a load of its own, which is judged at its end.
async fn rounds(
    plan: &Plan,
    churn: &mut Churn<'_>,
    admin: &crate::client::Client,
    addresses: &[SocketAddr],
    judged: &mut Judged,
) -> anyhow::Result<()> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60 * plan.minutes) {
        let round = churn.counts.rounds + 1;
        let mut subject = Subject::config_maps(NAMESPACE);
        subject.tag = format!("round-{round}");
        let history = History::start(admin, addresses, subject, OBJECTS).await?;
        let what = || format!("round {round}");
        churn.round().await.with_context(what)?;
        let found = history.end().await.with_context(what)?;
        println!("round {round}: {found}");
        judged.add(&found);
    }
    Ok(())
}

/// A line now and then.
async fn progress(
    started: Instant,
    sampler: &Sampler,
    watches: &Watches,
) -> std::convert::Infallible {
    let mut pace = interval(Duration::from_secs(30));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        let minutes = started.elapsed().as_secs_f64() / 60.0;
        println!("{minutes:5.1} min: {}; {}", sampler.last(), watches.figures());
    }
}
