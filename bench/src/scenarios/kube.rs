//! Real kube-apiservers: a GET of `batch/v1`, which one of two servers does not serve, directly,
//! through Kubernetes' own proxy, through haproxy and through `mvp`, as many as each can answer and at
//! a fixed rate; and watches of many concurrent changes, directly and through `mvp`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use testkit::kubernetes::{ApiServer, EtcdMember};
use testkit::pki::PkiFiles;
use testkit::process::{Process, Program};
use testkit::programs::newest_in_cache;

use super::{KUBE, Run, WATCHES};
use crate::client::ask;
use crate::cores::Cores;
use crate::load::{BURSTS_PATH, Figures, Kind, Order, Protocol};
use crate::pki::{self, ADMIN};
use crate::plan::{Plan, WatchCase};
use crate::targets::{Programs, Proxies, Target, mvp_arguments};
use crate::usage::Usage;

const STARTUP: Duration = Duration::from_secs(180);
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// The name of Kubernetes' own proxy among the targets.
pub(crate) const NATIVE: &str = "Kubernetes' own";

/// As many requests as each can answer.
pub(crate) const MOST: &str = "GET of a small list of jobs, HTTP/2, 16 connections";
/// A rate that every hop can answer on two cores, so that the cost of a request is compared at the same
/// load.
pub(crate) const PACED: &str = "1,000 GETs/s of a small list of jobs, HTTP/2, 16 connections";
const RATE: f64 = 1_000.0;

/// The programs that the e2e suite built.
#[derive(Debug, Clone)]
pub(crate) struct KubePrograms {
    kube_apiserver: PathBuf,
    etcd: PathBuf,
    /// The version of kube-apiserver.
    pub(crate) version: String,
}

impl KubePrograms {
    /// Finds the programs that the e2e suite has built.
    pub(crate) fn find() -> Option<KubePrograms> {
        let kube = newest_in_cache("v1.36.", "kube-apiserver")?;
        let version = kube.file_name()?.to_str()?.split('-').next()?.to_owned();
        let etcd = newest_in_cache("v3.", "etcd")?.join("etcd");
        Some(KubePrograms { kube_apiserver: kube.join("kube-apiserver"), etcd, version })
    }
}

/// The measurements to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) requests: bool,
    pub(super) watches: bool,
}

/// Two kube-apiservers, `mvp` beside the one without `batch/v1`, and haproxy before the other.
struct ControlPlane {
    pki: PkiFiles,
    _etcd: Process,
    /// The server without `batch/v1`.
    lacking: Process,
    _peer: Process,
    mvp: Process,
    /// None without haproxy.
    haproxy: anyhow::Result<Option<Process>>,
}

pub(super) async fn run(
    run: &mut Run,
    plan: &Plan,
    programs: &Programs,
    kube: &KubePrograms,
    folder: &Path,
    wanted: Wanted,
) -> anyhow::Result<()> {
    eprintln!("  {KUBE}: starting two kube-apiservers {}", kube.version);
    let plane = ControlPlane::start(programs, kube, &folder.join("kube")).await?;
    if wanted.watches {
        watches(run, plan, &plane).await;
    }
    if let Err(error) = &plane.haproxy {
        run.fail(&format!("{KUBE}, {}", Target::Haproxy.name()), error);
    }
    for (case, kind) in [(MOST, Kind::Closed), (PACED, Kind::Paced { rate: RATE })] {
        for round in 0..if wanted.requests { plan.rounds } else { 0 } {
            for (target, to, process) in plane.targets() {
                let outcome = measure(plan, &plane.pki, to, process, kind).await;
                run.note(KUBE, case, target, round, outcome);
            }
        }
    }
    Ok(())
}

/// Counts the watches that kube-apiserver ends because their client is too slow: through `mvp` as
/// many as directly?
async fn watches(run: &mut Run, plan: &Plan, plane: &ControlPlane) {
    for (connections, streams) in BURST_WATCHES {
        let watches = WatchCase { connections, streams }.name();
        let case = format!("{watches}, {AT_ONCE} changes at once");
        for round in 0..plan.rounds {
            for (target, host, process) in
                [("direct", LACKING, None), ("mvp, local", MVP, Some(plane.mvp.id()))]
            {
                let mut order = order(&plane.pki, address(host), process.into_iter().collect());
                order.path = BURSTS_PATH.to_owned();
                (order.connections, order.streams) = (connections, streams);
                order.kind = Kind::Bursts { server: address(LACKING), at_once: AT_ONCE };
                let outcome = order.carry_out(Cores::Any).await;
                run.note(WATCHES, &case, target, round, outcome);
            }
        }
    }
}

/// The number of connections, and of watches on each.
const BURST_WATCHES: [(usize, usize); 3] = [(200, 1), (50, 4), (8, 25)];
/// About the limit of a direct kube-apiserver on two cores.
const AT_ONCE: usize = 24;

/// Measures throughput and the CPU cost of a request at the proxy process, without its idle cost.
async fn measure(
    plan: &Plan,
    pki: &PkiFiles,
    to: SocketAddr,
    process: Option<u32>,
    kind: Kind,
) -> anyhow::Result<Figures> {
    let processes: Vec<u32> = process.into_iter().collect();
    let (before, started) = (Usage::of(&processes), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(plan.seconds)).await;
    let idle =
        (Usage::of(&processes).cpu_seconds - before.cpu_seconds) / started.elapsed().as_secs_f64();
    let mut order = order(pki, to, processes);
    (order.seconds, order.kind) = (plan.kube_seconds, kind);
    if matches!(kind, Kind::Paced { .. }) {
        order.streams = STREAMS;
    }
    let mut figures = order.carry_out(Cores::Any).await?;
    let requests = figures.get("requests_per_second").copied().unwrap_or_default();
    if let Some(cost) = figures.get_mut("cpu_us_per_request") {
        *cost -= idle * 1e6 / requests.max(1.0);
    }
    figures.insert("idle_cpu_share".to_owned(), idle);
    Ok(figures)
}

