//! Runs each case on the cluster that it needs. Cases with the same setting share a cluster. Entry
//! item: [`run`].

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::cases;
use crate::cluster::{Cluster, ClusterSpec, ISOLATED, ServerSpec};
use crate::programs::{Minor, Needs, Programs};
use crate::report::{Report, Row};

/// A property of a real control plane that the suite checks.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) setting: Setting,
    pub(crate) level: Level,
    /// Runs the case and returns the figures for the report.
    pub(crate) run: fn(&mut Cluster) -> LocalBoxFuture<'_, anyhow::Result<String>>,
}

/// When a case runs. A case that is named on the command line always runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// At every change. Together these take about 20 minutes.
    Default,
    /// Only with `--full`.
    Full,
}

impl Level {
    /// The file for the report of a run of the whole level.
    fn report(self) -> &'static str {
        match self {
            Level::Default => "report.md",
            Level::Full => "report-full.md",
        }
    }

    /// The time limit of a case.
    fn deadline(self) -> Duration {
        match self {
            Level::Default => Duration::from_secs(600),
            Level::Full => Duration::from_secs(3600),
        }
    }

    fn command(self) -> &'static str {
        match self {
            Level::Default => "cargo run -p e2e -- run",
            Level::Full => "cargo run -p e2e -- run --full",
        }
    }
}

/// The cluster that a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Three servers of two versions. Each one does not serve an API that the others serve. `b` also
    /// reads groups from `X-Auth-Group`.
    Mixed,
    /// The same, with Kubernetes' own proxy on in every server.
    Native,
    /// Three servers of 1.34, before an upgrade.
    Rolling,
    /// The last server is on a host of its own, whose network can be cut.
    Cable,
    /// Kubernetes' own proxy is on in every server. One server has no gateway; another advertises
    /// its gateway's address. Each serves an API that no other serves.
    Interop,
    /// Two servers that record their APIs in StorageVersions. The newer one advertises no address.
    Recorded,
    /// Two servers of 1.36, one of which emulates 1.34, and one that lacks an API of both.
    Emulated,
    /// Servers of four versions, from the newest to the oldest that can be built.
    Versions,
    /// The newest version, which serves CBOR, too, and an older one.
    Cbor,
    /// No servers: each case has nodes of its own ([`crate::node`]).
    Node,
    /// No servers: the case makes kubeadm nodes.
    Kubeadm,
}

impl Setting {
    const ALL: [Setting; 11] = [
        Setting::Mixed,
        Setting::Rolling,
        Setting::Cable,
        Setting::Native,
        Setting::Interop,
        Setting::Recorded,
        Setting::Emulated,
        Setting::Versions,
        Setting::Cbor,
        Setting::Node,
        Setting::Kubeadm,
    ];

