//! Real clients at a server without the API: through its gateway they discover, create, watch and
//! delete objects. Directly at that server each of them fails.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::objects::{self, Kind};
use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::programs::python_folder;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "clients/client-go",
            client_go,
            "RESTMapper, informers and CRUD of client-go, for an API the server lacks"
        ),
        case!(
            Mixed,
            "clients/python",
            python,
            "discovery, watch and CRUD of the Python client, for an API the server lacks"
        ),
        case!(
            Mixed,
            "clients/old-kubectl",
            old_kubectl,
            "the kubectl of Debian, which knows only legacy discovery"
        ),
    ]
}

const DEADLINE: Duration = Duration::from_secs(120);

/// The APIs that a server lacks and peers serve, with a namespace.
fn lacking(namespace: &'static str) -> [(&'static str, &'static str, Kind); 3] {
    let cluster_wide = format!("e2e-{namespace}");
    [
        ("b", namespace, objects::job(namespace, "one")),
        ("c", namespace, objects::disruption_budget(namespace, "one")),
        ("b", "", objects::mutating_policy(&cluster_wide)),
    ]
}

async fn client_go(cluster: &mut Cluster) -> anyhow::Result<String> {
    let program = cluster.programs.clients.client_go()?.to_owned();
    let missing = "no matches for kind";
    story(cluster, "client-go", &[&program], missing).await
}

async fn python(cluster: &mut Cluster) -> anyhow::Result<String> {
    let python = cluster.programs.clients.python()?.to_owned();
    let program = python_folder().join("client.py");
    story(cluster, "python", &[&python, &program], "ResourceNotFoundError").await
}

/// Runs a test client with a kubeconfig, a namespace and, as its input, an object.
async fn story(
    cluster: &Cluster,
    namespace: &'static str,
    program: &[&Path],
    missing: &str,
) -> anyhow::Result<String> {
    cluster.namespace(namespace).await?;
    let mut said = Vec::new();
    for (name, namespace, kind) in lacking(namespace) {
        let server = cluster.server(name)?;
        let what = format!("{} at {name}", kind.name);
        let run = async |to: SocketAddr| {
            let kubeconfig = cluster.kubeconfig("admin", to)?;
            let arguments = [kubeconfig.as_path(), Path::new(namespace)];
            run(program, &arguments, &kind.object).await
        };
        let directly = run(server.direct()).await;
        let Err(error) = directly else { bail!("{what} directly: it worked") };
        let error = format!("{error:#}");
        ensure!(error.contains(missing), "{what} directly: another failure: {error}");
        said.push(run(server.through()).await.with_context(|| format!("{what} through mvp"))?);
    }
    Ok(format!("3 kinds: {}; directly each: {missing}", said.join("; ")))
}

/// What it printed, or why it failed.
async fn run(program: &[&Path], arguments: &[&Path], input: &Value) -> anyhow::Result<String> {
    let (program, first) = program.split_first().context("no program")?;
    let mut child = Command::new(program)
        .args(first)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {program:?}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.to_string().as_bytes()).await?;
    }
    let output = timeout(DEADLINE, child.wait_with_output()).await.context("it hangs")??;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it failed: {}", errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// kubectl of 1.20: discovery is only what `/api`, `/apis` and each `/apis/GROUP/VERSION` say.
async fn old_kubectl(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("old-kubectl").await?;
    let program = cluster.programs.clients.old_kubectl()?;
    let at =
        |to: SocketAddr| Kubectl::new(program, &cluster.kubeconfig("admin", to)?, cluster.folder());
    let mut commands = 0;
    for (name, namespace, kind) in lacking("old-kubectl") {
        let server = cluster.server(name)?;
        let what = format!("{} through {name}", kind.name);
        let directly = at(server.direct())?.try_run(&["get", kind.name], None).await?;
        let missing = "doesn't have a resource type";
        ensure!(!directly.ok && directly.errors.contains(missing), "{name}: {directly:?}");

        let kubectl = at(server.through())?;
        let named = kind.object.pointer("/metadata/name").and_then(Value::as_str);
        let named = named.context("no name")?;
        let mut run = async |arguments: &[&str], input: Option<&str>| {
            commands += 1;
            let namespace = if namespace.is_empty() { "default" } else { namespace };
            let in_namespace = ["-n", namespace];
            let arguments = in_namespace.iter().chain(arguments).copied();
            kubectl.run(arguments, input).await.context(what.clone())
        };
        // Validation needs the OpenAPI document of the server that has the kind.
        run(&["create", "--validate=false", "-f", "-"], Some(&kind.object.to_string())).await?;
        let got = run(&["get", kind.name, named, "-o", "name"], None).await?;
        ensure!(got.trim().ends_with(&format!("/{named}")), "get printed {got}");
        run(&["label", kind.name, named, "by=kubectl"], None).await?;
        let labelled = run(&["get", kind.name, "-l", "by=kubectl", "-o", "name"], None).await?;
        ensure!(labelled.trim().ends_with(&format!("/{named}")), "get -l printed {labelled}");
        // Waits with a watch until it is gone.
        run(&["delete", kind.name, named], None).await?;
        let left = run(&["get", kind.name, "-o", "name"], None).await?;
        ensure!(!left.contains(&format!("/{named}")), "still there: {left}");
    }
    let kubectl = at(cluster.server("b")?.through())?;
    let version = kubectl.run(["version", "--client", "-o", "json"], None).await?;
    let version: Value = serde_json::from_str(&version)?;
    let version = version.pointer("/clientVersion/gitVersion").and_then(Value::as_str);
    let version = version.context("no version")?.to_owned();
    let resources = kubectl.run(["api-resources", "-o", "name"], None).await?;
    for resource in ["jobs.batch", "mutatingadmissionpolicies.admissionregistration.k8s.io"] {
        ensure!(resources.lines().any(|line| line == resource), "no {resource}: {resources}");
    }
    let count = resources.lines().count();
    Ok(format!("{version}: {commands} commands on 3 kinds; api-resources through 1.34: {count}"))
}
