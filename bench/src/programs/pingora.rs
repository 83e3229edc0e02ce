//! The forwarder on Pingora, built from `bench/pingora`. Entry item: [`build`].

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use testkit::cached::run;

/// Builds the forwarder in a target folder of its own in the cache, and returns it with the version of
/// Pingora. If nothing has changed, cargo finds that out in a second.
pub(super) fn build(cache: &Path, workspace: &Path) -> anyhow::Result<(PathBuf, String)> {
    let source = workspace.join("bench/pingora");
    let target = cache.join("bench-pingora");
    let program = target.join("release/bench-pingora");
    if !program.exists() {
        eprintln!("building the forwarder on Pingora: a few minutes, once");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(&source).args(["build", "--quiet", "--locked", "--release"]);
    run(command.arg("--target-dir").arg(&target))?;
    let lock = std::fs::read_to_string(source.join("Cargo.lock"))?;
    Ok((program, version(&lock, "pingora").context("Pingora is not in Cargo.lock")?))
}

/// The version of a crate in a lock file.
pub(super) fn version(lock: &str, name: &str) -> Option<String> {
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    let version = lines.nth(1)?.strip_prefix("version = \"")?;
    Some(version.trim_end_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_has_the_version() {
        let lock = "[[package]]\nname = \"pingora-core\"\nversion = \"0.1.0\"\n\n[[package]]\n\
                    name = \"pingora\"\nversion = \"0.9.1\"\nsource = \"x\"\n";
        assert_eq!(version(lock, "pingora").as_deref(), Some("0.9.1"));
        assert_eq!(version(lock, "envoy"), None);
    }

    #[test]
    fn the_forwarder_has_a_locked_pingora() {
        let lock = include_str!("../../pingora/Cargo.lock");
        assert!(version(lock, "pingora").is_some_and(|version| version.starts_with("0.9.")));
    }
}
