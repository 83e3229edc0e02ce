//! Tells the crate from which commit and by which compiler it is built, for `mvp version` and the metric
//! `mvp_build_info`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MVP_COMMIT");
    let named = env::var("MVP_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(checked_out).unwrap_or_default();
    println!("cargo::rustc-env=MVP_COMMIT={commit}");
    println!("cargo::rustc-env=MVP_RUSTC={}", compiler().unwrap_or_default());
    for name in ["TARGET", "PROFILE"] {
        println!("cargo::rustc-env=MVP_{name}={}", env::var(name).unwrap_or_default());
    }
}

/// The version of the compiler, such as `1.95.0`.
fn compiler() -> Option<String> {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(compiler).arg("--version").output().ok()?;
    // Such as "rustc 1.95.0 (59807616e 2026-04-14)".
    let said = String::from_utf8(said.stdout).ok()?;
    said.split_ascii_whitespace().nth(1).map(str::to_owned)
}

/// The commit that is checked out; none in a tree without git, such as a tarball. Files are read instead
/// of running git: cargo then runs this again when one of them changes, and only then.
fn checked_out() -> Option<String> {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join("../..");
    let mut git = root.join(".git");
    // In a linked worktree it is a file.
    if git.is_file() {
        let text = watched(&git)?;
        git = root.join(text.trim().strip_prefix("gitdir: ")?);
    }
    let head = watched(&git.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return commit(&head) };
    let shared = fs::read_to_string(git.join("commondir")).ok();
    let shared = shared.map_or_else(|| git.clone(), |path| git.join(path.trim()));
    let loose = watched(&shared.join(name)).and_then(|text| commit(&text));
    loose.or_else(|| {
        let packed = watched(&shared.join("packed-refs"))?;
        let line = packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' '))?;
        commit(line)
    })
}

/// The text of a file. Cargo runs this program again when the file changes.
fn watched(path: &PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}

fn commit(text: &str) -> Option<String> {
    let text = text.trim();
    let is_hash = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}
