//! The archive for hosts, and the checksums of a release. Entries: [`pack`], [`sums`].

#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use anyhow::Context;
use sha2::{Digest, Sha256};

use crate::binary::Program;
use crate::facts::Facts;
use crate::tarball::{Tarball, gzip};

/// What is packed.
#[derive(Debug)]
pub(crate) struct Contents<'a> {
    /// The stripped binary.
    pub program: &'a [u8],
    /// Manual pages and completions, by their path below `/usr/local`.
    pub manual: Vec<(String, Vec<u8>)>,
    /// The licences of the crates in the binary.
    pub third_party: String,
    /// The root of the workspace, for manifests, licence and README.
    pub workspace: &'a Path,
}

/// The name of the archive, and of the directory in it: `mvp-VERSION-linux-amd64`.
pub(crate) fn name(program: &Program, facts: &Facts) -> String {
    format!("mvp-{}-linux-{}", facts.version, program.architecture)
}

/// The archive, a gzipped tar.
pub(crate) fn pack(name: &str, contents: &Contents<'_>, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut tar = Tarball::default();
    tar.file(&format!("{name}/bin/mvp"), 0o755, contents.program);
    // kubectl finds plugins by this name.
    tar.link(&format!("{name}/bin/kubectl-mvp"), "mvp");
    for (path, bytes) in &contents.manual {
        tar.file(&format!("{name}/{path}"), 0o644, bytes.as_slice());
    }
    tar.file(&format!("{name}/THIRD-PARTY-LICENSES"), 0o644, contents.third_party.as_bytes());
    for file in ["LICENSE", "README.md"] {
        tar.file(&format!("{name}/{file}"), 0o644, read(&contents.workspace.join(file))?);
    }
    add_directory(&mut tar, &format!("{name}/deploy"), &contents.workspace.join("deploy"))?;
    gzip(&tar.bytes(time)?)
}

/// The text of SHA256SUMS, for `sha256sum --check`.
pub(crate) fn sums(files: &[(String, Vec<u8>)]) -> String {
    let line = |(name, bytes): &(String, Vec<u8>)| {
        format!("{}  {name}\n", data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)))
    };
    files.iter().map(line).collect()
}

/// Adds the files of a directory, except what is of use only beside the source.
fn add_directory(tar: &mut Tarball, name: &str, directory: &Path) -> anyhow::Result<()> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read the directory {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let file_name = entry.file_name().to_string_lossy().into_owned();
        if file_name == "tests" || file_name.starts_with("Dockerfile") {
            continue;
        }
        let name = format!("{name}/{file_name}");
        if !entry.file_type()?.is_dir() {
            tar.file(&name, 0o644, read(&entry.path())?);
        } else {
            add_directory(tar, &name, &entry.path())?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
