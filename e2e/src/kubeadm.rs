//! A lab of three control plane nodes that the real kubeadm installs and upgrades, on this machine:
//! each in namespaces of its own, with containerd and kubelet, behind a load balancer. It needs
//! root, and control groups of version 1. Entry item: [`Lab::start`].

mod config;
mod image;
mod leftovers;
mod node;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::try_join_all;
use serde_json::Value;
use testkit::pki::PairFiles;
use testkit::process::until;
use testkit::programs::cache;

use crate::client::Client;
use crate::cluster::ISOLATED;
use crate::kubectl::Kubectl;
use crate::programs::{Minor, Programs};
use crate::relay::Relay;
use image::Image;
use leftovers::Cleaner;
pub(crate) use node::Node;
use node::{NodeSpec, ip};

const COUNT: u8 = 3;
const BRIDGE: &str = "lab";
const BALANCER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 254));
const STEP: Duration = Duration::from_secs(360);
const SETTLED: Duration = Duration::from_secs(240);

/// The static pods of a control plane node.
const STATIC_PODS: [&str; 4] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// A running cluster. Its nodes end when this is dropped, before everything else does.
pub(crate) struct Lab {
    pub(crate) nodes: Vec<Node>,
    pub(crate) admin: Client,
    pub(crate) kubectl: Kubectl,
    programs: Programs,
    balancer: Relay,
    _bridge: Bridge,
    _cleaner: Cleaner,
}

impl Lab {
    /// Makes a cluster of the first of these releases. Its nodes have the images of all, and `mvp`
    /// under this name.
    pub(crate) async fn start(
        programs: &Programs,
        releases: &[Minor],
        mvp: Option<&str>,
        folder: &Path,
    ) -> anyhow::Result<Lab> {
        let isolated = std::env::var_os(ISOLATED).is_some();
        ensure!(isolated, "kubeadm nodes need a network of their own: root, and `ip` of iproute2");
        let first = *releases.first().context("no release")?;
        let node_programs = programs.nodes()?;
        let (version, binaries) = node_programs.release(first)?;

        // What is left when the nodes have ended: groups, and folders of gigabytes.
        let names: Vec<String> = (1..=COUNT).map(|number| format!("node{number}")).collect();
        let unique = folder.parent().and_then(Path::file_name).unwrap_or_default();
        let group = |name: &String| format!("{}-{name}", unique.to_string_lossy());
        let groups: Vec<Vec<PathBuf>> =
            names.iter().map(|name| leftovers::groups(&group(name))).collect::<Result<_, _>>()?;
        let images = folder.join("images");
        let mut left = vec![images.clone()];
        left.extend(names.iter().map(|name| folder.join(name).join("lib")));
        left.extend(groups.iter().flatten().cloned());
        let cleaner = Cleaner::start(&left)?;

        let (archives, pause) = write_images(programs, releases, mvp, &images)?;
        let bridge = Bridge::make().await?;
        let hosts: Vec<String> =
            (1..).zip(&names).map(|(number, name)| format!("{} {name}", address(number))).collect();
        let hosts = hosts.join("\n");
        let mut nodes = Vec::new();
        for ((number, name), groups) in (1..).zip(names).zip(&groups) {
            let spec = NodeSpec {
                folder: folder.join(&name),
                name,
                address: address(number),
                gateway: BALANCER,
                hosts: &hosts,
                groups,
                pause: &pause,
                shown: &[cache()?, images.clone()],
            };
            let node = Node::start(spec, node_programs, BRIDGE).await?;
            node.install("kubeadm", binaries)?;
            node.install("kubelet", binaries)?;
            nodes.push(node);
        }
        try_join_all(nodes.iter().map(|node| import(node, &archives))).await?;
        let servers: Vec<SocketAddr> = nodes.iter().map(Node::server).collect();
        let at = SocketAddr::new(BALANCER, 6443);
        let mut balancer = Relay::start_at(at, &servers).await?;
        join_all(&nodes, version, at).await?;
        let (ca, admin, kubeconfig) = credentials(nodes.first().context("no node")?, folder)?;
        balancer.check_readyz(&Client::nobody(&ca)?, &servers);
        let kubectl = Kubectl::new(&programs.kubectl(), &kubeconfig, folder)?;
        let programs = programs.clone();
        let lab =
            Lab { nodes, admin, kubectl, programs, balancer, _bridge: bridge, _cleaner: cleaner };
        for node in &lab.nodes {
            lab.settled(node, version).await?;
        }
        Ok(lab)
    }

    /// The address for clients.
    pub(crate) fn balancer(&self) -> SocketAddr {
        self.balancer.address()
    }

    /// Upgrades one node as the documentation of kubeadm says: first kubeadm, with which the control
    /// plane of the node is upgraded, then kubelet.
    pub(crate) async fn upgrade(&self, node: &Node, to: Minor) -> anyhow::Result<()> {
        let (version, binaries) = self.programs.nodes()?.release(to)?;
        node.install("kubeadm", binaries)?;
        let is_first = self.nodes.first().is_some_and(|first| first.name == node.name);
        let ignore = "--ignore-preflight-errors=all";
        if is_first {
            node.run(&["kubeadm", "upgrade", "apply", version, "--yes", ignore], STEP).await?;
        } else {
            node.run(&["kubeadm", "upgrade", "node", ignore], STEP).await?;
        }
        node.install("kubelet", binaries)?;
        node.run(&["systemctl", "restart", "kubelet"], STEP).await?;
        self.settled(node, version).await
    }

