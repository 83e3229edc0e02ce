//! Nodes as an installation finds them: kube-apiserver on the API port of a host of its own, and
//! `mvp serve --steer` beside it. Clients are outside, in the network of the suite, or on the host.
//! Entry item: [`Nodes::start`].

mod host;
mod retry;
mod stream;
mod watches;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;
use testkit::kubernetes::EtcdMember;
use testkit::pki::Pki;
use testkit::process::{Process, Program, until};

pub(crate) use host::{Bind, Gateway, Node, NodeSpec};
pub(crate) use retry::Retrying;
pub(crate) use stream::{Stream, Told, tally};
pub(crate) use watches::Watches;

use crate::client::Client;
use crate::cluster::{Cluster, ISOLATED};
use crate::kubectl::{Kubectl, kubeconfig};
use crate::programs::Programs;

/// The port of kube-apiserver, which clients use.
pub(crate) const PORT: u16 = 6443;

/// The interface of the suite in the network of the nodes.
const BRIDGE: &str = "nodes";

/// The address of clients outside, and of etcd.
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 1);
pub(crate) const OUTSIDE_6: Ipv6Addr = Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, 1);

/// A virtual IP address, which no node has at first.
pub(crate) const VIRTUAL: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 100);

/// The address of the Service `kubernetes`.
pub(crate) const SERVICE: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), 443);

/// The network of the nodes, and what they share.
pub(crate) struct Nodes {
    pub(crate) admin: Client,
    pub(crate) programs: Programs,
    pub(crate) pki: Pki,
    pub(crate) folder: PathBuf,
    audit_policy: PathBuf,
    _etcd: Process,
    _bridge: Bridge,
}

impl Nodes {
    /// Starts etcd in a new network. The name is that of the case.
    pub(crate) async fn start(cluster: &Cluster, name: &str) -> anyhow::Result<Nodes> {
        ensure!(
            std::env::var_os(ISOLATED).is_some(),
            "nodes need a network of their own: `ip` of iproute2, and root"
        );
        let folder = cluster.folder().join(name);
        std::fs::create_dir_all(&folder)?;
        let bridge = Bridge::lay()?;
        let mut addresses = vec![
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
            VIRTUAL.into(),
            SERVICE.ip(),
        ];
        addresses.extend((0..2).flat_map(|index| [host::ipv4(index), host::ipv6(index)]));
        let pki = Pki::new(&folder.join("pki"), &addresses)?;
        let admin = pki.user("admin", &["system:masters"])?;
        let admin = Client::with_certificate(&pki.files().ca(), &admin)?;
        let etcd = start_etcd(&cluster.programs, &folder)?;
        Ok(Nodes {
            admin,
            programs: cluster.programs.clone(),
            pki,
            folder,
            audit_policy: cluster.folder().join("audit-policy.json"),
            _etcd: etcd,
            _bridge: bridge,
        })
    }

    /// A node with a running kube-apiserver, and no `mvp`.
    pub(crate) async fn node(&self, index: u8, spec: NodeSpec) -> anyhow::Result<Node> {
        let mut node = Node::boot(self, index, spec).await?;
        node.start_server(self)?;
        node.server_ready(self).await?;
        self.grant(node.address()).await?;
        Ok(node)
    }

    /// Grants gateways their rights, as an installation does.
    async fn grant(&self, to: SocketAddr) -> anyhow::Result<()> {
        let config = kubeconfig(self.pki.files(), "admin", to, &self.folder)?;
        let kubectl = Kubectl::new(&self.programs.kubectl(), &config, &self.folder)?;
        // A new cluster has no namespaces at first.
        until("rights are granted", Duration::from_secs(60), async || {
            kubectl.run(["apply", "-f", "-"], Some(RIGHTS)).await.map(Some)
        })
        .await
        .map(drop)
    }

    /// Who answers a new connection: `mvp` or `server`.
    pub(crate) async fn who(&self, to: SocketAddr) -> anyhow::Result<&'static str> {
        let answer = self.admin.get(to, LIVEZ).await?;
        who(answer.status.as_u16(), &answer.body).with_context(|| format!("{LIVEZ}: {answer}"))
    }

    /// Waits until new connections are answered by `mvp` or `server`.
    pub(crate) async fn until_answered_by(&self, who: &str, to: SocketAddr) -> anyhow::Result<()> {
        let what = format!("{who} answers at {to}");
        until(&what, Duration::from_secs(30), async || {
            let answered = self.who(to).await?;
            Ok((answered == who).then_some(()))
        })
        .await
    }

    /// Creates a namespace.
    pub(crate) async fn namespace(&self, to: SocketAddr, name: &str) -> anyhow::Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.admin.create(to, "/api/v1/namespaces", &object).await?.expect(201).map(drop)
    }

    fn etcd(&self) -> SocketAddr {
        SocketAddr::new(OUTSIDE.into(), 2379)
    }
}

/// The rights of a gateway.
const RIGHTS: &str = include_str!("../../deploy/rbac.yaml");

/// A path that only `mvp` serves.
pub(crate) const LIVEZ: &str = "/mvp/livez";

/// Who answered a request for [`LIVEZ`] with this status.
pub(crate) fn who(status: u16, body: &[u8]) -> anyhow::Result<&'static str> {
    match status {
        200 if body.starts_with(b"ok") => Ok("mvp"),
        // Not even an admin finds it at kube-apiserver.
        403 | 404 => Ok("server"),
        _ => anyhow::bail!("neither mvp nor kube-apiserver answers so"),
    }
}

/// A bridge in the suite's network, to which nodes are attached.
struct Bridge;

impl Bridge {
    fn lay() -> anyhow::Result<Bridge> {
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        let bridge = Bridge;
        ip(&["address", "add", &format!("{OUTSIDE}/24"), "dev", BRIDGE])?;
        ip(&["address", "add", &format!("{OUTSIDE_6}/64"), "dev", BRIDGE, "nodad"])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        Ok(bridge)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = ip(&["link", "delete", BRIDGE]);
    }
}

fn start_etcd(programs: &Programs, folder: &Path) -> anyhow::Result<Process> {
    let member = EtcdMember {
        name: "etcd",
        data: &folder.join("etcd"),
        clients: &format!("http://{OUTSIDE}:2379"),
        peers: &format!("http://{OUTSIDE}:2380"),
        cluster: "",
    };
    Program::new("etcd", &programs.etcd()).start(&folder.join("etcd.log"), member.flags())
}

/// Runs `ip` in the suite's network.
pub(crate) fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    command.args(arguments);
    run(command)
}

/// Runs a command and fails with what it says.
fn run(mut command: Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(())
}
