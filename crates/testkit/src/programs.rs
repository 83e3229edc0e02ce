//! The programs under test: `mvp`, built when needed, and the cache of Kubernetes programs that
//! `e2e` builds. Entry item: [`mvp`].

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use anyhow::{Context, ensure};

use crate::process::Program;

/// The profile by which the compiler optimizes releases, in the workspace. `bench --train` writes it.
pub const PROFILE: &str = "tools/release/mvp.profdata";
/// The cargo profile of releases.
const RELEASES: &str = "dist";

/// The `mvp` under test, in the given cargo profile.
///
/// `MVP_TEST_BINARY` names another binary. Otherwise cargo builds `mvp` from this tree. It never
/// waits for another build: if one holds the lock of the target folder, an up-to-date binary is used
/// as it is, and an outdated one is built in a target folder of its own.
pub fn mvp(profile: &str) -> anyhow::Result<PathBuf> {
    if let Some(binary) = variable("MVP_TEST_BINARY") {
        let binary = std::path::absolute(binary)?;
        let shown = binary.display();
        ensure!(binary.is_file(), "MVP_TEST_BINARY={shown}: no such file; build it, or unset it");
        return Ok(binary);
    }
    let workspace = workspace()?;
    let target = target_folder()?;
    let artifacts = target.join(profile);
    if !is_locked(&artifacts.join(".cargo-lock"))? {
        return build(&workspace, profile, &target);
    }
    let binary = artifacts.join("mvp");
    if is_up_to_date(&binary, &workspace) {
        return Ok(binary);
    }
    let own = target.join("testkit");
    eprintln!("another cargo build holds {}; building mvp in {}", target.display(), own.display());
    build(&workspace, profile, &own)
}

/// The folder of the Kubernetes programs that `e2e` builds: `$MVP_E2E_CACHE`, or `mvp-e2e` in the
/// user's cache folder.
pub fn cache() -> anyhow::Result<PathBuf> {
    if let Some(folder) = variable("MVP_E2E_CACHE") {
        return Ok(std::path::absolute(folder)?);
    }
    let caches = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let caches = caches.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".cache")));
    let caches = caches.context("cannot find a cache folder: set MVP_E2E_CACHE or HOME")?;
    Ok(caches.join("mvp-e2e"))
}

/// The newest folder in the cache whose name starts with `version` and that has this program.
pub fn newest_in_cache(version: &str, program: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(cache().ok()?).ok()?;
    let folders = entries.flatten().map(|entry| entry.path());
    let fits = |folder: &PathBuf| {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(version) && folder.join(program).is_file()
    };
    folders.filter(fits).max()
}

/// The root folder of the workspace.
pub fn workspace() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.map(Path::to_owned).context("testkit is not in a workspace")
}

/// The target folder that the running program was built in, which is also cargo's for `mvp`.
fn target_folder() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.ancestors().nth(2).context("this program is in no target folder")?;
    Ok(folder.to_owned())
}

/// Whether another process holds cargo's lock.
fn is_locked(lock: &Path) -> anyhow::Result<bool> {
    let Ok(file) = File::open(lock) else {
        return Ok(false);
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", lock.display()))
        }
    }
}

/// Whether a binary is newer than every source file it was built from, as cargo recorded them
/// beside it, and than the manifests of the workspace.
fn is_up_to_date(binary: &Path, workspace: &Path) -> bool {
    let modified = |file: &Path| -> Option<SystemTime> { file.metadata().ok()?.modified().ok() };
    let (Some(built), Ok(recorded)) =
        (modified(binary), std::fs::read_to_string(binary.with_extension("d")))
    else {
        return false;
    };
    let sources = sources(&recorded);
    let inputs = sources.iter().cloned().chain(manifests(workspace));
    let is_older = |file: PathBuf| modified(&file).is_some_and(|at| at < built);
    !sources.is_empty() && inputs.into_iter().all(is_older)
}

/// The manifests of the workspace and of its crates, and the lock file.
fn manifests(workspace: &Path) -> Vec<PathBuf> {
    let crates = std::fs::read_dir(workspace.join("crates"));
    let crates = crates.into_iter().flatten().flatten().map(|entry| entry.path());
    let of_crates = crates.map(|folder| folder.join("Cargo.toml"));
    ["Cargo.toml", "Cargo.lock"]
        .map(|file| workspace.join(file))
        .into_iter()
        .chain(of_crates)
        .collect()
}

/// The source files in a dep-info file: `BINARY: SOURCE SOURCE`, spaces in paths escaped.
fn sources(recorded: &str) -> Vec<PathBuf> {
    let line = recorded.lines().find_map(|line| line.split_once(": "));
    let sources = line.map(|(_, sources)| sources.replace("\\ ", "\0")).unwrap_or_default();
    sources.split_whitespace().map(|source| source.replace('\0', " ").into()).collect()
}

fn build(workspace: &Path, profile: &str, target: &Path) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Program::new("cargo", Path::new(&cargo)).command()?;
    if profile == RELEASES {
        let profile = workspace.join(PROFILE);
        command.env("CARGO_ENCODED_RUSTFLAGS", format!("-Cprofile-use={}", profile.display()));
    }
    command.current_dir(workspace).args(["build", "--bin=mvp", "--profile", profile]);
    if profile == RELEASES {
        // By itself, as in the training: the names of functions depend on the features.
        command.arg("--package=mvp");
    }
    let output = command
        .arg("--target-dir")
        .arg(target)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo to build mvp")?;
    ensure!(output.status.success(), "cannot build mvp; see the messages of cargo above");
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_mvp = message.pointer("/target/name")?.as_str()? == "mvp";
        is_mvp.then(|| message.get("executable")?.as_str().map(PathBuf::from))?
    });
    executables.next_back().context("cargo did not report the path of mvp")
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_held_lock_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join(".cargo-lock");
        assert!(!is_locked(&lock).unwrap(), "no build has run yet");
        let file = File::create(&lock).unwrap();
        assert!(!is_locked(&lock).unwrap());
        file.lock().unwrap();
        assert!(is_locked(&lock).unwrap());
        file.unlock().unwrap();
        assert!(!is_locked(&lock).unwrap());
    }

    #[test]
    fn a_binary_is_outdated_when_a_source_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("crates/mvp")).unwrap();
        let recorded = format!("{}: {}\n", path("mvp").display(), path("main.rs").display());
        std::fs::write(path("mvp.d"), recorded).unwrap();
        let now = SystemTime::now();
        for (name, age) in [
            ("Cargo.toml", 20),
            ("Cargo.lock", 20),
            ("crates/mvp/Cargo.toml", 20),
            ("main.rs", 20),
            ("mvp", 10),
        ] {
            let file = File::create(path(name)).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
        assert!(is_up_to_date(&path("mvp"), folder.path()));
        File::options().write(true).open(path("main.rs")).unwrap().set_modified(now).unwrap();
        assert!(!is_up_to_date(&path("mvp"), folder.path()));
        std::fs::remove_file(path("main.rs")).unwrap();
        assert!(!is_up_to_date(&path("mvp"), folder.path()));
    }

    #[test]
    fn dep_info_is_read_with_spaces_in_paths() {
        let recorded = "/t/mvp: /a\\ b/main.rs /c/lib.rs\n\n/c/lib.rs:\n";
        assert_eq!(sources(recorded), [Path::new("/a b/main.rs"), Path::new("/c/lib.rs")]);
    }
}
