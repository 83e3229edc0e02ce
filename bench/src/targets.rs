//! The targets: `mvp`, haproxy and nginx, one after the other under the same conditions, each with
//! one thread, TLS on both sides, and the same header changes. Entry item: [`Bench::start`].

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::certificates::SERVER_NAME;
use testkit::kubernetes::gateway_flags;
use testkit::pki::PkiFiles;
use testkit::process::{Process, Program};

use crate::client;
use crate::cores::Cores;
use crate::pki;

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
    Nginx,
}

impl Target {
    pub(crate) const ALL: [Target; 6] = [
        Target::Direct,
        Target::MvpLocal,
        Target::MvpPeer,
        Target::Bare,
        Target::Haproxy,
        Target::Nginx,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Target::Direct => "direct",
            Target::MvpLocal => "mvp, local",
            Target::MvpPeer => "mvp, peer",
            Target::Bare => "bare forwarder",
            Target::Haproxy => "haproxy",
            Target::Nginx => "nginx",
        }
    }
}

/// The available programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) mvp: PathBuf,
    pub(crate) haproxy: Option<PathBuf>,
    pub(crate) nginx: Option<PathBuf>,
}

/// The running backend and every proxy before it.
pub(crate) struct Bench {
    pub(crate) pki: PkiFiles,
    folder: PathBuf,
    programs: Programs,
    _backend: Process,
    mvp: Option<Process>,
    bare: Option<Process>,
    haproxy: Option<Process>,
    nginx: Option<Process>,
}

