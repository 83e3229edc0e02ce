//! One node: a host with kube-apiserver, and gateways that steer its connections. Entry item:
//! [`Node::boot`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use testkit::kubernetes::{ApiServer, file_flag, gateway_flags};
use testkit::process::{Process, Program, Signal, until};

use super::{BRIDGE, Nodes, PORT, SERVICE, ip, run};
use crate::cluster::ServerSpec;
use crate::programs::Minor;

/// The time limit until a process is ready.
const STARTUP: Duration = Duration::from_secs(180);

/// The addresses on which kube-apiserver listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bind {
    /// All, as kubeadm has it.
    Wildcard,
    /// The advertise address only.
    Advertised,
}

/// The configuration of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodeSpec {
    pub(crate) server: ServerSpec,
    pub(crate) bind: Bind,
}

impl NodeSpec {
    /// A server of this version on all addresses.
    pub(crate) fn new(name: &'static str, minor: Minor) -> NodeSpec {
        NodeSpec { server: ServerSpec::of_release(name, minor), bind: Bind::Wildcard }
    }
}

/// A host with kube-apiserver. It ends with its holder process.
pub(crate) struct Node {
    pub(crate) spec: NodeSpec,
    index: u8,
    server: Option<Process>,
    folder: PathBuf,
    holder: Process,
    _cable: Cable,
}

/// The cable from the network of the suite to a host. Both ends go with it: the kernel removes a
/// namespace, and the cable with it, only some time after its last process ended.
struct Cable(String);

impl Cable {
    /// Lays a cable to the host with this process. The process makes its name unique.
    fn lay(holder: u32) -> anyhow::Result<Cable> {
        let (near, holder) = (format!("node-{holder}"), holder.to_string());
        ip(&["link", "add", &near, "type", "veth", "peer", "name", "eth0", "netns", &holder])?;
        let cable = Cable(near);
        ip(&["link", "set", &cable.0, "master", BRIDGE, "up"])?;
        Ok(cable)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // It may be gone with the namespace already.
        let _ = ip(&["link", "delete", &self.0]);
    }
}

/// A gateway on a node.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) admin: SocketAddr,
}

impl Node {
    /// Creates the host and attaches it to the network.
    pub(super) async fn boot(nodes: &Nodes, index: u8, spec: NodeSpec) -> anyhow::Result<Node> {
        let name = spec.server.name;
        let log = nodes.folder.join(format!("{name}.host.log"));
        let holder = Program::new("host", Path::new("unshare"))
            .start(&log, ["--net", "sleep", "infinity"])?;
        let (ours, theirs) = (PathBuf::from("/proc/self/ns/net"), namespace(&holder));
        until("the host is there", Duration::from_secs(10), async || {
            let differ = std::fs::read_link(&theirs)? != std::fs::read_link(&ours)?;
            Ok(differ.then_some(()))
        })
        .await?;
        let _cable = Cable::lay(holder.id())?;
        let node = Node { spec, index, server: None, folder: nodes.folder.clone(), holder, _cable };
        node.ip(&["link", "set", "lo", "up"])?;
        node.ip(&["address", "add", &format!("{}/24", ipv4(index)), "dev", "eth0"])?;
        node.ip(&["address", "add", &format!("{}/64", ipv6(index)), "dev", "eth0", "nodad"])?;
        node.ip(&["link", "set", "eth0", "up"])?;
        Ok(node)
    }

