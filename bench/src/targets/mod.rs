//! The targets: `mvp` and the other proxies, one after the other under the same conditions, each with
//! one thread, TLS on both sides, and the same header changes. Entry item: [`Bench::start`].

mod proxies;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use rustix::process::Signal;
use testkit::kubernetes::gateway_flags;
use testkit::pki::PkiFiles;
use testkit::process::{Process, Program};

use crate::client;
use crate::cores::Cores;
use crate::pki;

pub(crate) use proxies::Proxies;

const STARTUP: Duration = Duration::from_secs(20);

/// A target of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// No proxy: the cost of the load and the backend alone.
    Direct,
    /// `mvp` beside a server that serves the request itself.
    MvpLocal,
    /// `mvp` beside a server without the API: one hop to a peer.
    MvpPeer,
    /// The floor of our stack: a forwarder of hyper and rustls, without what makes it `mvp`.
    Bare,
    Haproxy,
    /// A newer haproxy, with the TLS library that `mvp` has.
    HaproxyAwsLc,
    Nginx,
    Envoy,
    Pingora,
}

impl Target {
    pub(crate) const ALL: [Target; 9] = [
        Target::Direct,
        Target::MvpLocal,
        Target::MvpPeer,
        Target::Bare,
        Target::Haproxy,
        Target::HaproxyAwsLc,
        Target::Nginx,
        Target::Envoy,
        Target::Pingora,
    ];

    /// The proxies of others.
    pub(crate) const PEERS: [Target; 5] =
        [Target::Haproxy, Target::HaproxyAwsLc, Target::Nginx, Target::Envoy, Target::Pingora];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Target::Direct => "direct",
            Target::MvpLocal => "mvp, local",
            Target::MvpPeer => "mvp, peer",
            Target::Bare => "bare forwarder",
            Target::Haproxy => "haproxy",
            Target::HaproxyAwsLc => "haproxy 3.0, AWS-LC",
            Target::Nginx => "nginx",
            Target::Envoy => "Envoy",
            Target::Pingora => "Pingora",
        }
    }

    /// Whether a quick run measures it in one scenario only.
    pub(crate) fn is_further_peer(self) -> bool {
        Target::PEERS.contains(&self) && self != Target::Haproxy
    }
}

/// The available programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) mvp: PathBuf,
    pub(crate) haproxy: Option<PathBuf>,
    pub(crate) haproxy_aws_lc: Option<PathBuf>,
    pub(crate) nginx: Option<PathBuf>,
    pub(crate) envoy: Option<PathBuf>,
    pub(crate) pingora: Option<PathBuf>,
}

impl Programs {
    /// `mvp` without any other proxy.
    pub(crate) fn only(mvp: PathBuf) -> Programs {
        Programs {
            mvp,
            haproxy: None,
            haproxy_aws_lc: None,
            nginx: None,
            envoy: None,
            pingora: None,
        }
    }

    /// The program of a target, if it is here.
    fn of(&self, target: Target) -> anyhow::Result<Option<PathBuf>> {
        Ok(match target {
            Target::Direct => None,
            Target::MvpLocal | Target::MvpPeer => Some(self.mvp.clone()),
            Target::Bare => Some(std::env::current_exe()?),
            Target::Haproxy => self.haproxy.clone(),
            Target::HaproxyAwsLc => self.haproxy_aws_lc.clone(),
            Target::Nginx => self.nginx.clone(),
            Target::Envoy => self.envoy.clone(),
            Target::Pingora => self.pingora.clone(),
        })
    }
}

/// The running backend and every proxy before it.
pub(crate) struct Bench {
    pub(crate) pki: PkiFiles,
    folder: PathBuf,
    programs: Programs,
    _backend: Process,
    /// Each target and its process; both targets of `mvp` share one.
    running: Vec<(Target, Process)>,
    /// The proxies of others that did not start, and why.
    pub(crate) failures: Vec<(Target, anyhow::Error)>,
}

impl Bench {
    /// Starts these targets, and waits until each forwards requests. The backend has this many custom
    /// resource groups.
    pub(crate) async fn start(
        programs: &Programs,
        folder: &Path,
        groups: usize,
        targets: &[Target],
    ) -> anyhow::Result<Bench> {
        let pki = pki::create(&folder.join("pki"))?;
        let this = std::env::current_exe()?;
        let arguments = [
            "backend".to_owned(),
            pki.folder().display().to_string(),
            address(LACKING).to_string(),
            address(PEER).to_string(),
            groups.to_string(),
        ];
        let log = folder.join("backend.log");
        let backend = Program::new("the backend", &this)
            .on_cpus(Cores::Load.cpus())
            .start(&log, arguments)?;
        let mut bench = Bench {
            pki,
            folder: folder.to_owned(),
            programs: programs.clone(),
            _backend: backend,
            running: Vec::new(),
            failures: Vec::new(),
        };
        let pki = bench.pki.clone();
        bench._backend.ready(STARTUP, async || answers(&pki, address(PEER)).await).await?;
        for target in targets {
            if programs.of(*target)?.is_some() {
                bench.restart(*target).await?;
            }
        }
        Ok(bench)
    }

