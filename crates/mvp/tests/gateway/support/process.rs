//! The gateway process.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use serde_json::Value;
use testkit::certificates::FRONT_PROXY_NAME;
use testkit::process::{Process, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::eventually;
use super::pki::PKI;

/// A running `mvp serve`, killed when dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    process: Process,
}

/// The memory of a process in KiB: current and peak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) most: u64,
}

impl Gateway {
    /// Starts it beside a server, on a given address.
    pub(crate) fn start(address: SocketAddr, id: &str, local: SocketAddr, more: &[String]) -> Self {
        let admin = free_address();
        Gateway::with_flags(address, admin, &flags(address, admin, id, local, more))
    }

    /// Starts it with these flags only.
    pub(crate) fn with_flags(address: SocketAddr, admin: SocketAddr, flags: &[String]) -> Self {
        Gateway::in_pod(address, admin, flags, address)
    }

    /// The same, with the pod environment pointing to this service.
    pub(crate) fn in_pod(
        address: SocketAddr,
        admin: SocketAddr,
        flags: &[String],
        service: SocketAddr,
    ) -> Self {
        let log = log_file();
        let stderr = File::create(&log).unwrap();
        Gateway::spawn(Command::new(binary()), (address, admin), flags, service, log, stderr.into())
    }

    /// Starts it with these flags and this standard error. [`Gateway::log`] is then empty.
    pub(crate) fn with_stderr(
        address: SocketAddr,
        admin: SocketAddr,
        flags: &[String],
        stderr: impl Into<Stdio>,
    ) -> Self {
        let log = log_file();
        File::create(&log).unwrap();
        let command = Command::new(binary());
        Gateway::spawn(command, (address, admin), flags, address, log, stderr.into())
    }

    /// Starts it with these flags and this limit of file descriptors.
    pub(crate) fn with_descriptors(
        address: SocketAddr,
        admin: SocketAddr,
        flags: &[String],
        descriptors: usize,
    ) -> Self {
        let log = log_file();
        let stderr = File::create(&log).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]);
        shell.arg(binary());
        Gateway::spawn(shell, (address, admin), flags, address, log, stderr.into())
    }

    /// Starts it beside a server, with core dumps allowed.
    pub(crate) fn with_core_dumps(
        address: SocketAddr,
        id: &str,
        local: SocketAddr,
        more: &[String],
    ) -> Self {
        let (admin, log) = (free_address(), log_file());
        let stderr = File::create(&log).unwrap();
        let mut shell = Command::new("sh");
        // Where the hard limit forbids it, the test shows less.
        let script = "ulimit -c unlimited 2>/dev/null; cd \"$1\" && shift && exec \"$@\"";
        shell.args(["-c", script, "sh", env!("CARGO_TARGET_TMPDIR")]).arg(binary());
        let flags = flags(address, admin, id, local, more);
        Gateway::spawn(shell, (address, admin), &flags, address, log, stderr.into())
    }

    fn spawn(
        mut command: Command,
        (address, admin): (SocketAddr, SocketAddr),
        flags: &[String],
        service: SocketAddr,
        log: PathBuf,
        stderr: Stdio,
    ) -> Self {
        let child = command
            .arg("serve")
            .args(flags)
            .env_remove("MVP_LOG")
            .env("KUBERNETES_SERVICE_HOST", service.ip().to_string())
            .env("KUBERNETES_SERVICE_PORT", service.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Gateway { address, admin, process: Process::new("mvp", child, &log) }
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(self) -> Self {
        eventually("ready", async || match self.ask("/readyz").await {
            Some((200, _)) => Ok(()),
            other => Err((other, self.log())),
        })
        .await;
        self
    }

    /// The status and body of an admin endpoint; none without a response.
    pub(crate) async fn ask(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.admin).await.ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Runs a command of `mvp`.
    pub(crate) fn run(arguments: &[&str], flags: &[String]) -> std::process::Output {
        Command::new(binary()).args(arguments).args(flags).output().unwrap()
    }

    /// Runs `mvp forget` for this member.
    pub(crate) fn forget(id: &str, flags: &[String]) -> std::process::Output {
        Gateway::run(&["forget", id], flags)
    }

    /// Runs `mvp status` for this gateway: the exit code, and what it prints.
    pub(crate) async fn status(&self, more: &[&str]) -> (Option<i32>, String) {
        let address = format!("--admin-address={}", self.admin);
        Gateway::print(&[&["status", &address], more].concat()).await
    }

    /// Runs `mvp`: the exit code, and what it prints.
    pub(crate) async fn print(arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(binary());
        command.args(arguments);
        // On another thread: the servers of the test run on this one.
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// The body of an admin endpoint that must return 200.
    pub(crate) async fn page(&self, path: &str) -> String {
        let (code, body) = self.ask(path).await.expect("the admin endpoint answers");
        assert_eq!(code, 200, "{path}: {body}");
        body
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap()
    }

    /// Waits until the log contains this text.
    pub(crate) async fn logs(&self, text: &str) {
        eventually(text, async || match self.log() {
            log if log.contains(text) => Ok(()),
            log => Err(log),
        })
        .await;
    }

    /// The log lines of requests, with `--log-format=json`.
    pub(crate) fn requests_logged(&self) -> Vec<Value> {
        let log = self.log();
        let line = |line: &str| -> Value {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        // The last line may be incomplete.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().map(line).filter(|line| line["message"] == "request").collect()
    }

    pub(crate) fn memory(&self) -> Memory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
        };
        Memory { now: field("VmRSS"), most: field("VmHWM") }
    }

    /// The soft limit of a resource, as `/proc` names it.
    pub(crate) fn limit(&self, resource: &str) -> String {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.process.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix(resource)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    }

    /// The number of open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// Whether it handles SIGHUP.
    pub(crate) fn hears_hangups(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 == 1
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap();
    }

    /// The exit status, once it has exited.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.process.exit_status().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.process.kill();
        if std::thread::panicking() {
            eprintln!("the last lines of the gateway's log:\n{}", self.process.last_log_lines(30));
        }
        let _ = fs::remove_file(self.process.log());
    }
}

