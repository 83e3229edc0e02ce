//! The canary step of `docs/upgrade.md`, run as its text says. Entry item: [`from_the_runbook`].
//!
//! Of the section, each block `console` has commands (`$ …`, continued by `> …`) and what they print.
//! `…` in a printed line stands for anything. Between the blocks of the section, the server changes.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::programs::Minor;

const SECTION: &str = "\n## Canary: one server\n";

/// Runs the first block with 1.34 everywhere, the second one after `a` is upgraded to 1.36, and the
/// third one after it went back.
pub(super) async fn from_the_runbook(cluster: &mut Cluster) -> anyhow::Result<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/upgrade.md");
    let page = std::fs::read_to_string(&page).with_context(|| format!("cannot read {page:?}"))?;
    let blocks = blocks(&page)?;
    ensure!(blocks.len() == 3, "{} blocks in place of three", blocks.len());
    for server in &mut cluster.servers {
        if server.spec.minor != Minor::V1_34 {
            server.leave_for(Minor::V1_34).await?;
        }
    }
    cluster.heal().await?;
    let shell = Shell::new(cluster, "a", "b")?;
    let releases = [Minor::V1_34, Minor::V1_36, Minor::V1_34];
    let (mut commands, mut lines) = (0, 0);
    for (steps, release) in blocks.iter().zip(releases) {
        if cluster.server("a")?.spec.minor != release {
            cluster.server_mut("a")?.leave_for(release).await?;
            cluster.heal().await?;
        }
        for step in steps {
            shell.run(step).await?;
            commands += 1;
            lines += step.printed.len();
        }
    }
    Ok(format!("{commands} commands print what docs/upgrade.md says ({lines} lines)"))
}

/// A command with what it prints.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    printed: Vec<String>,
}

/// The blocks of the section.
fn blocks(page: &str) -> anyhow::Result<Vec<Vec<Step>>> {
    let section = page.split_once(SECTION).context("docs/upgrade.md has no such section")?.1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```console\n").skip(1);
    blocks.map(|block| steps(block.split("```").next().unwrap_or_default())).collect()
}

fn steps(block: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    // A block in a list is indented.
    let indent = block.len() - block.trim_start_matches(' ').len();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let line = line.get(indent..).unwrap_or_default();
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), printed: Vec::new() });
            continue;
        }
        let step = steps.last_mut().with_context(|| format!("`{line}` follows no command"))?;
        match line.strip_prefix("> ").filter(|_| step.printed.is_empty()) {
            Some(more) => step.command = format!("{}\n{more}", step.command),
            None => step.printed.push(line.to_owned()),
        }
    }
    Ok(steps)
}

/// A shell on the host of the canary.
struct Shell {
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
    admin: SocketAddr,
    canary: SocketAddr,
    other: SocketAddr,
}

impl Shell {
    fn new(cluster: &Cluster, canary: &str, other: &str) -> anyhow::Result<Shell> {
        let folder = tempfile::tempdir_in(cluster.folder())?;
        symlink(cluster.programs.kubectl(), folder.path().join("kubectl"))?;
        symlink(&cluster.programs.mvp, folder.path().join("mvp"))?;
        let (canary, other) = (cluster.server(canary)?, cluster.server(other)?);
        Ok(Shell {
            folder,
            kubeconfig: cluster.kubeconfig("admin", canary.through())?,
            admin: canary.gateway_admin(),
            canary: canary.through(),
            other: other.through(),
        })
    }

    /// Runs a command, and compares what it prints.
    async fn run(&self, step: &Step) -> anyhow::Result<()> {
        let path = std::env::var("PATH").unwrap_or_default();
        let run = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {}", step.command)])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.folder.path().display()))
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("ADMIN", self.admin.to_string())
            .env("CANARY", self.canary.to_string())
            .env("OTHER", self.other.to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(Duration::from_secs(60), run).await;
        let output = output.with_context(|| format!("`{}` hangs", step.command))??;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "`{}`: {}: {printed}", step.command, output.status);
        let mut lines = printed.lines();
        for expected in &step.printed {
            if !lines.any(|line| fits(line.trim_end(), expected)) {
                bail!("`{}` prints no line `{expected}` here: {printed}", step.command);
            }
        }
        Ok(())
    }
}

/// Whether a line has the parts between `…`, in this order, and nothing else.
fn fits(line: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runbook_can_be_run() {
        let blocks = blocks(include_str!("../../../../docs/upgrade.md")).expect("blocks");
        assert_eq!(blocks.len(), 3);
        assert!(blocks.iter().flatten().all(|step| !step.printed.is_empty()), "{blocks:?}");
    }

    #[test]
    fn a_block_has_commands_and_what_they_print() {
        let found = steps("  $ cat <<EOF\n  > a\n  > EOF\n  a\n  $ date\n  ").expect("steps");
        let step = |command: &str, printed: &[&str]| Step {
            command: command.to_owned(),
            printed: printed.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert_eq!(found, [step("cat <<EOF\na\nEOF", &["a"]), step("date", &[])]);
        steps("printed by nobody\n").expect_err("no command");
    }

    #[test]
    fn a_line_fits_around_the_dots() {
        for (line, expected, fit) in [
            ("v1.36.4", "v1.36.…", true),
            ("v1.34.4", "v1.36.…", false),
            ("a 12s b", "a …s b", true),
            ("a 12s bc", "a …s b", false),
            ("same", "same", true),
            ("same or not", "same", false),
            ("x y z", "…y…", true),
        ] {
            assert_eq!(fits(line, expected), fit, "{line} as {expected}");
        }
    }
}
