//! Programs of Debian's packages, unpacked into the cache. Nothing is installed, so no service is
//! started. Entry item: [`unpack`].

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::cached::{once, run};

/// Finds Debian's Prometheus in the cache, or downloads it. Returns the folder of its programs.
pub(super) fn prometheus(cache: &Path) -> anyhow::Result<PathBuf> {
    let program = Path::new("usr/bin").join("prometheus");
    let program = unpack(cache, "prometheus", "prometheus-of-debian", &program)?;
    Ok(program.parent().unwrap_or(&program).to_owned())
}

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
        let unpack = "dpkg-deb -x *.deb . && rm *.deb";
        run(Command::new("sh").current_dir(folder).args(["-c", unpack])).map(drop)
    })
}
