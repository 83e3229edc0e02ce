//! Programs of Debian's packages, unpacked into the cache. Nothing is installed, so no service is
//! started. Entry item: [`unpack`].

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Unpacks a package once, and returns a file in it. It needs `apt-get` and `dpkg-deb`.
pub(super) fn unpack(
    cache: &Path,
    package: &str,
    name: &str,
    file: &Path,
) -> anyhow::Result<PathBuf> {
    once(cache, name, file, |folder| {
        let download =
            || run(Command::new("apt-get").current_dir(folder).args(["download", package]));
        // The package lists may be missing or old.
        if download().is_err() {
            run(Command::new("apt-get").args(["-qq", "update"]))?;
            download()?;
        }
        run(Command::new("sh").current_dir(folder).args(["-c", "dpkg-deb -x *.deb . && rm *.deb"]))
    })
}

/// Creates a folder in the cache once, atomically, and returns a file in it.
pub(super) fn once(
    cache: &Path,
    name: &str,
    file: &Path,
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let folder = cache.join(name);
    if !folder.join(file).exists() {
        let beside = tempfile::tempdir_in(cache)?;
        make(beside.path())?;
        ensure!(beside.path().join(file).exists(), "there is no {file:?} in it");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::rename(beside.path(), &folder)?;
    }
    Ok(folder.join(file))
}

pub(super) fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", errors.trim());
    Ok(())
}