    /// The address that clients know.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(ipv4(self.index), PORT)
    }

    /// The IPv6 address of the same port.
    pub(crate) fn address_6(&self) -> SocketAddr {
        SocketAddr::new(ipv6(self.index), PORT)
    }

    /// The network namespace.
    pub(crate) fn namespace(&self) -> PathBuf {
        namespace(&self.holder)
    }

    /// Runs `ip` on this host.
    pub(crate) fn ip(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = self.inside("ip");
        command.args(arguments);
        run(command)
    }

    /// A command on this host.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display())).arg(program);
        command
    }

    /// Rewrites connections of the host and of others for the Service address to kube-apiserver, as
    /// kube-proxy does.
    pub(crate) fn serve_service(&self) -> anyhow::Result<()> {
        self.ip(&["route", "add", &SERVICE.ip().to_string(), "dev", "eth0"])?;
        let (from, port, to) = (SERVICE.ip(), SERVICE.port(), self.address());
        if has("nft") {
            let mut command = self.inside("nft");
            command.arg(format!(
                "table ip nat {{ \
                 chain output {{ type nat hook output priority -100; \
                 ip daddr {from} tcp dport {port} dnat to {to}; }}; \
                 chain prerouting {{ type nat hook prerouting priority -100; \
                 ip daddr {from} tcp dport {port} dnat to {to}; }}; }}"
            ));
            return run(command);
        }
        for chain in ["OUTPUT", "PREROUTING"] {
            let mut command = self.inside("iptables");
            command.args(["-t", "nat", "-A", chain, "-p", "tcp", "-d", &from.to_string()]);
            command.args(["--dport", &port.to_string(), "-j", "DNAT"]);
            command.args(["--to-destination", &to.to_string()]);
            run(command).context("rules of kube-proxy need `nft` or `iptables`")?;
        }
        Ok(())
    }

    /// Sends a GET as admin from this host. Returns the status and the body.
    pub(crate) async fn get_from_host(
        &self,
        nodes: &Nodes,
        to: SocketAddr,
        path: &str,
    ) -> anyhow::Result<(u16, String)> {
        let mut command = self.command(&std::env::current_exe()?);
        command
            .arg("get")
            .arg(nodes.pki.files().folder())
            .arg("admin")
            .arg(to.to_string())
            .arg(path);
        let output = command.output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "GET {path} at {to} on the host: {}", errors.trim());
        let text = String::from_utf8_lossy(&output.stdout);
        let (status, body) = text.split_once('\n').context("no status")?;
        Ok((status.parse()?, body.to_owned()))
    }

    /// A command on this host that ends with the case.
    pub(crate) fn command(&self, program: &Path) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display())).arg(program);
        command.kill_on_drop(true);
        command
    }

    /// Starts kube-apiserver.
    pub(crate) fn start_server(&mut self, nodes: &Nodes) -> anyhow::Result<()> {
        let (name, address) = (self.spec.server.name, ipv4(self.index));
        let listen = match self.spec.bind {
            Bind::Wildcard => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Bind::Advertised => address,
        };
        let listen = SocketAddr::new(listen, PORT);
        let server = ApiServer { listen, advertise: address, etcd: nodes.etcd() };
        let mut flags = server.flags(nodes.pki.files());
        flags.push(file_flag("audit-policy-file", &nodes.audit_policy));
        flags.push(file_flag("audit-log-path", &self.audit_log()));
        flags.extend_from_slice(&self.spec.server.flags);
        let program = nodes.programs.kube_apiserver(self.spec.server.minor);
        let process = Program::new(name, &program)
            .with_host_name()
            .in_network(Some(&self.namespace()))
            .start(&self.server_log(), flags)?;
        self.server = Some(process);
        Ok(())
    }

    /// Waits until kube-apiserver itself is ready, even if `mvp` answers at its address.
    pub(crate) async fn server_ready(&mut self, nodes: &Nodes) -> anyhow::Result<()> {
        let at = match self.spec.bind {
            Bind::Wildcard => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT),
            Bind::Advertised => self.address(),
        };
        let started = std::time::Instant::now();
        loop {
            self.server.as_mut().context("kube-apiserver was not started")?.check()?;
            let last = match self.get_from_host(nodes, at, "/readyz").await {
                Ok((200, _)) => return Ok(()),
                Ok((status, body)) => format!("{status} {body}"),
                Err(error) => format!("{error:#}"),
            };
            if started.elapsed() > STARTUP {
                bail!("kube-apiserver of {} is not ready: {last}", self.spec.server.name);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Stops kube-apiserver as a kubelet does: SIGTERM, then SIGKILL.
    pub(crate) async fn stop_server(&mut self) -> anyhow::Result<()> {
        if let Some(process) = &mut self.server {
            process.signal(Signal::TERM)?;
            // It would wait a minute for watches to end.
            let _ = process.exited(Duration::from_secs(5)).await;
        }
        self.server = None;
        Ok(())
    }

    /// Fails if kube-apiserver has ended.
    pub(crate) fn check_server(&mut self) -> anyhow::Result<()> {
        self.server.as_mut().context("kube-apiserver was not started")?.check()
    }

    /// The log of kube-apiserver.
    pub(crate) fn server_log(&self) -> PathBuf {
        self.folder.join(format!("{}.kube-apiserver.log", self.spec.server.name))
    }

    fn audit_log(&self) -> PathBuf {
        self.folder.join(format!("{}.audit.jsonl", self.spec.server.name))
    }

    /// The entries of kube-apiserver's audit log so far.
    pub(crate) fn audit(&self) -> anyhow::Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.audit_log())?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// The flags of `mvp serve --steer` on this node.
    pub(crate) fn gateway_flags(&self, nodes: &Nodes, admin: SocketAddr) -> Vec<String> {
        let address = ipv4(self.index);
        let (bind, local) = match self.spec.bind {
            Bind::Wildcard => ("0.0.0.0".to_owned(), "127.0.0.1".to_owned()),
            Bind::Advertised => (address.to_string(), address.to_string()),
        };
        let mut flags = vec![
            "serve".to_owned(),
            "--steer".to_owned(),
            "--permit-port-sharing".to_owned(),
            format!("--bind-address={bind}"),
            format!("--secure-port={PORT}"),
            format!("--advertise-address={address}"),
            format!("--local-server=https://{local}:{PORT}"),
            format!("--admin-bind-address={admin}"),
            // As in deploy/mvp.yaml.
            "--membership=leases,endpoints".to_owned(),
            "--admin-socket=".to_owned(),
        ];
        flags.extend(gateway_flags(nodes.pki.files()));
        flags
    }

    /// The admin address of the gateway with this number.
    pub(crate) fn admin_address(&self, number: u16) -> SocketAddr {
        SocketAddr::new(ipv4(self.index), 6480 + number)
    }

    /// Starts a gateway. Each number has an admin address and a log of its own.
    pub(crate) fn start_gateway(
        &self,
        nodes: &Nodes,
        number: u16,
        more: &[&str],
    ) -> anyhow::Result<Gateway> {
        let admin = self.admin_address(number);
        let mut flags = self.gateway_flags(nodes, admin);
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        self.run_gateway(&nodes.programs.mvp, number, flags)
    }

    /// Starts this program as a gateway with these arguments.
    pub(crate) fn run_gateway(
        &self,
        program: &Path,
        number: u16,
        arguments: Vec<String>,
    ) -> anyhow::Result<Gateway> {
        let name = self.spec.server.name;
        let log = self.folder.join(format!("{name}.mvp-{number}.log"));
        let process = Program::new(name, program)
            .with_host_name()
            .in_network(Some(&self.namespace()))
            .start(&log, arguments)?;
        Ok(Gateway { process, admin: self.admin_address(number) })
    }

    /// A gateway that steers the connections of this node.
    pub(crate) async fn gateway(&self, nodes: &Nodes, number: u16) -> anyhow::Result<Gateway> {
        let mut gateway = self.start_gateway(nodes, number, &["--shutdown-grace-period=3s"])?;
        gateway.ready().await?;
        Ok(gateway)
    }
}