    pub(crate) fn spec(self) -> ClusterSpec {
        match self {
            Setting::Mixed => ClusterSpec {
                name: "mixed",
                servers: vec![
                    ServerSpec::new("a", Minor::V1_36, "api/all=true,autoscaling/v2=false"),
                    ServerSpec::new("b", Minor::V1_34, "batch/v1=false")
                        .with_flag("--requestheader-group-headers=X-Auth-Group"),
                    ServerSpec::new("c", Minor::V1_36, "policy/v1=false"),
                ],
                native_proxy: false,
                cable: false,
            },
            Setting::Rolling => ClusterSpec {
                name: "rolling",
                servers: ["a", "b", "c"]
                    .map(|name| ServerSpec::of_release(name, Minor::V1_34))
                    .to_vec(),
                native_proxy: false,
                cable: false,
            },
            Setting::Cable => ClusterSpec {
                name: "cable",
                servers: vec![
                    ServerSpec::new("c", Minor::V1_36, "policy/v1=false"),
                    ServerSpec::new("b", Minor::V1_34, "batch/v1=false"),
                    ServerSpec::new("a", Minor::V1_36, "api/all=true,autoscaling/v2=false"),
                ],
                native_proxy: false,
                cable: true,
            },
            Setting::Native => ClusterSpec {
                name: "native",
                servers: vec![
                    ServerSpec::new("a", Minor::V1_36, "api/all=true,autoscaling/v2=false"),
                    ServerSpec::new("b", Minor::V1_36, "batch/v1=false"),
                    ServerSpec::new("c", Minor::V1_34, "policy/v1=false"),
                ],
                native_proxy: true,
                cable: false,
            },
            Setting::Interop => {
                let mut a =
                    ServerSpec::new("a", Minor::V1_36, "policy/v1=false,autoscaling/v2=false");
                a.advertises_gateway = true;
                let mut b =
                    ServerSpec::new("b", Minor::V1_36, "batch/v1=false,autoscaling/v2=false");
                b.bare = true;
                let c = ServerSpec::new("c", Minor::V1_36, "batch/v1=false,policy/v1=false");
                let servers = vec![a, b, c];
                ClusterSpec { name: "interop", servers, native_proxy: true, cable: false }
            }
            Setting::Recorded => {
                let (api, gates) = (
                    "internal.apiserver.k8s.io/v1alpha1=true",
                    "--feature-gates=APIServerIdentity=true,StorageVersionAPI=true",
                );
                let mut a = ServerSpec::new("a", Minor::V1_34, api);
                a.flags.push(gates.to_owned());
                let more = format!("{api},scheduling.k8s.io/v1alpha2=true");
                let mut b = ServerSpec::new("b", Minor::V1_36, &more);
                let more = "GenericWorkload=true,UnknownVersionInteroperabilityProxy=false";
                b.flags.push(format!("{gates},{more}"));
                b.bare = true;
                let servers = vec![a, b];
                ClusterSpec { name: "recorded", servers, native_proxy: false, cable: false }
            }
            Setting::Emulated => {
                let a = ServerSpec::new("a", Minor::V1_34, "autoscaling/v2=false");
                let mut b = ServerSpec::new("b", Minor::V1_36, "autoscaling/v2=true");
                b.flags.push("--emulated-version=1.34".to_owned());
                let c = ServerSpec::new("c", Minor::V1_36, "autoscaling/v2=true");
                let servers = vec![a, b, c];
                ClusterSpec { name: "emulated", servers, native_proxy: false, cable: false }
            }
            Setting::Versions => versions(),
            Setting::Cbor => cbor(),
            Setting::Node => no_servers("node"),
            Setting::Kubeadm => no_servers("kubeadm"),
        }
    }
}

/// A cluster without servers: the case makes its own.
fn no_servers(name: &'static str) -> ClusterSpec {
    ClusterSpec { name, servers: Vec::new(), native_proxy: false, cable: false }
}

/// A server that serves CBOR, and an older one.
fn cbor() -> ClusterSpec {
    let a = ServerSpec::new("a", Minor::V1_37, "policy/v1=false")
        .with_flag("--feature-gates=CBORServingAndStorage=true");
    let b = ServerSpec::new("b", Minor::V1_34, "batch/v1=false");
    ClusterSpec { name: "cbor", servers: vec![a, b], native_proxy: false, cable: false }
}

/// Servers of four versions.
fn versions() -> ClusterSpec {
    let none = "flowcontrol.apiserver.k8s.io/v1=false";
    let mut servers = vec![
        ServerSpec::new("a", Minor::V1_37, &format!("policy/v1=false,{none}")),
        ServerSpec::new("b", Minor::V1_36, &format!("batch/v1=false,{none}")),
        ServerSpec::new("c", Minor::V1_35, &format!("autoscaling/v2=false,{none}")),
        ServerSpec::new("d", Minor::Oldest, "api/beta=true"),
    ];
    // The oldest cannot read the stored priority levels of the others, and would never
    // be ready.
    for server in &mut servers {
        server.flags.push("--enable-priority-and-fairness=false".to_owned());
    }
    ClusterSpec { name: "versions", servers, native_proxy: false, cable: false }
}

/// Runs the cases whose names start with one of these words, or all of the level. Returns whether
/// all passed.
pub(crate) async fn run(
    wanted: &[String],
    level: Level,
    report: Option<PathBuf>,
) -> anyhow::Result<bool> {
    let whole = wanted.is_empty();
    let is_wanted = |case: &Case| {
        (whole && case.level <= level)
            || wanted.iter().any(|word| case.name.starts_with(word.as_str()))
    };
    let cases: Vec<Case> = cases::all().into_iter().filter(is_wanted).collect();
    for word in wanted {
        let known = cases.iter().any(|case| case.name.starts_with(word.as_str()));
        ensure!(known, "no case name starts with `{word}`; run `e2e list` to see all");
    }
    let programs = Programs::get_with(&needs(&cases))?;
    if let Some(status) = isolate(&programs)? {
        return Ok(status.success());
    }
    let started = Instant::now();
    let folder = tempfile::Builder::new().prefix("mvp-e2e-").tempdir()?;
    let mut rows = Vec::new();

    for setting in Setting::ALL {
        let cases: Vec<&Case> = cases.iter().filter(|case| case.setting == setting).collect();
        if !cases.is_empty() {
            run_on(setting, &cases, &programs, folder.path(), &mut rows).await;
        }
    }
    let report_of_run = Report {
        rows,
        command: level.command(),
        programs: programs.described(),
        minutes: started.elapsed().as_secs_f64() / 60.0,
    };
    print!("\n{}", report_of_run.table());
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join(level.report());
    let file = report.or_else(|| whole.then(usual));
    if let Some(file) = file {
        std::fs::write(&file, report_of_run.markdown())
            .with_context(|| format!("cannot write {file:?}"))?;
    }
    let passed = report_of_run.passed();
    if !passed {
        eprintln!("e2e: logs and audit logs are in {}", folder.keep().display());
    }
    Ok(passed)
}