    /// Waits until a node is Ready with this version, and all its static pods are.
    async fn settled(&self, node: &Node, version: &str) -> anyhow::Result<()> {
        let name = &node.name;
        until(&format!("{name} is well at {version}"), SETTLED, async || {
            let path = format!("/api/v1/nodes/{name}");
            let object = self.admin.get(self.balancer(), &path).await?.expect(200)?;
            let kubelet = object.pointer("/status/nodeInfo/kubeletVersion");
            ensure!(kubelet.and_then(Value::as_str) == Some(version), "kubelet is {kubelet:?}");
            ensure!(is_ready(&object), "the node is not ready");
            for pod in STATIC_PODS {
                let path = format!("/api/v1/namespaces/kube-system/pods/{pod}-{name}");
                let object = self.admin.get(self.balancer(), &path).await?.expect(200)?;
                ensure!(is_ready(&object), "{pod} is not ready");
                let image = object.pointer("/spec/containers/0/image").and_then(Value::as_str);
                let current = pod == "etcd" || image.is_some_and(|image| image.ends_with(version));
                ensure!(current, "{pod} runs {image:?}");
            }
            Ok(Some(()))
        })
        .await
    }
}

/// Whether the condition Ready of a node or pod is true.
pub(crate) fn is_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition.get("type").is_some_and(|kind| kind == "Ready")
            && condition.get("status").is_some_and(|status| status == "True")
    })
}

/// The address of a node.
fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 10 + number))
}

/// The network between the nodes, with the load balancer's address.
struct Bridge;

impl Bridge {
    async fn make() -> anyhow::Result<Bridge> {
        ip(&["link", "add", BRIDGE, "type", "bridge"]).await?;
        let bridge = Bridge;
        ip(&["address", "add", &format!("{BALANCER}/24"), "dev", BRIDGE]).await?;
        ip(&["link", "set", BRIDGE, "up"]).await?;
        Ok(bridge)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "delete", BRIDGE]).output();
    }
}

/// Writes the images that kubeadm asks for, and that of `mvp` as users get it. Returns the archives, and the name of the
/// image of pod sandboxes.
fn write_images(
    programs: &Programs,
    releases: &[Minor],
    mvp: Option<&str>,
    folder: &Path,
) -> anyhow::Result<(Vec<PathBuf>, String)> {
    std::fs::create_dir_all(folder)?;
    let (etcd, sleep) = (programs.etcd(), PathBuf::from("/usr/bin/sleep"));
    let mut wanted: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut pause = None;
    for minor in releases {
        let (version, binaries) = programs.nodes()?.release(*minor)?;
        let mut list = Command::new(binaries.join("kubeadm"));
        list.args(["config", "images", "list", "--kubernetes-version", version]);
        let output = list.output().context("cannot run kubeadm")?;
        for name in String::from_utf8_lossy(&output.stdout).lines() {
            let short = name.rsplit('/').next().and_then(|last| last.split(':').next());
            let program = match short.unwrap_or_default() {
                "etcd" => etcd.clone(),
                "pause" => {
                    pause.get_or_insert_with(|| name.to_owned());
                    sleep.clone()
                }
                short if STATIC_PODS.contains(&short) => binaries.join(short),
                // Not installed: pods of the lab use the host network.
                _ => continue,
            };
            wanted.insert(name.to_owned(), program);
        }
    }
    let mut archives = Vec::new();
    if let Some(name) = mvp {
        let archive = folder.join("mvp.tar");
        release::write_image(&programs.mvp, name, &archive).context("the image of mvp")?;
        archives.push(archive);
    }
    for (name, program) in &wanted {
        // Static pods name the program themselves.
        let arguments: &[&str] = if *program == sleep { &["infinity"] } else { &[] };
        archives.push(Image { name, program, arguments }.write(folder)?);
    }
    Ok((archives, pause.context("kubeadm names no pause image")?))
}

async fn import(node: &Node, archives: &[PathBuf]) -> anyhow::Result<()> {
    for archive in archives {
        let archive = archive.to_str().context("the folder's name is not UTF-8")?;
        let words = ["ctr", "--namespace=k8s.io", "images", "import", archive];
        node.run(&words, STEP).await?;
    }
    Ok(())
}

/// Runs `kubeadm init` and `kubeadm join`.
async fn join_all(nodes: &[Node], version: &str, balancer: SocketAddr) -> anyhow::Result<()> {
    for (index, node) in nodes.iter().enumerate() {
        let file = "/etc/kubeadm.yaml";
        let address = node.server().ip();
        let text = match index {
            0 => config::init(&node.name, address, version, balancer),
            _ => config::join(&node.name, address, balancer),
        };
        std::fs::write(node.file(file), text)?;
        let ignore = "--ignore-preflight-errors=all";
        let skip = "--skip-phases=addon/kube-proxy,addon/coredns";
        let init = ["kubeadm", "init", "--config", file, "--upload-certs", ignore, skip];
        let join = ["kubeadm", "join", "--config", file, ignore];
        node.run(if index == 0 { &init } else { &join }, STEP).await?;
    }
    Ok(())
}

/// The CA, the client of `admin.conf`, and a copy of that file.
fn credentials(node: &Node, folder: &Path) -> anyhow::Result<(PathBuf, Client, PathBuf)> {
    let text = std::fs::read_to_string(node.file("/etc/kubernetes/admin.conf"))?;
    let kubeconfig = folder.join("admin.conf");
    std::fs::write(&kubeconfig, &text)?;
    let part = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        let bytes = BASE64.decode(line.with_context(|| format!("admin.conf has no {name}"))?)?;
        let file = folder.join(name);
        std::fs::write(&file, bytes)?;
        anyhow::Ok(file)
    };
    let ca = part("certificate-authority-data")?;
    let pair =
        PairFiles { certificate: part("client-certificate-data")?, key: part("client-key-data")? };
    let client = Client::with_certificate(&ca, &pair)?;
    Ok((ca, client, kubeconfig))
}
