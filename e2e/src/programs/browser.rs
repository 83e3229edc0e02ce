//! Debian's Chromium, and what drives it: Playwright and axe-core in pinned versions. Entry item:
//! [`Browser::get`].

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};
use testkit::cached::{once, run};

use super::short;

/// Where Debian's package puts it.
const CHROMIUM: &str = "/usr/bin/chromium";

/// A browser, and the packages that drive it.
#[derive(Debug, Clone)]
pub(crate) struct Browser {
    pub(crate) chromium: PathBuf,
    /// The folder of the packages.
    pub(crate) packages: PathBuf,
}

impl Browser {
    pub(super) fn get(cache: &Path) -> anyhow::Result<Browser> {
        std::fs::create_dir_all(cache)?;
        let packages = packages(cache)?;
        Ok(Browser { chromium: chromium()?, packages })
    }
}

/// The folder of the script that looks at the dashboard, and of its lock file.
pub(crate) fn browser_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join("browser")
}

/// The browser, installed if it is not there. Its package starts no service, and has too many libraries
/// to be unpacked by itself.
fn chromium() -> anyhow::Result<PathBuf> {
    let program = PathBuf::from(CHROMIUM);
    if !program.is_file() {
        install(&["chromium", "fonts-dejavu-core"])?;
    }
    Ok(program)
}

/// Installs packages of Debian.
fn install(names: &[&str]) -> anyhow::Result<()> {
    let install = || {
        let flags = ["-qq", "install", "--yes", "--no-install-recommends"];
        let mut command = Command::new("apt-get");
        run(command.env("DEBIAN_FRONTEND", "noninteractive").args(flags).args(names))
    };
    // The package lists may be missing or old.
    if install().is_err() {
        run(Command::new("apt-get").args(["-qq", "update"]))?;
        install()?;
    }
    Ok(())
}

fn packages(cache: &Path) -> anyhow::Result<PathBuf> {
    let (package, lock) = ("package.json", "package-lock.json");
    let source = browser_folder();
    if run(Command::new("npm").arg("--version")).is_err() {
        install(&["nodejs", "npm"])?;
    }
    let key = short(Sha256::new_with_prefix(std::fs::read(source.join(lock))?));
    once(cache, &format!("browser-{key}"), Path::new("node_modules"), |folder| {
        for file in [package, lock] {
            std::fs::copy(source.join(file), folder.join(file))?;
        }
        let flags = ["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"];
        run(Command::new("npm").current_dir(folder).args(flags)).map(drop)
    })
}
