//! Programs that run beside a test and end with it, however it ends. Entry item: [`Program`].

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fmt, io};

use anyhow::{Context, bail};
use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

/// A program to run.
#[derive(Debug, Clone)]
pub struct Program {
    name: String,
    path: PathBuf,
    host_name: bool,
    network: Option<PathBuf>,
    cpus: Option<String>,
}

impl Program {
    /// The program at this path. The name is for error messages.
    pub fn new(name: &str, path: &Path) -> Program {
        let (name, path) = (name.to_owned(), path.to_owned());
        Program { name, path, host_name: false, network: None, cpus: None }
    }

    /// Gives it its name as a host name of its own: kube-apiserver and `mvp` derive their IDs from
    /// the host name.
    pub fn with_host_name(mut self) -> Program {
        self.host_name = true;
        self
    }

    /// Runs it in this network namespace.
    pub fn in_network(mut self, network: Option<&Path>) -> Program {
        self.network = network.map(Path::to_owned);
        self
    }

    /// Runs it on these CPUs, a list as `taskset` takes it.
    pub fn on_cpus(mut self, cpus: Option<String>) -> Program {
        self.cpus = cpus;
        self
    }

    /// The command line. The kernel kills the program when the thread that starts it ends, so that
    /// nothing is left behind even if the test is killed: start it on the main thread.
    pub fn command(&self) -> anyhow::Result<Command> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).stdin(Stdio::null());
        if let Some(network) = &self.network {
            command.args(["nsenter", &format!("--net={}", network.display())]);
        }
        if let Some(cpus) = &self.cpus {
            command.args(["taskset", "--cpu-list", cpus]);
        }
        if self.host_name {
            command.arg("unshare").args(host_name_flags()?);
            command.args(["sh", "-c", "hostname \"$0\" && exec \"$@\"", &self.name]);
        }
        command.arg(&self.path);
        Ok(command)
    }

    /// Starts it. Its output is appended to the log.
    pub fn start<A: AsRef<OsStr>>(
        &self,
        log: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Process> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("cannot open {}", log.display()))?;
        let mut command = self.command()?;
        command.args(arguments).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().context("cannot run setpriv; install util-linux")?;
        Ok(Process::new(&self.name, child, log))
    }
}

/// A running program. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// A child process whose output goes to this log.
    pub fn new(name: &str, child: Child, log: &Path) -> Process {
        Process { name: name.to_owned(), child, log: log.to_owned() }
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The path of the log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of the log.
    pub fn last_log_lines(&self, count: usize) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
    }

    /// The exit status, once the process has ended.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Fails with the end of the log if the process has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.exit_status()? {
            None => Ok(()),
            Some(status) => {
                let (name, last) = (&self.name, self.last_log_lines(15));
                Err(Exited(format!("{name} exited unexpectedly, {status}:\n{last}")).into())
            }
        }
    }

    /// Kills it with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("no process ID")?, signal)
            .with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Waits until it has exited.
    pub async fn exited(&mut self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} exits", self.name);
        until(&what, deadline, async || Ok(self.exit_status()?)).await
    }

    /// Waits until `attempt` succeeds, as long as the process runs.
    pub async fn ready(
        &mut self,
        deadline: Duration,
        mut attempt: impl AsyncFnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let what = format!("{} is ready", self.name);
        until(&what, deadline, async || {
            self.check()?;
            attempt().await.map(Some)
        })
        .await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Retries until `attempt` returns a value. After the deadline it fails with the last error.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        let last = match attempt().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) if error.is::<Exited>() => return Err(error.context(what.to_owned())),
            Err(error) => Some(error),
        };
        if started.elapsed() > deadline {
            let timed_out = format!("{what}: timed out after {} s", deadline.as_secs());
            match last {
                Some(error) => return Err(error.context(timed_out)),
                None => bail!(timed_out),
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A program that should run has exited: waiting is pointless.
#[derive(Debug)]
struct Exited(String);

impl fmt::Display for Exited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Exited {}

/// The flags with which `unshare` can set a host name here.
fn host_name_flags() -> anyhow::Result<&'static [&'static str]> {
    static FLAGS: OnceLock<Option<&[&str]>> = OnceLock::new();
    let found = FLAGS.get_or_init(|| {
        let works = |flags: &&&[&str]| {
            let mut command = Command::new("unshare");
            let output = command.args(**flags).args(["hostname", "test"]).output();
            output.is_ok_and(|output| output.status.success())
        };
        [&["--uts"][..], &["--map-root-user", "--uts"]].iter().find(works).copied()
    });
    found.context(
        "cannot give a program its own host name: run as root, or where `unshare --map-root-user \
         --uts` of util-linux works",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (tempfile::TempDir, Process) {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::new("shell", Path::new("sh"));
        let process = program.start(&folder.path().join("log"), ["-c", script]).unwrap();
        (folder, process)
    }

    #[tokio::test]
    async fn waiting_ends_when_the_process_exits() {
        let (_folder, mut process) = shell("echo first; echo last; exit 3");
        let never = async || bail!("not ready");
        let error = process.ready(Duration::from_secs(60), never).await.unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("exited unexpectedly") && text.contains("first\nlast"), "{text}");
    }

    #[tokio::test]
    async fn a_timeout_reports_the_last_error() {
        let never = async || -> anyhow::Result<Option<()>> { bail!("connection refused") };
        let error = until("the server answers", Duration::ZERO, never).await.unwrap_err();
        let text = format!("{error:#}");
        assert_eq!(text, "the server answers: timed out after 0 s: connection refused");
    }

    #[tokio::test]
    async fn a_signal_ends_the_process() {
        let (_folder, mut process) = shell("exec sleep 60");
        process.signal(Signal::TERM).unwrap();
        let status = process.exited(Duration::from_secs(60)).await.unwrap();
        assert!(!status.success(), "{status}");
    }
}
