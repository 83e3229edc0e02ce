//! What cargo, rustc and the C library tell about the workspace. Entry: [`inputs`].

mod packages;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

pub(crate) use packages::Package;

/// What the SBOM and the list of licences are made from.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// The output of `cargo metadata`.
    pub metadata: Value,
    /// Packages that are compiled into `mvp`, as `NAME vVERSION`.
    pub linked: BTreeSet<String>,
    /// These, and the packages of build scripts.
    pub built: BTreeSet<String>,
    /// The text of Cargo.lock.
    pub lock: String,
    /// The version of the compiler and of its standard library.
    pub rust: String,
    /// The version of the C library.
    pub glibc: String,
}

/// Asks cargo, rustc and getconf. The network is used only for crates that are not downloaded yet.
pub(crate) fn inputs() -> anyhow::Result<Inputs> {
    let metadata = run(
        cargo(),
        &["metadata", "--locked", "--format-version=1", "--filter-platform", &target()],
    )?;
    let lock = workspace()?.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock)
        .with_context(|| format!("cannot read {}", lock.display()))?;
    let rust = run(Command::new("rustc"), &["--version"])?;
    let rust = rust.split(' ').nth(1).context("rustc --version prints no version")?;
    let glibc = run(Command::new("getconf"), &["GNU_LIBC_VERSION"])?;
    let glibc = glibc.trim().strip_prefix("glibc ").context("getconf prints no glibc version")?;
    Ok(Inputs {
        metadata: serde_json::from_str(&metadata).context("cargo metadata prints no JSON")?,
        linked: tree("normal")?,
        built: tree("normal,build")?,
        lock,
        rust: rust.to_owned(),
        glibc: glibc.to_owned(),
    })
}

/// The root of the workspace.
pub(crate) fn workspace() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.map(Path::to_owned).context("this program was not built in its workspace")
}

/// The cargo that runs this program, or the one in `PATH`.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The target triple that is built: this machine's, with the GNU C library.
pub(crate) fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The packages of `mvp` by kind of dependency. `cargo metadata` alone is not enough: it joins the
/// features of the whole workspace, and would name crates that are not in `mvp`, such as ring.
fn tree(kinds: &str) -> anyhow::Result<BTreeSet<String>> {
    let target = target();
    let command = ["tree", "--locked", "--package=mvp", "--prefix=none", "--format={p}"];
    let said = run(cargo(), &[&command[..], &["--edges", kinds, "--target", &target]].concat())?;
    let package = |line: &str| -> Option<String> {
        let (name, rest) = line.split_once(' ')?;
        Some(format!("{name} {}", rest.split(' ').next()?))
    };
    Ok(said.lines().filter_map(package).collect())
}

fn run(mut command: Command, arguments: &[&str]) -> anyhow::Result<String> {
    let shown = format!("{} {}", command.get_program().display(), arguments.join(" "));
    let output = command
        .args(arguments)
        .current_dir(workspace()?)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {shown}"))?;
    ensure!(output.status.success(), "{shown}: {}; see its messages above", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{shown} prints no UTF-8"))
}

/// The inputs, asked for once.
#[cfg(test)]
pub(crate) fn inputs_for_tests() -> &'static Inputs {
    static INPUTS: std::sync::OnceLock<Inputs> = std::sync::OnceLock::new();
    INPUTS.get_or_init(|| inputs().unwrap())
}