    /// The targets that run.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let runs = |target: &Target| {
            let process = shared(*target);
            process == Target::Direct || self.running.iter().any(|(running, _)| *running == process)
        };
        Target::ALL.into_iter().filter(runs).collect()
    }

    /// The address of a target.
    pub(crate) fn address(&self, target: Target) -> SocketAddr {
        address(match target {
            Target::Direct => PEER,
            Target::MvpLocal | Target::MvpPeer => MVP,
            Target::Bare => BARE,
            Target::Haproxy => HAPROXY,
            Target::HaproxyAwsLc => HAPROXY_AWS_LC,
            Target::Nginx => NGINX,
            Target::Envoy => ENVOY,
            Target::Pingora => PINGORA,
        })
    }

    /// The address of the backend.
    pub(crate) fn server(&self) -> SocketAddr {
        address(PEER)
    }

    /// The processes whose cost counts for the target.
    pub(crate) fn processes(&self, target: Target) -> Vec<u32> {
        let of_target = |(running, _): &&(Target, Process)| *running == shared(target);
        self.running.iter().filter(of_target).map(|(_, process)| process.id()).collect()
    }

    /// Restarts a proxy, so that its memory is that of the next case alone. A proxy of others that does
    /// not start is left out from then on.
    pub(crate) async fn restart(&mut self, target: Target) -> anyhow::Result<()> {
        if target == Target::Direct {
            return Ok(());
        }
        // The old process must have left the port.
        self.running.retain(|(running, _)| *running != shared(target));
        match self.started(target).await {
            Ok(process) => self.running.push((shared(target), process)),
            Err(error) if Target::PEERS.contains(&target) => self.failures.push((target, error)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Asks `mvp` to end, and waits until it has.
    pub(crate) async fn end_mvp(&mut self, deadline: Duration) -> anyhow::Result<()> {
        let of_mvp = |(running, _): &&mut (Target, Process)| *running == Target::MvpPeer;
        if let Some((_, process)) = self.running.iter_mut().find(of_mvp) {
            process.signal(Signal::TERM)?;
            process.exited(deadline).await?;
        }
        Ok(())
    }

    async fn started(&self, target: Target) -> anyhow::Result<Process> {
        let to = self.address(target);
        let mut process = match target {
            Target::MvpLocal | Target::MvpPeer => self.start_mvp()?,
            other => Proxies {
                programs: &self.programs,
                pki: &self.pki,
                folder: &self.folder,
                server: self.server(),
                cpus: Cores::Proxy.cpus(),
            }
            .start(other, to)?,
        };
        process.ready(STARTUP, async || answers(&self.pki, to).await).await?;
        Ok(process)
    }

    fn start_mvp(&self) -> anyhow::Result<Process> {
        let mut arguments = mvp_arguments(&self.pki, address(MVP), address(LACKING), address(PEER));
        arguments.push("--workers=1".to_owned());
        let log = self.folder.join("mvp.log");
        Program::new("mvp", &self.programs.mvp).on_cpus(Cores::Proxy.cpus()).start(&log, arguments)
    }
}

/// The target that stands for those of one process.
fn shared(target: Target) -> Target {
    match target {
        Target::MvpLocal => Target::MvpPeer,
        other => other,
    }
}

const LACKING: u8 = 1;
const PEER: u8 = 2;
const MVP: u8 = 3;
const HAPROXY: u8 = 4;
const NGINX: u8 = 5;
const BARE: u8 = 6;
// 7 to 11 are used by other scenarios.
const HAPROXY_AWS_LC: u8 = 21;
const ENVOY: u8 = 22;
const PINGORA: u8 = 23;

/// A loopback address that only the bench uses.
fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 78, 0, host), 6443).into()
}

/// The arguments of `mvp serve` beside one server, with a bare server as its peer.
pub(crate) fn mvp_arguments(
    pki: &PkiFiles,
    listen: SocketAddr,
    local: SocketAddr,
    peer: SocketAddr,
) -> Vec<String> {
    let mut arguments = mvp_with_local(pki, listen, local);
    arguments.push(format!("--peer=peer=https://{peer},kind=bare"));
    arguments
}

/// The arguments of `mvp serve` beside one server.
pub(crate) fn mvp_with_local(pki: &PkiFiles, listen: SocketAddr, local: SocketAddr) -> Vec<String> {
    let mut arguments = vec![
        "serve".to_owned(),
        format!("--bind-address={}", listen.ip()),
        format!("--secure-port={}", listen.port()),
        format!("--admin-bind-address={}:6480", listen.ip()),
        "--admin-socket=".to_owned(),
        format!("--local-server=https://{local}"),
        "--server-id=lacking".to_owned(),
        // The other proxies do not log requests either.
        "--log-level=warn".to_owned(),
    ];
    arguments.extend(gateway_flags(pki));
    arguments
}

/// Checks that an API of the peer is served at this address.
async fn answers(pki: &PkiFiles, to: SocketAddr) -> anyhow::Result<()> {
    let answer = client::ask(pki, to, "GET", &crate::backend::peer_path(100), None).await?;
    ensure!(answer.status == 200, "{to} answers {}: {}", answer.status, answer.body);
    Ok(())
}
