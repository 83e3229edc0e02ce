//! One member: a kube-apiserver and the gateway beside it.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use testkit::kubernetes::{ApiServer, file_flag, gateway_flags};
use testkit::pki::PkiFiles;
use testkit::process::{Process, Program, Signal, until};

use crate::client::Client;
use crate::programs::{Minor, Programs};

/// The port of kube-apiserver. The gateway has the port that clients know.
const OWN_PORT: u16 = 6444;
const GATEWAY_PORT: u16 = 6443;
const ADMIN_PORT: u16 = 6480;

/// The configuration of a member.
#[derive(Debug, Clone)]
pub(crate) struct ServerSpec {
    pub(crate) name: &'static str,
    pub(crate) minor: Minor,
    /// Further flags of kube-apiserver.
    pub(crate) flags: Vec<String>,
    /// Further flags of its gateway.
    pub(crate) gateway_flags: Vec<String>,
    /// Whether it has no gateway.
    pub(crate) bare: bool,
    /// Whether the gateway has the address and port that the server advertises, as on a real node;
    /// otherwise it has another port of the same address.
    pub(crate) advertises_gateway: bool,
}

impl ServerSpec {
    /// A server with these APIs on or off, in the format of `--runtime-config`.
    pub(crate) fn new(name: &'static str, minor: Minor, apis: &str) -> ServerSpec {
        let flags = vec![format!("--runtime-config={apis}")];
        let gateway_flags = Vec::new();
        ServerSpec { name, minor, flags, gateway_flags, bare: false, advertises_gateway: false }
    }

    /// Adds a flag of kube-apiserver.
    pub(crate) fn with_flag(mut self, flag: &str) -> ServerSpec {
        self.flags.push(flag.to_owned());
        self
    }

    /// A server of a release, with one more API on that the other release does not serve.
    pub(crate) fn of_release(name: &'static str, minor: Minor) -> ServerSpec {
        match minor {
            Minor::V1_36 => {
                let mut spec = ServerSpec::new(name, minor, "scheduling.k8s.io/v1alpha2=true");
                spec.flags.push("--feature-gates=GenericWorkload=true".to_owned());
                spec
            }
            _ => ServerSpec::new(name, minor, "storage.k8s.io/v1alpha1=true"),
        }
    }
}

/// A member of a cluster under test.
pub(crate) struct Server {
    pub(crate) spec: ServerSpec,
    address: IpAddr,
    /// The address of kube-apiserver.
    own: SocketAddr,
    process: Option<Process>,
    gateway: Option<Process>,
    audit: PathBuf,
    /// Whether Kubernetes' own proxy is on.
    native_proxy: bool,
    /// The network namespace of its host, if it is not ours.
    network: Option<PathBuf>,
}

impl Server {
    /// A member with this address. `behind` is the address of kube-apiserver when the gateway has
    /// the advertised one.
    pub(super) fn new(spec: ServerSpec, address: IpAddr, behind: IpAddr) -> Server {
        let own = match spec.advertises_gateway {
            true => SocketAddr::new(behind, GATEWAY_PORT),
            false => SocketAddr::new(address, OWN_PORT),
        };
        let (process, gateway) = (None, None);
        let (audit, network, native_proxy) = (PathBuf::new(), None, false);
        Server { spec, address, own, process, gateway, audit, native_proxy, network }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.spec.name
    }

    /// The member ID.
    pub(crate) fn id(&self) -> String {
        format!("server-{}", self.spec.name)
    }

    /// The address of kube-apiserver, without `mvp`.
    pub(crate) fn direct(&self) -> SocketAddr {
        self.own
    }

    /// The address of the gateway.
    pub(crate) fn through(&self) -> SocketAddr {
        SocketAddr::new(self.address, GATEWAY_PORT)
    }

    /// The value of `--peer` for this member.
    pub(super) fn as_peer(&self) -> String {
        match self.spec.bare {
            true => format!("https://{},kind=bare", self.direct()),
            false => format!("https://{}", self.through()),
        }
    }

    /// The admin address of the gateway.
    pub(crate) fn gateway_admin(&self) -> SocketAddr {
        SocketAddr::new(self.address, ADMIN_PORT)
    }

    /// Moves it to another host from the next start on.
    pub(super) fn move_to(&mut self, network: PathBuf) {
        self.network = Some(network);
    }

    /// Turns on Kubernetes' own proxy from the next start on.
    pub(super) fn join_native_proxy(&mut self) {
        self.native_proxy = true;
    }

    pub(super) fn start(
        &mut self,
        programs: &Programs,
        pki: &PkiFiles,
        folder: &Path,
        etcd: SocketAddr,
    ) -> anyhow::Result<()> {
        if runs(&mut self.process) {
            return Ok(());
        }
        let name = self.spec.name;
        self.audit = folder.join(format!("{name}.audit.jsonl"));
        let server = ApiServer { listen: self.own, advertise: self.address, etcd };
        let mut flags = server.flags(pki);
        flags.push(file_flag("audit-policy-file", &folder.join("audit-policy.json")));
        flags.push(file_flag("audit-log-path", &self.audit));
        flags.extend_from_slice(&self.spec.flags);
        if self.native_proxy {
            flags.extend(server.native_proxy_flags(pki));
        }
        let log = folder.join(format!("{name}.kube-apiserver.log"));
        let program = programs.kube_apiserver(self.spec.minor);
        self.process = Some(
            Program::new(name, &program)
                .with_host_name()
                .in_network(self.network.as_deref())
                .start(&log, flags)?,
        );
        Ok(())
    }

