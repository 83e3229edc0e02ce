//! One node: namespaces of its own, in which `e2e/kubeadm/node.sh` runs containerd and kubelet.
//! Entry item: [`Node::start`].

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use testkit::process::{Process, Program, until};
use tokio::process::Command;
use tokio::time::timeout;

use super::leftovers;
use crate::programs::NodePrograms;

/// Moves itself into control groups, and then runs the words after `--`.
const IN_GROUPS: &str = r#"
while [ "$1" != -- ]; do
    echo $$ >"$1/cgroup.procs"
    shift
done
shift
exec "$@"
"#;

/// The configuration of a node.
pub(super) struct NodeSpec<'a> {
    pub(super) name: String,
    pub(super) address: IpAddr,
    /// The address of the other end of its cable.
    pub(super) gateway: IpAddr,
    /// The lines of /etc/hosts.
    pub(super) hosts: &'a str,
    pub(super) folder: PathBuf,
    pub(super) groups: &'a [PathBuf],
    /// The image of pod sandboxes.
    pub(super) pause: &'a str,
    /// The folders of programs and images.
    pub(super) shown: &'a [PathBuf],
}

/// A running node. It ends when this is dropped.
pub(crate) struct Node {
    pub(crate) name: String,
    address: IpAddr,
    folder: PathBuf,
    path: String,
    /// The first process of the node.
    init: u32,
    process: Process,
}

impl Node {
    /// Starts a node, and connects it to the bridge.
    pub(super) async fn start(
        spec: NodeSpec<'_>,
        programs: &NodePrograms,
        bridge: &str,
    ) -> anyhow::Result<Node> {
        let NodeSpec { name, address, folder, .. } = spec;
        std::fs::create_dir_all(folder.join("bin"))?;
        spec.groups.iter().try_for_each(|group| leftovers::make(group))?;
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubeadm");
        let mut path = vec![folder.join("bin")];
        path.extend_from_slice(programs.runtime());
        let path = std::env::join_paths(path)?.to_string_lossy().into_owned();

        let log = folder.join("node.log");
        let output = std::fs::File::create(&log)?;
        let mut command = Program::new(&name, Path::new("sh")).command()?;
        command.args(["-c", IN_GROUPS, "node"]).args(spec.groups).arg("--");
        command.args(["unshare", "--mount", "--uts", "--ipc", "--pid", "--net", "--cgroup"]);
        command.args(["--fork", "--kill-child", "--mount-proc"]).arg(files.join("node.sh"));
        command
            .env("NODE_NAME", &name)
            .env("NODE_ADDRESS", format!("{address}/24"))
            .env("NODE_GATEWAY", spec.gateway.to_string())
            .env("NODE_HOSTS", spec.hosts)
            .env("NODE_FOLDER", &folder)
            .env("NODE_FILES", &files)
            .env("NODE_SHOWN", std::env::join_paths(spec.shown)?)
            .env("NODE_PATH", &path)
            .env("NODE_PAUSE", spec.pause)
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut process = Process::new(&name, command.spawn()?, &log);
        let init = until("the namespaces exist", Duration::from_secs(10), async || {
            process.check()?;
            first_child(process.id())
        })
        .await?;
        let end = init.to_string();
        ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &end]).await?;
        ip(&["link", "set", &name, "master", bridge, "up"]).await?;
        let node = Node { name, address, folder, path, init, process };
        until("containerd answers", Duration::from_secs(30), async || {
            node.run(&["ctr", "version"], Duration::from_secs(10)).await.map(Some)
        })
        .await
        .with_context(|| node.process.last_log_lines(5))?;
        Ok(node)
    }

    /// The address of its kube-apiserver.
    pub(crate) fn server(&self) -> SocketAddr {
        SocketAddr::new(self.address, 6443)
    }

    /// A file of the node, at a path from outside.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    /// Runs a command in the node. Fails with its output if it fails.
    pub(crate) async fn run(&self, words: &[&str], within: Duration) -> anyhow::Result<String> {
        let what = format!("{} on {}", words.join(" "), self.name);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init.to_string()])
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"])
            .args(words)
            .env("PATH", format!("{}:{path}", self.path))
            .env("KUBECONFIG", "/etc/kubernetes/admin.conf")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(within, command.output()).await;
        let output = output.with_context(|| format!("{what}: timed out after {within:?}"))??;
        let (out, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let logged = format!("$ {}\n{out}{errors}\n", words.join(" "));
        self.log(&logged)?;
        if !output.status.success() {
            let lines: Vec<&str> = out.lines().chain(errors.lines()).collect();
            let last = lines.get(lines.len().saturating_sub(12)..).unwrap_or_default();
            bail!("{what}: {}:\n{}", output.status, last.join("\n"));
        }
        Ok(out.into_owned())
    }

    /// Makes a program of this folder the one that the node runs from now on.
    pub(super) fn install(&self, program: &str, from: &Path) -> anyhow::Result<()> {
        let (link, next) = (self.folder.join("bin").join(program), self.folder.join("next"));
        let _ = std::fs::remove_file(&next);
        std::os::unix::fs::symlink(from.join(program), &next)?;
        std::fs::rename(&next, &link).with_context(|| format!("cannot link {link:?}"))
    }

    /// The processes of the node with this name, by their IDs outside.
    pub(crate) fn processes(&self, name: &str) -> anyhow::Result<Vec<u32>> {
        let namespace = |id: u32| std::fs::read_link(format!("/proc/{id}/ns/net")).ok();
        let ours = namespace(self.init);
        ensure!(ours.is_some(), "{} has ended", self.name);
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(id) = id else { continue };
            let comm = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            if comm.trim() == name && namespace(id) == ours {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// Whether a process of the machine has a BPF link of this node's network open. A link that
    /// nobody has open is gone, unless it is pinned to a file.
    pub(crate) fn has_steering(&self) -> anyhow::Result<bool> {
        let namespace = std::fs::metadata(format!("/proc/{}/ns/net", self.init))?;
        let inode = std::os::unix::fs::MetadataExt::ino(&namespace);
        let line = format!("netns_ino:\t{inode}");
        let open = std::fs::read_dir("/proc")?
            .flatten()
            .filter_map(|process| std::fs::read_dir(process.path().join("fdinfo")).ok())
            .flat_map(|files| files.flatten())
            .filter_map(|file| std::fs::read_to_string(file.path()).ok())
            .any(|text| text.lines().any(|of| of == line));
        Ok(open)
    }

    fn log(&self, text: &str) -> anyhow::Result<()> {
        let log = std::fs::File::options().append(true).open(self.process.log());
        Ok(std::io::Write::write_all(&mut log?, text.as_bytes())?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The kernel removes the interface some time after the namespace; the next lab needs its name.
        let _ = std::process::Command::new("ip").args(["link", "delete", &self.name]).output();
    }
}

/// The only child of a process, if it has one.
fn first_child(id: u32) -> anyhow::Result<Option<u32>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let child = text.split_whitespace().next().map(str::parse).transpose()?;
    // Before it has its own namespaces, it is still the shell or setpriv.
    let network = |id: u32| std::fs::read_link(format!("/proc/{id}/ns/net"));
    match child {
        Some(child) if network(child)? != network(std::process::id())? => Ok(Some(child)),
        _ => Ok(None),
    }
}

/// Runs `ip`.
pub(super) async fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().await;
    let output = output.context("cannot run ip, of iproute2")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), errors.trim());
    Ok(())
}
