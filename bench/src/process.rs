//! Programs that run beside the bench, on cores of their own, and end with it however it ends.
//! Entry item: [`Process::start`].

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Where a program may run. With two cores or more the proxy has the first to itself, so that
/// neither the load nor the server behind it takes its time or its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    Proxy,
    Load,
    Any,
}

impl Cores {
    /// As `taskset` takes it; nothing where there is nothing to choose.
    fn list(self, cores: usize) -> Option<String> {
        match (self, cores) {
            (Cores::Any, _) | (_, 0 | 1) => None,
            (Cores::Proxy, _) => Some("0".to_owned()),
            (Cores::Load, 2) => Some("1".to_owned()),
            (Cores::Load, more) => Some(format!("1-{}", more - 1)),
        }
    }
}

/// A command that dies with this process's main thread, on the cores that are meant for it.
pub(crate) fn command(program: &Path, cores: Cores) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    let present = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(list) = cores.list(present) {
        command.args(["taskset", "--cpu-list", &list]);
    }
    command.arg(program).stdin(Stdio::null());
    command
}

/// A program that is running. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Runs a program, its output into a file.
    pub(crate) fn start<A: AsRef<OsStr>>(
        name: &str,
        log: &Path,
        program: &Path,
        cores: Cores,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Process> {
        let file = File::create(log).with_context(|| format!("cannot open {log:?}"))?;
        let child = command(program, cores)
            .args(arguments)
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot run setpriv, of util-linux")?;
        Ok(Process { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Fails with the end of its log where it has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let text = std::fs::read(&self.log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let mut last: Vec<&str> = text.lines().rev().take(15).collect();
            last.reverse();
            bail!("{} ended by itself, {status}:\n{}", self.name, last.join("\n"));
        }
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `attempt` succeeds, for as long as the program runs.
    pub(crate) async fn ready(
        &mut self,
        within: Duration,
        mut attempt: impl AsyncFnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            self.check()?;
            match attempt().await {
                Ok(()) => return Ok(()),
                Err(error) if started.elapsed() > within => {
                    let waited = within.as_secs();
                    let context = format!("{}: not ready within {waited} s", self.name);
                    return Err(error.context(context));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_has_a_core_to_itself() {
        assert_eq!(Cores::Proxy.list(2).as_deref(), Some("0"));
        assert_eq!(Cores::Load.list(2).as_deref(), Some("1"));
        assert_eq!(Cores::Load.list(8).as_deref(), Some("1-7"));
        assert_eq!(Cores::Proxy.list(1), None);
        assert_eq!(Cores::Any.list(8), None);
    }
}