impl Gateway {
    /// Waits until it is ready, that is, until it steers.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<()> {
        let (process, admin) = (&mut self.process, self.admin);
        until("the gateway is ready", Duration::from_secs(90), async || {
            process.check()?;
            let answer = crate::client::plain(admin, "/readyz?verbose").await?;
            answer.expect(200).map(Some)
        })
        .await?;
        Ok(())
    }

    /// Ends it with SIGTERM. It must exit with code 0.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = self.process.exited(Duration::from_secs(60)).await?;
        ensure!(status.success(), "mvp: {status}:\n{}", self.process.last_log_lines(5));
        Ok(())
    }

    /// A sample of its metrics.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let answer = crate::client::plain(self.admin, "/metrics").await?;
        let text = String::from_utf8_lossy(&answer.body);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no {name} in the metrics"))?.parse()?)
    }

    /// A line of `/proc/PID/status`.
    pub(crate) fn status_line(&self, name: &str) -> anyhow::Result<String> {
        let file = format!("/proc/{}/status", self.process.id());
        let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(line.with_context(|| format!("no {name} in {file}"))?.trim().to_owned())
    }
}

/// The network namespace of a process.
fn namespace(process: &Process) -> PathBuf {
    PathBuf::from(format!("/proc/{}/ns/net", process.id()))
}

/// The address of the node with this index.
pub(super) fn ipv4(index: u8) -> IpAddr {
    Ipv4Addr::new(10, 66, 0, index.saturating_add(11)).into()
}

/// The IPv6 address of the node with this index.
pub(super) fn ipv6(index: u8) -> IpAddr {
    Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, u16::from(index) + 0x11).into()
}

/// Whether a program is in the path.
fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
