//! Programs that run beside the suite, and end with it however it ends. Entry item:
//! [`Process::start`].

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// A program that is running. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Runs a program under a host name of its own, its output into a file.
    ///
    /// It must be called on the main thread: the kernel kills the program when the thread that
    /// started it ends, so that nothing is left behind even if the suite itself is killed.
    pub(crate) fn start<A: AsRef<OsStr>>(
        name: &str,
        log: &Path,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Process> {
        Process::start_in(None, name, log, program, arguments)
    }

    /// The same in another network namespace.
    pub(crate) fn start_in<A: AsRef<OsStr>>(
        network: Option<&Path>,
        name: &str,
        log: &Path,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Process> {
        let open = || File::options().create(true).append(true).open(log);
        let file = open().with_context(|| format!("cannot open {log:?}"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(network) = network {
            command.args(["nsenter", &format!("--net={}", network.display())]);
        }
        command.arg("unshare").args(own_host_name()?);
        command.args(["sh", "-c", "hostname \"$0\" && exec \"$@\"", name]).arg(program);
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot run setpriv, of util-linux")?;
        Ok(Process { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Fails with the end of its log where it has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let (name, last) = (&self.name, tail(&self.log, 15));
                Err(Ended(format!("{name} ended by itself, {status}:\n{last}")).into())
            }
        }
    }

    /// `kill -9`, without a word of warning.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("no process")?, signal)
            .with_context(|| format!("cannot signal {}", self.name))
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if started.elapsed() > deadline {
                bail!("{} still runs after {deadline:?}", self.name);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The flags of `unshare` with which a program can have a host name of its own here:
/// kube-apiservers make their IDs of it.
fn own_host_name() -> anyhow::Result<&'static [&'static str]> {
    static FLAGS: OnceLock<Option<&[&str]>> = OnceLock::new();
    let found = FLAGS.get_or_init(|| {
        let works = |flags: &&&[&str]| {
            let mut command = Command::new("unshare");
            let output = command.args(**flags).args(["hostname", "e2e"]).output();
            output.is_ok_and(|output| output.status.success())
        };
        [&["--uts"][..], &["--map-root-user", "--uts"]].iter().find(works).copied()
    });
    found.context(
        "cannot give a program a host name of its own: run as root, or where `unshare \
         --map-root-user --uts` of util-linux works",
    )
}

/// A program ended that should run: there is nothing to wait for.
#[derive(Debug)]
struct Ended(String);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Ended {}

/// The last lines of a file.
fn tail(file: &Path, lines: usize) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

/// Waits for a condition: tries until it gives something, and says what never came.
pub(crate) async fn until<T>(
    what: &str,
    deadline: Duration,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        let last = match attempt().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) if error.is::<Ended>() => return Err(error.context(what.to_owned())),
            Err(error) => Some(error),
        };
        if started.elapsed() > deadline {
            let waited = deadline.as_secs();
            return match last {
                Some(error) => Err(error.context(format!("{what}: not within {waited} s"))),
                None => bail!("{what}: not within {waited} s"),
            };
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