fn log_file() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("gateway-{}-{number}.log", std::process::id());
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The binary that cargo built, or that of `MVP_TEST_BINARY`.
fn binary() -> PathBuf {
    std::env::var_os("MVP_TEST_BINARY")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_mvp")), PathBuf::from)
}

/// The flags of a gateway with all certificates of the cluster, and more flags, which win over
/// these.
pub(crate) fn flags(
    address: SocketAddr,
    admin: SocketAddr,
    id: &str,
    local: SocketAddr,
    more: &[String],
) -> Vec<String> {
    let mut flags = vec![
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--admin-bind-address={admin}"),
        "--admin-socket=".to_owned(),
        format!("--server-id={id}"),
        format!("--local-server=https://{local}"),
        PKI.flag("tls-cert-file", "server.crt"),
        PKI.flag("tls-private-key-file", "server.key"),
        PKI.flag("peer-ca-file", "ca.crt"),
        PKI.flag("client-ca-file", "client-ca.crt"),
        PKI.flag("requestheader-client-ca-file", "proxy-ca.crt"),
        format!("--requestheader-allowed-names={FRONT_PROXY_NAME}"),
        PKI.flag("proxy-client-cert-file", "proxy.crt"),
        PKI.flag("proxy-client-key-file", "proxy.key"),
        "--workers=2".to_owned(),
        "--membership=static".to_owned(),
        "--log-format=json".to_owned(),
    ];
    let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
    flags.retain(|flag| more.iter().all(|other| name(other) != name(flag)));
    flags.extend_from_slice(more);
    flags
}

/// A free address below the ephemeral ports, so that it stays free.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 10_000 + u16::try_from(std::process::id() % 100).unwrap() * 200;
    loop {
        let port = start + NEXT.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
