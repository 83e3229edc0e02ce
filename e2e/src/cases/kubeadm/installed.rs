//! `mvp` on the cluster, installed and removed as docs/install.md says. Entry item:
//! [`Installed::apply`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::until;
use tokio::process::Command;

use crate::kubeadm::{Lab, Node};
use crate::load::Sentinel;

/// The time limit for a change of the DaemonSet.
const ROLLED_OUT: Duration = Duration::from_secs(120);

/// For connections that are never at rest. kubectl gives up after a minute.
const ADOPT_TIME: &str = "--timeout=30s";

/// How long `mvp` hangs on a node: longer than kubelet gives kube-apiserver's probes.
const HANG: Duration = Duration::from_secs(180);

/// The time after which new connections reach kube-apiserver, whatever `mvp` does. The program says
/// 250 ms; requests in flight before do not count.
const FAILS_OPEN: Duration = Duration::from_millis(500);

/// Where `mvp` could leave something on a node. The first has every change outside of /var, /run and
/// /tmp.
const PLACES: [&str; 3] = ["/run/changes", "/run", "/var/lib/kubelet/pods"];

/// The manifest that users apply.
fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/mvp.yaml")
}

/// The whole name of the image in the manifest.
pub(super) fn image() -> anyhow::Result<String> {
    let file = manifest();
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file:?}"))?;
    let name = text.lines().find_map(|line| line.trim().strip_prefix("image: "));
    Ok(format!("docker.io/library/{}", name.context("deploy/mvp.yaml names no image")?))
}

/// A cluster with `mvp`.
pub(super) struct Installed<'a> {
    lab: &'a Lab,
    /// The static pod manifests as kubeadm wrote them, by node and file.
    manifests: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// The IDs of the pods of `mvp`, by name.
    pods: BTreeMap<String, String>,
}

