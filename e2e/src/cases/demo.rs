//! The embedded control plane of `mvp demo`, used with the real kubectl and compared with a real
//! server of the same release; docs/demo.md lists the differences. And informers of real clients
//! during an upgrade of its servers.

mod informers;
mod script;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::{Process, Program, Signal, until};

use crate::cluster::Cluster;
use crate::kubectl::{Kubectl, Printed};
use crate::suite::Case;
use script::{Compare, STEPS, Step, words};

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "demo/kubectl",
            kubectl_script,
            "a script of kubectl commands at `mvp demo` and at a real server of the same release"
        ),
        case!(
            Mixed,
            "demo/informers-kube-rs",
            informers::kube_rs,
            "a reflector of kube-rs during a rolling upgrade of `mvp demo`"
        ),
        case!(
            Mixed,
            "demo/informers-python",
            informers::python,
            "an informer of the Python client during a rolling upgrade of `mvp demo`"
        ),
        case!(
            Mixed,
            "demo/informers-node",
            informers::node,
            "an informer of client-node during a rolling upgrade of `mvp demo`"
        ),
    ]
}

const DEADLINE: Duration = Duration::from_secs(30);

async fn kubectl_script(cluster: &mut Cluster) -> anyhow::Result<String> {
    let demo = Demo::start(cluster).await?;
    let real = cluster.kubeconfig("admin", cluster.server("a")?.direct())?;
    let program = cluster.programs.kubectl();
    let real = Kubectl::new(&program, &real, cluster.folder())?;
    let embedded = Kubectl::new(&program, &demo.kubeconfig, cluster.folder())?;

    let (mut alike, mut different) = (0, Vec::new());
    for step in STEPS {
        let expected = run(&real, step, &[]).await?;
        let got = run(&embedded, step, &["--context", &demo.context]).await?;
        match difference(step, &expected, &got) {
            None => alike += 1,
            Some(text) => different.push(format!("kubectl {}\n{text}", step.command)),
        }
    }
    demo.stop().await?;
    let count = STEPS.len();
    ensure!(count >= 60, "only {count} commands");
    ensure!(
        different.is_empty(),
        "{} of {count} commands differ:\n{}",
        different.len(),
        different.join("\n")
    );
    let outputs = STEPS.iter().filter(|step| step.compare == Compare::Output).count();
    Ok(format!("{alike} commands end as at a real 1.36, {outputs} of them with the same output"))
}

async fn run(kubectl: &Kubectl, step: &Step, more: &[&str]) -> anyhow::Result<Printed> {
    let words = words(step.command);
    let arguments: Vec<&str> =
        more.iter().copied().chain(words.iter().map(String::as_str)).collect();
    let what = || format!("kubectl {}", step.command);
    kubectl.try_run(&arguments, step.input).await.with_context(what)
}

/// What differs, unless nothing that matters does.
fn difference(step: &Step, expected: &Printed, got: &Printed) -> Option<String> {
    let said = |printed: &Printed| match printed.ok {
        true => script::plain(&printed.out),
        false => script::plain(&printed.errors),
    };
    let (real, embedded) = (said(expected), said(got));
    let same = expected.ok == got.ok && (step.compare == Compare::Outcome || real == embedded);
    (!same)
        .then(|| format!("--- real ({})\n{real}\n+++ demo ({})\n{embedded}", expected.ok, got.ok))
}

/// A running `mvp demo`.
struct Demo {
    process: Process,
    kubeconfig: PathBuf,
    /// The context of the newest server.
    context: String,
    input: ChildStdin,
    /// The lines of its output that have been read.
    lines: usize,
}

impl Demo {
    async fn start(cluster: &Cluster) -> anyhow::Result<Demo> {
        let log = cluster.folder().join("demo.log");
        let program = Program::new("mvp demo", &cluster.programs.mvp);
        let out = File::create(&log)?;
        let mut command = program.command()?;
        command.args(["demo", "-o", "json", "--port-base", "0"]).stdin(Stdio::piped());
        let mut child = command.stdout(out.try_clone()?).stderr(out).spawn()?;
        let input = child.stdin.take().context("no standard input")?;
        let mut process = Process::new("mvp demo", child, &log);
        let introduction = until("the demo is ready", DEADLINE, async || {
            process.check()?;
            let text = std::fs::read_to_string(&log)?;
            let line = text.lines().next().filter(|_| text.contains('\n'));
            Ok(line.map(serde_json::from_str::<Value>).transpose()?)
        });
        let introduction = introduction.await?;
        let servers =
            introduction.get("servers").and_then(Value::as_array).context("no servers")?;
        let text = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let newest = servers.iter().find(|server| text(server, "version").starts_with("v1.36"));
        let context = text(newest.context("no server of 1.36")?, "id");
        let kubeconfig = PathBuf::from(text(&introduction, "kubeconfig"));
        Ok(Demo { process, kubeconfig, context, input, lines: 1 })
    }

    /// Upgrades its next server, as Enter does.
    fn press_enter(&mut self) -> anyhow::Result<()> {
        Ok(self.input.write_all(b"\n")?)
    }

    /// The server that has restarted since the last call, if one has.
    fn restarted(&mut self) -> anyhow::Result<Option<String>> {
        self.process.check()?;
        let text = std::fs::read_to_string(self.process.log())?;
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let Some(line) = complete.lines().nth(self.lines) else { return Ok(None) };
        self.lines += 1;
        let line: Value = serde_json::from_str(line)?;
        let restarted = line.get("restarted").and_then(Value::as_str);
        Ok(Some(restarted.with_context(|| format!("the demo says {line}"))?.to_owned()))
    }

    /// Ends it as Ctrl-C does. It leaves no files.
    async fn stop(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::INT)?;
        let status = self.process.exited(DEADLINE).await?;
        ensure!(status.success(), "the demo ended with {status}");
        ensure!(!self.kubeconfig.exists(), "{:?} is left", self.kubeconfig);
        Ok(())
    }
}