/// The requests in flight on a connection at a fixed rate; further ones wait, and that counts.
const STREAMS: usize = 4;

/// Requests of a small list, one after the other on each connection.
fn order(pki: &PkiFiles, to: SocketAddr, processes: Vec<u32>) -> Order {
    Order {
        to,
        path: JOBS.to_owned(),
        accept: "application/json".to_owned(),
        etag: None,
        protocol: Protocol::Http2,
        connections: 16,
        streams: 1,
        warm_up_seconds: 1.0,
        seconds: 0.0,
        processes,
        pki: pki.folder().to_owned(),
        user: ADMIN.to_owned(),
        kind: Kind::Closed,
    }
}

impl ControlPlane {
    async fn start(
        programs: &Programs,
        kube: &KubePrograms,
        folder: &Path,
    ) -> anyhow::Result<ControlPlane> {
        let pki = pki::create(&folder.join("pki"))?;
        let etcd = start_etcd(kube, folder)?;
        let start = |host, apis: &str| start_server(kube, &pki, folder, host, apis);
        let mut peer = start(PEER, "batch/v1=true")?;
        let mut lacking = start(LACKING, "batch/v1=false")?;
        for (server, host) in [(&mut peer, PEER), (&mut lacking, LACKING)] {
            let ready = async || {
                let answer = ask(&pki, address(host), "GET", "/readyz", None).await?;
                ensure!(answer.status == 200, "{}", answer.body);
                Ok(())
            };
            server.ready(STARTUP, ready).await?;
        }
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "example"},
            "spec": {"template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "one", "image": "none"}]}}},
        });
        let made = ask(&pki, address(PEER), "POST", JOBS, Some(job.to_string())).await?;
        ensure!(made.status == 201, "cannot make a job: {}", made.body);

        let arguments = mvp_arguments(&pki, address(MVP), address(LACKING), address(PEER));
        let log = folder.join("mvp.log");
        let mut mvp = Program::new("mvp", &programs.mvp).start(&log, arguments)?;
        let haproxy = start_haproxy(programs, &pki, folder).await;
        for (host, process) in [(LACKING, &mut lacking), (MVP, &mut mvp)] {
            let proxied = async || get_jobs(&pki, host).await;
            process.ready(STARTUP, proxied).await.context("a job through a proxy")?;
        }
        Ok(ControlPlane { pki, _etcd: etcd, lacking, _peer: peer, mvp, haproxy })
    }

    /// The names and addresses of the targets, and the process in between.
    fn targets(&self) -> Vec<(&'static str, SocketAddr, Option<u32>)> {
        let mut targets = vec![
            ("direct", address(PEER), None),
            (NATIVE, address(LACKING), Some(self.lacking.id())),
            (Target::MvpPeer.name(), address(MVP), Some(self.mvp.id())),
        ];
        let haproxy = self.haproxy.as_ref().ok().and_then(Option::as_ref);
        targets.extend(
            haproxy.map(|process| (Target::Haproxy.name(), address(HAPROXY), Some(process.id()))),
        );
        targets
    }
}

/// Starts haproxy before the server that has the jobs, if haproxy is here and can forward a request.
async fn start_haproxy(
    programs: &Programs,
    pki: &PkiFiles,
    folder: &Path,
) -> anyhow::Result<Option<Process>> {
    if programs.haproxy.is_none() {
        return Ok(None);
    }
    let proxies = Proxies { programs, pki, folder, server: address(PEER), cpus: None };
    let mut process = proxies.start(Target::Haproxy, address(HAPROXY))?;
    let proxied = async || get_jobs(pki, HAPROXY).await;
    process.ready(Duration::from_secs(20), proxied).await.context("a job through haproxy")?;
    Ok(Some(process))
}

/// Checks that the jobs are served at an address.
async fn get_jobs(pki: &PkiFiles, host: u8) -> anyhow::Result<()> {
    let answer = ask(pki, address(host), "GET", JOBS, None).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.body);
    Ok(())
}

fn start_etcd(kube: &KubePrograms, folder: &Path) -> anyhow::Result<Process> {
    let member = EtcdMember {
        name: "etcd",
        data: &folder.join("etcd"),
        clients: &format!("http://{ETCD}"),
        peers: &format!("http://{}:2380", ETCD.ip()),
        cluster: "",
    };
    Program::new("etcd", &kube.etcd).start(&folder.join("etcd.log"), member.flags())
}

/// Starts a kube-apiserver with Kubernetes' own proxy on.
fn start_server(
    kube: &KubePrograms,
    pki: &PkiFiles,
    folder: &Path,
    host: u8,
    apis: &str,
) -> anyhow::Result<Process> {
    let listen = address(host);
    let server = ApiServer { listen, advertise: listen.ip(), etcd: ETCD };
    let mut flags = server.flags(pki);
    flags.extend(server.native_proxy_flags(pki));
    flags.push(format!("--runtime-config={apis}"));
    let name = format!("bench-{host}");
    let log = folder.join(format!("{name}.log"));
    Program::new(&name, &kube.kube_apiserver).with_host_name().start(&log, flags)
}

const ETCD: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 78, 0, 6)), 2379);
const LACKING: u8 = 7;
const PEER: u8 = 8;
const MVP: u8 = 9;
const HAPROXY: u8 = 24;

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 78, 0, host), 6443).into()
}