impl<'a> Installed<'a> {
    /// `kubectl apply`, until `mvp` is ready on every node and steers its connections.
    pub(super) async fn apply(lab: &'a Lab) -> anyhow::Result<Installed<'a>> {
        let (manifests, pods) = (BTreeMap::new(), BTreeMap::new());
        let mut installed = Installed { lab, manifests, pods };
        lab.nodes.iter().try_for_each(|node| installed.note_manifests(node))?;
        let started = Instant::now();
        installed.kubectl("apply").await?;
        installed.ready().await?;
        for node in &lab.nodes {
            until(&format!("steering on {}", node.name), ROLLED_OUT, async || {
                Ok(node.has_steering()?.then_some(()))
            })
            .await?;
        }
        eprintln!("      mvp installed in {:.0} s", started.elapsed().as_secs_f64());
        installed.pods = installed.pods().await?;
        installed.manifests_are_kubeadms()?;
        Ok(installed)
    }

    async fn kubectl(&self, verb: &str) -> anyhow::Result<String> {
        let file = manifest();
        self.lab.kubectl.run([verb.as_ref(), "-f".as_ref(), file.as_os_str()], None).await
    }

    /// Waits until the DaemonSet has a ready pod on each node.
    async fn ready(&self) -> anyhow::Result<()> {
        let path = "/apis/apps/v1/namespaces/kube-system/daemonsets/mvp";
        until("the DaemonSet is ready", ROLLED_OUT, async || {
            let set = self.lab.admin.get(self.lab.balancer(), path).await?.expect(200)?;
            let count = |field: &str| set.pointer(&format!("/status/{field}")).cloned();
            let counts = (count("desiredNumberScheduled"), count("numberAvailable"));
            let all = Some(Value::from(self.lab.nodes.len()));
            ensure!(counts == (all.clone(), all), "{}", set.pointer("/status").unwrap_or(&set));
            Ok(Some(()))
        })
        .await
    }

    /// The pods of `mvp`: names and IDs.
    async fn pods(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let list = self.list_pods().await?;
        let text = |pod: &Value, pointer| {
            pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let both = |pod| (text(pod, "/metadata/name"), text(pod, "/metadata/uid"));
        Ok(list.iter().map(both).collect())
    }

    async fn list_pods(&self) -> anyhow::Result<Vec<Value>> {
        let path =
            "/api/v1/namespaces/kube-system/pods?labelSelector=app.kubernetes.io%2Fname%3Dmvp";
        let list = self.lab.admin.get(self.lab.balancer(), path).await?.expect(200)?;
        Ok(list.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    /// Ends the connections from before on every node, as an operator does. Returns what was ended
    /// and what is left: connections that are never at rest stay.
    pub(super) async fn adopt(&self) -> anyhow::Result<String> {
        let (mut ended, mut left) = (0, 0);
        for pod in self.pods.keys() {
            let words = ["exec", "-n", "kube-system", pod, "--", "mvp", "adopt"];
            let words = [&words[..], &[ADOPT_TIME, "--output=json"]].concat();
            let printed = self.lab.kubectl.try_run(&words, None).await?;
            let report: Value = serde_json::from_str(&printed.out)
                .with_context(|| format!("mvp adopt in {pod}: {}", printed.errors.trim()))?;
            ended += report.get("ended").and_then(Value::as_u64).context("no count")?;
            let busy = report.get("connections").and_then(Value::as_array);
            left += busy.map_or(0, Vec::len);
            for busy in busy.into_iter().flatten() {
                eprintln!("      not adopted on the node of {pod}: {busy}");
            }
        }
        ensure!(ended > 0, "mvp adopt ended no connection");
        Ok(format!("mvp adopt ended {ended} connections, {left} were busy"))
    }

    /// Stops `mvp` on a node for minutes: kube-apiserver must stay, and serve at once.
    pub(super) async fn stop_on_a_node(&self) -> anyhow::Result<String> {
        let node = self.lab.nodes.last().context("no node")?;
        let before = self.restarts(node).await?;
        let processes = node.processes("mvp")?;
        ensure!(!processes.is_empty(), "no mvp on {}", node.name);
        for process in &processes {
            signal("STOP", *process).await?;
        }
        let from = Instant::now() + FAILS_OPEN;
        let asks = Sentinel::start(&self.lab.admin, &[node.server()], "/api/v1/namespaces/default");
        tokio::time::sleep(HANG).await;
        let tally = asks.between(from, Instant::now());
        drop(asks);
        // kubelet may have replaced the container meanwhile, which hangs.
        for process in node.processes("mvp")? {
            signal("CONT", process).await?;
        }
        let after = self.restarts(node).await?;
        ensure!(before == after, "kube-apiserver restarted {before} times, then {after}");
        tally.only(&["200"]).context("requests to a node whose mvp hangs")?;
        self.ready().await?;
        Ok(format!(
            "mvp stopped for {} s: kube-apiserver not restarted, requests {tally}",
            HANG.as_secs()
        ))
    }

    /// How often kubelet restarted kube-apiserver on a node.
    async fn restarts(&self, node: &Node) -> anyhow::Result<u64> {
        let path = format!("/api/v1/namespaces/kube-system/pods/kube-apiserver-{}", node.name);
        let pod = self.lab.admin.get(self.lab.balancer(), &path).await?.expect(200)?;
        let restarts = pod.pointer("/status/containerStatuses/0/restartCount");
        restarts.and_then(Value::as_u64).context("kube-apiserver has no status")
    }

    /// Notes what kubeadm wrote on a node.
    pub(super) fn note_manifests(&mut self, node: &Node) -> anyhow::Result<()> {
        self.manifests.insert(node.name.clone(), read_manifests(node)?);
        Ok(())
    }

    fn manifests_are_kubeadms(&self) -> anyhow::Result<()> {
        for node in &self.lab.nodes {
            let same = self.manifests.get(&node.name) == Some(&read_manifests(node)?);
            ensure!(same, "the static pod manifests of {} changed", node.name);
        }
        Ok(())
    }

    /// After an upgrade: the pods of before, all ready, and steering on each node.
    pub(super) async fn survived(&self) -> anyhow::Result<String> {
        self.ready().await?;
        let pods = self.pods().await?;
        ensure!(pods == self.pods, "the pods were {:?}, and are {pods:?}", self.pods);
        for node in &self.lab.nodes {
            ensure!(node.has_steering()?, "no steering on {}", node.name);
        }
        let restarts: u64 = self
            .list_pods()
            .await?
            .iter()
            .filter_map(|pod| pod.pointer("/status/containerStatuses/0/restartCount")?.as_u64())
            .sum();
        Ok(format!("the pods of mvp stayed, {restarts} restarts of their containers"))
    }

    /// `kubectl delete`: afterwards the nodes are as before.
    pub(super) async fn delete(&self) -> anyhow::Result<()> {
        let nodes = &self.lab.nodes;
        for node in nodes {
            ensure!(!files_of_mvp(node)?.is_empty(), "no files of mvp are found on {}", node.name);
        }
        self.kubectl("delete").await?;
        for node in nodes {
            until(&format!("mvp is gone from {}", node.name), ROLLED_OUT, async || {
                ensure!(!node.has_steering()?, "steering is left");
                let processes = node.processes("mvp")?;
                ensure!(processes.is_empty(), "processes are left: {processes:?}");
                Ok(Some(()))
            })
            .await?;
            let answer = self.lab.admin.get(node.server(), "/readyz").await?;
            answer.expect(200).with_context(|| format!("{} after the removal", node.name))?;
        }
        self.manifests_are_kubeadms()?;
        until("the Leases of mvp are gone", ROLLED_OUT, async || {
            let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
            let list = self.lab.admin.get(self.lab.balancer(), leases).await?.expect(200)?;
            let names = list.pointer("/items").and_then(Value::as_array).into_iter().flatten();
            let names = names.filter_map(|lease| lease.pointer("/metadata/name")?.as_str());
            let ours: Vec<&str> = names.filter(|name| name.starts_with("mvp-")).collect();
            ensure!(ours.is_empty(), "{ours:?}");
            Ok(Some(()))
        })
        .await?;
        for node in nodes {
            // kubelet removes the folder of a pod some time after it.
            until(
                &format!("the files of mvp are gone from {}", node.name),
                ROLLED_OUT,
                async || {
                    let files = files_of_mvp(node)?;
                    ensure!(files.is_empty(), "{files:?}");
                    Ok(Some(()))
                },
            )
            .await?;
        }
        Ok(())
    }
}

fn read_manifests(node: &Node) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let folder = node.file("/etc/kubernetes/manifests");
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {folder:?}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, std::fs::read(entry.path())?);
    }
    Ok(files)
}

/// Files below these folders of a node whose name has `mvp` in it.
fn files_of_mvp(node: &Node) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in PLACES {
        let folder = node.file(folder);
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {folder:?}"))?;
        found.extend(named_mvp(&folder));
    }
    Ok(found)
}

/// Files below a folder whose name has `mvp` in it. A folder may go while we look.
fn named_mvp(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().contains("mvp") {
            found.push(entry.path());
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(named_mvp(&entry.path()));
        }
    }
    found
}

async fn signal(name: &str, process: u32) -> anyhow::Result<()> {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().await;
    ensure!(sent.context("cannot run kill")?.success(), "cannot send {name} to {process}");
    Ok(())
}