    pub(super) fn start_gateway(
        &mut self,
        programs: &Programs,
        pki: &PkiFiles,
        folder: &Path,
        members: Option<&[(String, String)]>,
    ) -> anyhow::Result<()> {
        if self.spec.bare || runs(&mut self.gateway) {
            return Ok(());
        }
        let arguments = self.gateway_arguments(pki, members, GATEWAY_PORT, ADMIN_PORT);
        let log = folder.join(format!("{}.mvp.log", self.spec.name));
        let name = match members {
            Some(_) => format!("mvp-{}", self.spec.name),
            None => self.spec.name.to_owned(),
        };
        self.gateway = Some(
            Program::new(&name, &programs.mvp)
                .with_host_name()
                .in_network(self.network.as_deref())
                .start(&log, arguments)?,
        );
        Ok(())
    }

    /// The arguments of a gateway beside it. Without members, it finds them by Leases, the default.
    pub(super) fn gateway_arguments(
        &self,
        pki: &PkiFiles,
        members: Option<&[(String, String)]>,
        port: u16,
        admin_port: u16,
    ) -> Vec<String> {
        let mut arguments = vec![
            "serve".to_owned(),
            format!("--bind-address={}", self.address),
            format!("--secure-port={port}"),
            format!("--admin-bind-address={}", SocketAddr::new(self.address, admin_port)),
            "--admin-socket=".to_owned(),
            format!("--local-server=https://{}", self.direct()),
        ];
        arguments.extend(gateway_flags(pki));
        arguments.extend_from_slice(&self.spec.gateway_flags);
        match members {
            Some(members) => {
                let peers = members.iter().filter(|(id, _)| *id != self.id());
                arguments.extend(peers.map(|(id, peer)| format!("--peer={id}={peer}")));
                arguments.push(format!("--server-id={}", self.id()));
            }
            // The ID defaults to that of the server, by the host name.
            None => arguments.push(format!("--peer-advertise-ip={}", self.address)),
        }
        arguments
    }

    /// The gateway's view of the member at an address.
    pub(super) async fn knows(&self, address: SocketAddr) -> anyhow::Result<Value> {
        let snapshot = crate::client::plain(self.gateway_admin(), "/debug/snapshot").await?.json();
        let members = snapshot.get("members").and_then(Value::as_array).context("no members")?;
        let address = address.to_string();
        let is_there = |member: &&Value| member.get("address").is_some_and(|own| *own == address);
        Ok(members.iter().find(is_there).cloned().unwrap_or_default())
    }

    /// Stops kube-apiserver as a kubelet does: SIGTERM, then SIGKILL. The next start uses another
    /// release with its flags.
    pub(crate) async fn leave_for(&mut self, minor: Minor) -> anyhow::Result<()> {
        // kube-apiserver waits a minute for watches to end; a kubelet does not wait that long.
        self.leave_within(Duration::from_secs(10), minor).await
    }

    /// The same, with this time between the signals.
    pub(crate) async fn leave_within(
        &mut self,
        grace: Duration,
        minor: Minor,
    ) -> anyhow::Result<()> {
        if let Some(process) = &mut self.process {
            process.signal(Signal::TERM)?;
            let _ = process.exited(grace).await;
        }
        self.process = None;
        self.spec = ServerSpec::of_release(self.spec.name, minor);
        Ok(())
    }

    /// Waits until a gateway that was signalled has exited.
    pub(crate) async fn gateway_ended(&mut self) -> anyhow::Result<()> {
        self.gateway()?.exited(Duration::from_secs(20)).await?;
        self.gateway = None;
        Ok(())
    }

    /// Waits until kube-apiserver is ready.
    pub(crate) async fn ready(&mut self, admin: &Client, within: Duration) -> anyhow::Result<()> {
        let to = self.direct();
        let process = self.process.as_mut().context("the process was not started")?;
        let what = format!("kube-apiserver {} is ready", self.spec.name);
        until(&what, within, async || {
            process.check()?;
            let answer = admin.get(to, "/readyz").await?;
            answer.expect(200).map(Some)
        })
        .await?;
        Ok(())
    }

    /// Waits until the gateway is ready.
    pub(crate) async fn gateway_ready(&mut self, within: Duration) -> anyhow::Result<()> {
        let to = self.gateway_admin();
        let gateway = self.gateway.as_mut().context("the process was not started")?;
        let what = format!("the gateway of {} is ready", self.spec.name);
        until(&what, within, async || {
            gateway.check()?;
            Ok(crate::client::plain(to, "/readyz").await?.status.is_success().then_some(()))
        })
        .await
    }

    /// kube-apiserver's process.
    pub(crate) fn process(&mut self) -> anyhow::Result<&mut Process> {
        self.process.as_mut().context("kube-apiserver is not running")
    }

    /// The gateway's process.
    pub(crate) fn gateway(&mut self) -> anyhow::Result<&mut Process> {
        self.gateway.as_mut().context("the gateway is not running")
    }

    /// Kills the gateway with SIGKILL.
    pub(super) fn kill_gateway(&mut self) {
        self.gateway = None;
    }

    /// Kills the gateway and kube-apiserver with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.gateway = None;
        self.process = None;
    }

    /// The entries of the audit log so far.
    pub(crate) fn audit(&self) -> anyhow::Result<Vec<Value>> {
        let text = std::fs::read_to_string(&self.audit)?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

/// Whether the process runs. An exited one is removed.
fn runs(process: &mut Option<Process>) -> bool {
    if process.as_mut().is_some_and(|process| process.check().is_err()) {
        *process = None;
    }
    process.is_some()
}