/// The programs that these cases need.
pub(crate) fn needs(cases: &[Case]) -> Needs {
    let servers = cases.iter().flat_map(|case| case.setting.spec().servers);
    Needs {
        servers: servers.map(|server| server.minor).collect(),
        clients: ["clients/", "demo/informers", "door/sslyze"]
            .iter()
            .any(|group| cases.iter().any(|case| case.name.starts_with(group))),
        upstream: cases.iter().any(|case| case.name.starts_with("upstream/")),
        prometheus: cases.iter().any(|case| case.name == "ask/alerts"),
        browser: cases.iter().any(|case| case.name.starts_with("ask/dashboard")),
        nodes: cases.iter().any(|case| case.setting == Setting::Kubeadm),
    }
}

/// Runs the suite in a network namespace of its own, where possible: nothing is visible outside,
/// and hosts can be cut off.
fn isolate(programs: &Programs) -> anyhow::Result<Option<ExitStatus>> {
    if std::env::var_os(ISOLATED).is_some() {
        return Ok(None);
    }
    let unshare = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", script]);
        command
    };
    if !unshare("ip link set lo up").output().is_ok_and(|output| output.status.success()) {
        eprintln!("running without a network namespace: it needs root and `ip` of iproute2");
        return Ok(None);
    }
    let status = unshare("ip link set lo up && exec \"$0\" \"$@\"")
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ISOLATED, "1")
        .env("MVP_TEST_BINARY", &programs.mvp)
        .status()?;
    Ok(Some(status))
}

async fn run_on(
    setting: Setting,
    cases: &[&Case],
    programs: &Programs,
    folder: &Path,
    rows: &mut Vec<Row>,
) {
    let spec = setting.spec();
    let folder = folder.join(spec.name);
    let started = Instant::now();
    eprintln!("starting the cluster `{}`", spec.name);
    let mut cluster = match Cluster::start(&spec, programs, &folder).await {
        Ok(cluster) => cluster,
        Err(error) => {
            let failed = |case: &&Case| Row::failed(case.name, &error);
            rows.extend(cases.iter().map(failed));
            eprintln!("fail  the cluster did not start: {error:#}");
            return;
        }
    };
    eprintln!("the cluster is ready after {:.0} s", started.elapsed().as_secs_f64());
    for case in cases {
        let started = Instant::now();
        let outcome = run_case(case, &mut cluster).await;
        let took = started.elapsed().as_secs_f64();
        match outcome {
            Ok(figures) => {
                eprintln!("pass  {:30} {took:5.1} s  {figures}", case.name);
                rows.push(Row::passed(case.name, figures));
            }
            Err(error) => {
                eprintln!("fail  {:30} {took:5.1} s  {error:#}", case.name);
                for server in &cluster.servers {
                    let log = folder.join(format!("{}.mvp.log", server.name()));
                    eprint!("{}", warnings(server.name(), &log, 3));
                }
                rows.push(Row::failed(case.name, &error));
            }
        }
    }
}

/// Runs one case. A panic or a timeout is a failure of that case only.
async fn run_case(case: &Case, cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.heal().await.context("the cluster did not recover from the previous case")?;
    let run = AssertUnwindSafe((case.run)(cluster)).catch_unwind();
    let deadline = case.level.deadline();
    match tokio::time::timeout(deadline, run).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => anyhow::bail!("the case panicked"),
        Err(_) => anyhow::bail!("the case timed out after {} s", deadline.as_secs()),
    }
}

/// The last warnings of a gateway.
fn warnings(name: &str, log: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let is_warning = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let mut last: Vec<&str> = text.lines().rev().filter(is_warning).take(count).collect();
    last.reverse();
    let short = |line: &&str| line.chars().take(240).collect::<String>();
    last.iter().map(|line| format!("      {name}: {}\n", short(line))).collect()
}
