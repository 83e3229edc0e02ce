//! A host of its own, whose network connection can be cut. Entry item: [`Cable::lay`].

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::process::{Process, Program, until};

/// A network namespace, joined to ours by a pair of interfaces. It ends with the holder process.
pub(crate) struct Cable {
    holder: Process,
}

impl Cable {
    /// Gives our end these addresses and the other end that one. Only in a network namespace of the
    /// suite: the addresses must not exist elsewhere.
    pub(super) async fn lay(near: &[IpAddr], far: IpAddr, folder: &Path) -> anyhow::Result<Cable> {
        ensure!(
            std::env::var_os(ISOLATED).is_some(),
            "this cluster needs a network of its own: `ip` of iproute2, and root"
        );
        let log = folder.join("cable.log");
        let arguments = ["--net", "sleep", "infinity"];
        let cable =
            Cable { holder: Program::new("cable", Path::new("unshare")).start(&log, arguments)? };
        let (ours, theirs) = (PathBuf::from("/proc/self/ns/net"), cable.namespace());
        until("the other host is there", Duration::from_secs(5), async || {
            let differ = std::fs::read_link(&theirs)? != std::fs::read_link(&ours)?;
            Ok(differ.then_some(()))
        })
        .await?;
        let holder = cable.holder.id().to_string();
        ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &holder])?;
        for address in near {
            ip(&["address", "add", &format!("{address}/24"), "dev", "near"])?;
        }
        ip(&["link", "set", "near", "up"])?;
        cable.over_there(&["address", "add", &format!("{far}/24"), "dev", "far"])?;
        cable.over_there(&["link", "set", "lo", "up"])?;
        cable.mend()?;
        Ok(cable)
    }

    /// Drops all packets from now on, without an error to either side.
    pub(crate) fn cut(&self) -> anyhow::Result<()> {
        self.over_there(&["link", "set", "far", "down"])
    }

    pub(crate) fn mend(&self) -> anyhow::Result<()> {
        self.over_there(&["link", "set", "far", "up"])
    }

    /// The network namespace of the other host.
    pub(super) fn namespace(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.holder.id()))
    }

    fn over_there(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let namespace = format!("--net={}", self.namespace().display());
        let mut command = Command::new("nsenter");
        command.args([&namespace, "ip"]).args(arguments);
        run(command)
    }
}

/// Set in a process that has a network of its own.
pub(crate) const ISOLATED: &str = "MVP_E2E_ISOLATED";

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    command.args(arguments);
    run(command)
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let output = command.output().context("cannot run ip, of iproute2")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(())
}
