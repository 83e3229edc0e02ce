//! The cost of the control loop and its effect on the data path: with few members, with many, and
//! with many that constantly change, under requests for local APIs and for APIs of members.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join;
use serde::Deserialize;
use testkit::pki::PkiFiles;
use testkit::process::{Process, Program};

use super::{LOAD, MEMBERS, Run};
use crate::backend::{local_path, peer_path};
use crate::client::ask;
use crate::cores::Cores;
use crate::load::{Figures, Kind, Order, Protocol};
use crate::members::{LOCAL, TALLY_PATH, control_path};
use crate::pki::{self, ADMIN};
use crate::plan::Plan;
use crate::targets::{Programs, mvp_with_local};

pub(crate) const CASE: &str = "1,000 requests/s, half of them local";
pub(crate) const FEW: &str = "3 members";
pub(crate) const CALM: &str = "50 members";
pub(crate) const CHANGING: &str = "50 members, 500 changes a minute";

/// The number of members, and the changes per minute.
const TARGETS: [(&str, usize, usize); 3] = [(FEW, 3, 0), (CALM, 50, 0), (CHANGING, 50, 500)];

/// Requests per second of each kind: the control loop shares its core without contention.
const RATE: f64 = 500.0;
const STARTUP: Duration = Duration::from_secs(30);

pub(super) async fn run(
    run: &mut Run,
    plan: &Plan,
    programs: &Programs,
    folder: &Path,
) -> anyhow::Result<()> {
    let folder = folder.join("members");
    let pki = pki::create(&folder.join("pki"))?;
    for round in 0..plan.members_rounds {
        for (target, members, changes) in TARGETS {
            let size = Size { members, groups: 0 };
            let cluster = Cluster::start(programs, &pki, &folder, size).await?;
            let outcome = cluster.measure(plan, changes).await;
            run.note(MEMBERS, CASE, target, round, outcome);
        }
    }
    Ok(())
}

/// The size of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) members: usize,
    /// The groups that every server has beside those of Kubernetes.
    pub(super) groups: usize,
}

/// Members, an API server, and `mvp` beside it.
pub(super) struct Cluster<'a> {
    pki: &'a PkiFiles,
    _members: Process,
    mvp: Process,
    /// The time from the start of `mvp` until it answers for all members.
    pub(super) ready_seconds: f64,
}

/// The counts at the members.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Tally {
    /// The number of members whose discovery was fetched.
    members: usize,
    changes: f64,
    asked: f64,
    sent: f64,
}

impl<'a> Cluster<'a> {
    pub(super) async fn start(
        programs: &Programs,
        pki: &'a PkiFiles,
        folder: &Path,
        size: Size,
    ) -> anyhow::Result<Cluster<'a>> {
        let this = std::env::current_exe()?;
        let arguments = [
            "members".to_owned(),
            pki.folder().display().to_string(),
            size.members.to_string(),
            size.groups.to_string(),
        ];
        let log = folder.join("members.log");
        let mut members =
            Program::new("the members", &this).on_cpus(LOAD.cpus()).start(&log, arguments)?;
        members.ready(STARTUP, async || tally(pki).await.map(drop)).await?;

        let mut arguments = mvp_with_local(pki, MVP, LOCAL);
        arguments.extend([
            "--workers=1".to_owned(),
            "--membership=leases".to_owned(),
            format!("--peer-advertise-ip={}", MVP.ip()),
        ]);
        let log = folder.join("mvp.log");
        let started = Instant::now();
        let mut mvp = Program::new("mvp", &programs.mvp)
            .on_cpus(Cores::Proxy.cpus())
            .start(&log, arguments)?;
        let all_known = async || {
            let seen = tally(pki).await?.members;
            ensure!(seen == size.members, "{seen} of {} members were asked", size.members);
            // Merged documents are withheld until every member has a view.
            for path in [peer_path(100), MERGED_PATH.to_owned()] {
                let answer = ask(pki, MVP, "GET", &path, None).await?;
                ensure!(answer.status == 200, "{path}: {}: {}", answer.status, answer.body);
            }
            Ok(())
        };
        mvp.ready(STARTUP, all_known).await?;
        let ready_seconds = started.elapsed().as_secs_f64();
        Ok(Cluster { pki, _members: members, mvp, ready_seconds })
    }

    pub(super) fn mvp(&self) -> u32 {
        self.mvp.id()
    }

    /// The main thread runs the control loop; the others serve requests.
    async fn measure(&self, plan: &Plan, changes: usize) -> anyhow::Result<Figures> {
        ask(self.pki, LOCAL, "POST", &control_path(changes), None).await?;
        let (before, started) = (tally(self.pki).await?, Instant::now());
        let (local, peer) =
            (self.order(plan, local_path(2_000)), self.order(plan, peer_path(2_000)));
        let (mut figures, peer) = try_join(local.carry_out(LOAD), peer.carry_out(LOAD)).await?;
        let (after, seconds) = (tally(self.pki).await?, started.elapsed().as_secs_f64());

        let of = |name: &str| [&figures, &peer].map(|half| half.get(name).copied().unwrap_or(0.0));
        let sum = |name: &str| of(name).iter().sum::<f64>();
        // Both loads measured the whole process.
        let mean = |name: &str| sum(name) / 2.0;
        let control = mean("main_cpu_share");
        let requests = sum("requests_per_second");
        let workers = workers_us(mean("cpu_share"), control, requests);
        let (failures, unanswered) = (sum("failures"), sum("unanswered"));
        let [_, peer_p99] = of("p99_us");
        figures.extend([
            ("control_cpu_percent".to_owned(), control * 100.0),
            ("cpu_us_per_request".to_owned(), workers),
            ("requests_per_second".to_owned(), requests),
            ("failures".to_owned(), failures),
            ("unanswered".to_owned(), unanswered),
            ("peer_p99_us".to_owned(), peer_p99),
            ("changes_per_minute".to_owned(), (after.changes - before.changes) * 60.0 / seconds),
            ("asked_per_second".to_owned(), (after.asked - before.asked) / seconds),
            ("documents_per_minute".to_owned(), (after.sent - before.sent) * 60.0 / seconds),
        ]);
        Ok(figures)
    }

    pub(super) fn order(&self, plan: &Plan, path: String) -> Order {
        Order {
            to: MVP,
            path,
            accept: "application/json".to_owned(),
            etag: None,
            protocol: Protocol::Http2,
            connections: 16,
            streams: 4,
            // The first fetch of every member is over.
            warm_up_seconds: 3.0,
            seconds: plan.members_seconds,
            processes: vec![self.mvp.id()],
            pki: self.pki.folder().to_owned(),
            user: ADMIN.to_owned(),
            kind: Kind::Paced { rate: RATE },
        }
    }
}

/// The CPU of a request in the threads that serve requests.
pub(super) fn workers_us(share: f64, control_share: f64, requests_per_second: f64) -> f64 {
    (share - control_share) * 1e6 / requests_per_second.max(1.0)
}

async fn tally(pki: &PkiFiles) -> anyhow::Result<Tally> {
    let answer = ask(pki, LOCAL, "GET", TALLY_PATH, None).await?;
    Ok(serde_json::from_str(&answer.body)?)
}

/// A document that is merged from those of all members.
const MERGED_PATH: &str = "/apis/batch";

pub(super) const MVP: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 78, 0, 11)), 6443);
