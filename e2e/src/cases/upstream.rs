//! The e2e suite of Kubernetes, at the newest server and through the gateway of an older one. What
//! passes directly must pass through the gateway.

mod kubelet;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use testkit::process::Program;

use crate::cluster::Cluster;
use crate::suite::Case;
use kubelet::Kubelet;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        full Mixed,
        "upstream/api-machinery",
        api_machinery,
        "Kubernetes' own e2e suite, at 1.36 and through the gateway of a 1.34 without batch/v1"
    )]
}

/// The specs to run.
const FOCUS: &str = r"\[sig-api-machinery\]|API operations";

/// The specs that cannot pass here, whatever the server: they need containers that run, an API server
/// that can be stopped, a feature gate, or many minutes. "should mutate a Deployment" waits forever
/// through the gateway: a 1.34 does not enforce the MutatingAdmissionPolicies of 1.36
/// (docs/upgrade.md).
const SKIP: &str = r"\[Feature:|\[FeatureGate:|\[Disruptive\]|\[Flaky\]|\[Slow\]|AdmissionWebhook|Aggregator|CustomResourceConversionWebhook|CustomResourceFieldSelectors|Aggregated APIServer|sample-apiserver|drowned out|created by cronjob|should mutate a Deployment";

/// Specs that pass at 1.36 and fail through the gateway of a 1.34, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[(
    "health handlers should contain necessary checks",
    "it requests the health checks of 1.36 from a server of 1.34",
)];

/// The smallest number of specs that a run of the suite consists of. Fewer prove nothing.
const MIN_PASSED: usize = 80;

const DEADLINE: Duration = Duration::from_secs(1700);

/// The specs of one run, by name.
#[derive(Debug, Default)]
struct Outcome {
    passed: BTreeSet<String>,
    /// With the message of the failure.
    failed: BTreeMap<String, String>,
}

async fn api_machinery(cluster: &mut Cluster) -> anyhow::Result<String> {
    let (newest, older) = (cluster.server("a")?.direct(), cluster.server("b")?.through());
    let kubelet = Kubelet::start(cluster.admin.clone(), newest).await?;
    let directly = run_suite(cluster, "directly", newest).await.context("directly")?;
    let through = run_suite(cluster, "through", older).await.context("through the gateway")?;
    kubelet.stop();

    let count = directly.passed.len();
    ensure!(count >= MIN_PASSED, "only {count} passed directly; failed: {:?}", directly.failed);
    let exception = |spec: &str| EXCEPTIONS.iter().find(|(part, _)| spec.contains(part));
    let worse: Vec<String> = directly
        .passed
        .difference(&through.passed)
        .filter(|spec| exception(spec).is_none())
        .map(|spec| {
            let why = through.failed.get(spec).map_or("it did not run", String::as_str);
            format!("{spec}: {why}")
        })
        .collect();
    ensure!(worse.is_empty(), "passes directly, fails through mvp:\n  {}", worse.join("\n  "));
    let excepted = directly.passed.difference(&through.passed).count();
    Ok(format!(
        "directly {count} passed, {} failed; through mvp {} passed, {} failed, of which {excepted} \
         pass directly and are explained",
        directly.failed.len(),
        through.passed.len(),
        through.failed.len(),
    ))
}

/// Runs the suite at one address, with a controller manager at the same address.
async fn run_suite(cluster: &Cluster, name: &str, to: SocketAddr) -> anyhow::Result<Outcome> {
    let mut controllers = cluster.all_controllers(&format!("upstream-{name}"), to)?;
    let report = cluster.folder().join(format!("upstream-{name}.json"));
    let arguments = [
        format!("--kubeconfig={}", cluster.kubeconfig("admin", to)?.display()),
        format!("--kubectl-path={}", cluster.programs.kubectl().display()),
        "--provider=skeleton".to_owned(),
        "--allowed-not-ready-nodes=-1".to_owned(),
        "--minStartupPods=0".to_owned(),
        "--dump-logs-on-failure=false".to_owned(),
        format!("--ginkgo.focus={FOCUS}"),
        format!("--ginkgo.skip={SKIP}"),
        // The same order in both runs.
        "--ginkgo.seed=1".to_owned(),
        "--ginkgo.no-color".to_owned(),
        format!("--ginkgo.timeout={}s", DEADLINE.as_secs() - 60),
        format!("--ginkgo.json-report={}", report.display()),
    ];
    let log = cluster.folder().join(format!("upstream-{name}.log"));
    let program = Program::new("e2e.test", &cluster.programs.upstream_suite());
    let mut suite = program.start(&log, arguments)?;
    // Its exit code says whether all passed; the report says which.
    suite.exited(DEADLINE).await.with_context(|| suite.last_log_lines(20))?;
    controllers.check()?;
    outcome(&report).with_context(|| suite.last_log_lines(20))
}

/// Reads the report of a run.
fn outcome(report: &Path) -> anyhow::Result<Outcome> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Suite {
        spec_reports: Vec<Spec>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Spec {
        container_hierarchy_texts: Option<Vec<String>>,
        leaf_node_text: String,
        state: String,
        failure: Option<Failure>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Failure {
        message: String,
    }
    let text = std::fs::read(report).with_context(|| format!("cannot read {report:?}"))?;
    let suites: Vec<Suite> = serde_json::from_slice(&text)?;
    let mut outcome = Outcome::default();
    for spec in suites.into_iter().flat_map(|suite| suite.spec_reports) {
        let mut name = spec.container_hierarchy_texts.unwrap_or_default();
        name.push(spec.leaf_node_text);
        let name = name.join(" ");
        match spec.state.as_str() {
            "passed" => {
                outcome.passed.insert(name);
            }
            "skipped" | "pending" => {}
            other => {
                let message = spec.failure.map(|failure| failure.message).unwrap_or_default();
                let message: String = message.chars().take(300).collect();
                outcome.failed.insert(name, format!("{other}: {message}"));
            }
        }
    }
    Ok(outcome)
}
