//! The program of a release: built, stripped, and asked for its version, manual pages and completions.
//! Entries: [`build`], [`load`], [`manual`].

mod elf;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::cargo;
use crate::facts::Facts;

/// A stripped binary of `mvp`, and what it says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The binary.
    pub bytes: Vec<u8>,
    /// Its architecture by the name of Go and OCI, such as `amd64`.
    pub architecture: &'static str,
    /// The version that it prints.
    pub version: String,
    /// The commit that it was built from; empty if it does not know.
    pub commit: String,
    /// The loader and the shared libraries that it needs, by absolute path. None if it is static.
    pub libraries: Vec<(String, Vec<u8>)>,
    /// The oldest glibc that it runs with, such as `2.34`. None if it is static.
    pub needs_glibc: Option<String>,
}

/// What the data path does under load, by which the compiler optimizes it. `bench --train` writes it.
const PROFILE: &str = "tools/release/mvp.profdata";

/// Builds `mvp` with the profile `dist`, without the paths of this machine and the time of the build.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let root = cargo::workspace()?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let (root, home) = (root.display(), home.display());
    let flags = [
        format!("--remap-path-prefix={root}=/src"),
        format!("--remap-path-prefix={home}=/cargo"),
        format!("-Cprofile-use={root}/{PROFILE}"),
    ];
    let output = cargo::cargo()
        // Without --target, as in the training: names of functions depend on that, too.
        .args(["build", "--locked", "--package=mvp", "--bin=mvp", "--profile=dist"])
        // Below the root, whose path is replaced: generated code has its path in the binary, too.
        .arg("--target-dir")
        .arg(cargo::workspace()?.join("target"))
        .arg("--message-format=json-render-diagnostics")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        // File names in the assertions of C code.
        .env("CFLAGS", format!("-ffile-prefix-map={root}=/src -ffile-prefix-map={home}=/cargo"))
        // The C compiler's __DATE__ and __TIME__, which mimalloc uses.
        .env("SOURCE_DATE_EPOCH", Facts::of_checkout()?.time.to_string())
        .current_dir(cargo::workspace()?)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo to build mvp")?;
    ensure!(output.status.success(), "cannot build mvp; see the messages of cargo above");
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = |line: &str| -> Option<PathBuf> {
        let message: Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    };
    messages.lines().filter_map(executable).next_back().context("cargo names no binary of mvp")
}

/// Reads a binary, strips it, and asks it for its version. The file itself is not changed.
pub(crate) fn load(path: &Path) -> anyhow::Result<Program> {
    let original = fs::read(path).with_context(|| {
        format!("--binary: cannot read {}; build it, or omit --binary", path.display())
    })?;
    let facts = elf::Facts::read(&original)
        .with_context(|| format!("--binary: {} is no program for Linux", path.display()))?;
    // The stripped copy is run, so that one that strip broke is noticed.
    let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
    let copy = directory.path().join("mvp");
    strip(path, &copy)?;
    let bytes = fs::read(&copy).context("strip wrote no file")?;
    let said = ask(&copy, &["version", "--output=json"])?;
    let said: Value = serde_json::from_slice(&said).with_context(|| {
        format!("--binary: {} version prints no JSON; is it mvp?", path.display())
    })?;
    let field = |name| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let Some(version) = field("version") else {
        bail!("--binary: {} version names no version; is it mvp?", path.display());
    };
    let libraries = match &facts.interpreter {
        Some(interpreter) => libraries(interpreter, &copy)?,
        None => Vec::new(),
    };
    let needs_glibc = facts.interpreter.and_then(|_| elf::glibc(&bytes));
    Ok(Program {
        bytes,
        architecture: facts.architecture,
        version,
        commit: field("commit").unwrap_or_default(),
        libraries,
        needs_glibc,
    })
}

/// Manual pages and completions of a binary, by their path below `/usr/local`.
pub(crate) fn manual(path: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let path = &fs::canonicalize(path)?;
    let pages = tempfile::tempdir().context("cannot create a temporary directory")?;
    ask(path, &["man", "--out", &pages.path().to_string_lossy()])?;
    let mut files = Vec::new();
    for entry in fs::read_dir(pages.path())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((format!("share/man/man1/{name}"), fs::read(entry.path())?));
    }
    for (shell, place) in [
        ("bash", "share/bash-completion/completions/mvp"),
        ("zsh", "share/zsh/site-functions/_mvp"),
        ("fish", "share/fish/vendor_completions.d/mvp.fish"),
    ] {
        files.push((place.to_owned(), ask(path, &["completions", shell])?));
    }
    Ok(files)
}

/// Writes a copy of a binary without symbols and debug information.
fn strip(path: &Path, out: &Path) -> anyhow::Result<()> {
    let status = Command::new("strip").arg("--strip-all").arg("-o").arg(out).arg(path).status();
    let status = status.context("cannot run strip; install binutils")?;
    ensure!(status.success(), "strip cannot read {}: {status}", path.display());
    Ok(())
}

/// The loader and the libraries it finds for a binary.
fn libraries(interpreter: &str, path: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let said = ask(Path::new(interpreter), &["--list", &path.to_string_lossy()])?;
    let said = String::from_utf8_lossy(&said);
    let mut paths = vec![interpreter.to_owned()];
    // `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`; lines without `=>` are the kernel's
    // own object and the loader.
    for (name, found) in said.lines().filter_map(|line| line.trim().split_once(" => ")) {
        let found = found.split(" (").next().unwrap_or_default();
        ensure!(found.starts_with('/'), "the library {name} of {} is missing", path.display());
        paths.push(found.to_owned());
    }
    let read = |path: String| {
        let bytes = fs::read(&path).with_context(|| format!("cannot read the library {path}"))?;
        Ok((path, bytes))
    };
    paths.into_iter().map(read).collect()
}

/// What a program prints.
fn ask(program: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let shown = format!("{} {}", program.display(), arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {shown}"))?;
    ensure!(output.status.success(), "{shown}: {}", output.status);
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_completions_come_from_the_program() {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mvp");
        let mut files = manual(&program).unwrap();
        files.sort();
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), std::str::from_utf8(text).unwrap().trim()))
            .collect();
        let expected = [
            ("share/bash-completion/completions/mvp", "completions of bash"),
            ("share/fish/vendor_completions.d/mvp.fish", "completions of fish"),
            ("share/man/man1/mvp-serve.1", "page of serve"),
            ("share/man/man1/mvp.1", "page"),
            ("share/zsh/site-functions/_mvp", "completions of zsh"),
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn errors_name_the_binary() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mvp");
        let error = format!("{:#}", load(&script).unwrap_err());
        assert!(error.contains("fixtures/mvp is no program for Linux"), "{error}");
        let error = format!("{:#}", load(Path::new("/missing/mvp")).unwrap_err());
        assert!(error.contains("--binary: cannot read /missing/mvp; build it"), "{error}");
    }

    /// This test is a dynamic program itself.
    #[test]
    fn the_loader_and_the_libraries_of_a_dynamic_program_are_found() {
        let program = std::env::current_exe().unwrap();
        let facts = elf::Facts::read(&fs::read(&program).unwrap()).unwrap();
        let interpreter = facts.interpreter.unwrap();
        let found = libraries(&interpreter, &program).unwrap();
        let names: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert!(names.contains(&interpreter.as_str()), "{names:?}");
        assert!(names.iter().any(|name| name.ends_with("/libc.so.6")), "{names:?}");
        assert!(found.iter().all(|(path, bytes)| *bytes == fs::read(path).unwrap()));
    }
}