impl Bench {
    /// Starts all of them, and waits until each forwards requests. The backend has this many custom
    /// resource groups.
    pub(crate) async fn start(
        programs: &Programs,
        folder: &Path,
        groups: usize,
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
            mvp: None,
            bare: None,
            haproxy: None,
            nginx: None,
        };
        let pki = bench.pki.clone();
        bench._backend.ready(STARTUP, async || answers(&pki, address(PEER)).await).await?;
        for target in bench.targets() {
            bench.restart(target).await?;
        }
        Ok(bench)
    }

    /// The targets that can be measured here.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let there = |target: &Target| match target {
            Target::Haproxy => self.programs.haproxy.is_some(),
            Target::Nginx => self.programs.nginx.is_some(),
            _ => true,
        };
        Target::ALL.into_iter().filter(there).collect()
    }

    /// The address of a target.
    pub(crate) fn address(&self, target: Target) -> SocketAddr {
        address(match target {
            Target::Direct => PEER,
            Target::MvpLocal | Target::MvpPeer => MVP,
            Target::Bare => BARE,
            Target::Haproxy => HAPROXY,
            Target::Nginx => NGINX,
        })
    }

    /// The address of the backend.
    pub(crate) fn server(&self) -> SocketAddr {
        address(PEER)
    }

    /// The processes whose cost counts for the target.
    pub(crate) fn processes(&self, target: Target) -> Vec<u32> {
        let process = match target {
            Target::Direct => &None,
            Target::MvpLocal | Target::MvpPeer => &self.mvp,
            Target::Bare => &self.bare,
            Target::Haproxy => &self.haproxy,
            Target::Nginx => &self.nginx,
        };
        process.iter().map(Process::id).collect()
    }

    /// Restarts a proxy, so that its memory is that of the next case alone.
    pub(crate) async fn restart(&mut self, target: Target) -> anyhow::Result<()> {
        let slot = match target {
            Target::Direct => return Ok(()),
            Target::MvpLocal | Target::MvpPeer => &mut self.mvp,
            Target::Bare => &mut self.bare,
            Target::Haproxy => &mut self.haproxy,
            Target::Nginx => &mut self.nginx,
        };
        // The old process must have left the port.
        drop(slot.take());
        let mut process = match target {
            Target::Haproxy => self.start_haproxy()?,
            Target::Nginx => self.start_nginx()?,
            Target::Bare => self.start_bare()?,
            _ => self.start_mvp()?,
        };
        let (pki, to) = (self.pki.clone(), self.address(target));
        process.ready(STARTUP, async || answers(&pki, to).await).await?;
        match target {
            Target::Haproxy => self.haproxy = Some(process),
            Target::Nginx => self.nginx = Some(process),
            Target::Bare => self.bare = Some(process),
            _ => self.mvp = Some(process),
        }
        Ok(())
    }

    fn start_mvp(&self) -> anyhow::Result<Process> {
        let mut arguments = mvp_arguments(&self.pki, address(MVP), address(LACKING), address(PEER));
        arguments.push("--workers=1".to_owned());
        let log = self.folder.join("mvp.log");
        Program::new("mvp", &self.programs.mvp).on_cpus(Cores::Proxy.cpus()).start(&log, arguments)
    }

    fn start_bare(&self) -> anyhow::Result<Process> {
        let arguments = [
            "forward".to_owned(),
            self.pki.folder().display().to_string(),
            address(BARE).to_string(),
            address(PEER).to_string(),
        ];
        let log = self.folder.join("bare.log");
        Program::new("the bare forwarder", &std::env::current_exe()?)
            .on_cpus(Cores::Proxy.cpus())
            .start(&log, arguments)
    }

    fn start_haproxy(&self) -> anyhow::Result<Process> {
        let program = self.programs.haproxy.as_ref().context("no haproxy")?;
        let file = self.folder.join("haproxy.cfg");
        std::fs::write(&file, self.filled(include_str!("../configs/haproxy.cfg"), HAPROXY))?;
        // haproxy reads a certificate and its key from one file.
        for (name, pair) in
            [("server.pem", self.pki.server()), ("proxy.pem", self.pki.front_proxy())]
        {
            let both = [std::fs::read(pair.certificate)?, std::fs::read(pair.key)?].concat();
            std::fs::write(self.folder.join(name), both)?;
        }
        let log = self.folder.join("haproxy.log");
        let arguments = ["-db", "-f", &file.display().to_string()];
        Program::new("haproxy", program).on_cpus(Cores::Proxy.cpus()).start(&log, arguments)
    }

    fn start_nginx(&self) -> anyhow::Result<Process> {
        let program = self.programs.nginx.as_ref().context("no nginx")?;
        let file = self.folder.join("nginx.conf");
        std::fs::write(&file, self.filled(include_str!("../configs/nginx.conf"), NGINX))?;
        let log = self.folder.join("nginx.log");
        let (folder, file) = (self.folder.display().to_string(), file.display().to_string());
        Program::new("nginx", program)
            .on_cpus(Cores::Proxy.cpus())
            .start(&log, ["-p", &folder, "-c", &file])
    }

    /// A configuration template with its placeholders replaced.
    fn filled(&self, template: &str, listen: u8) -> String {
        let pki = &self.pki;
        let (server, proxy) = (pki.server(), pki.front_proxy());
        let mut text = template.to_owned();
        for (blank, path) in [
            ("@FOLDER@", &self.folder),
            ("@CA@", &pki.ca()),
            ("@SERVER_CRT@", &server.certificate),
            ("@SERVER_KEY@", &server.key),
            ("@SERVER_PEM@", &self.folder.join("server.pem")),
            ("@PROXY_CRT@", &proxy.certificate),
            ("@PROXY_KEY@", &proxy.key),
            ("@PROXY_PEM@", &self.folder.join("proxy.pem")),
        ] {
            text = text.replace(blank, &path.display().to_string());
        }
        text.replace("@LISTEN@", &address(listen).to_string())
            .replace("@BACKEND@", &address(PEER).to_string())
            .replace("@SERVER_NAME@", SERVER_NAME)
    }
}

const LACKING: u8 = 1;
const PEER: u8 = 2;
const MVP: u8 = 3;
const HAPROXY: u8 = 4;
const NGINX: u8 = 5;
const BARE: u8 = 6;

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
