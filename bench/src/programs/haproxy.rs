//! A newer haproxy on AWS-LC, built from source: no package that can be had here has one. haproxy comes
//! from the source package of a later Debian release, AWS-LC from the crate that `mvp` itself uses.
//! Entry item: [`build`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::cached::{once, run};

use super::pingora::version;

/// The Debian release. The sources of later ones (3.2) are not on every mirror.
const RELEASE: &str = "trixie";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The crate that carries the sources of AWS-LC.
const AWS_LC: &str = "aws-lc-sys";

/// Builds it once. It needs `apt-get` with Debian's sources, a C compiler, `make` and `cmake`.
pub(super) fn build(cache: &Path, workspace: &Path) -> anyhow::Result<PathBuf> {
    let lock = fs::read_to_string(workspace.join("Cargo.lock"))?;
    let crypto = version(&lock, AWS_LC).context("AWS-LC is not in Cargo.lock")?;
    let name = format!("haproxy-{RELEASE}-aws-lc-{crypto}");
    once(cache, &name, Path::new("haproxy"), |folder| {
        eprintln!("building haproxy of {RELEASE} on AWS-LC: some minutes, once");
        let work = tempfile::tempdir_in(cache)?;
        let prefix = build_crypto(&aws_lc(workspace)?, work.path()).context("AWS-LC")?;
        let source = download(work.path()).context("the source of haproxy")?;
        let mut make = Command::new("make");
        make.current_dir(&source).args(["-j2", "TARGET=linux-glibc", "CPU_CFLAGS=-O2"]);
        make.arg("USE_OPENSSL_AWSLC=1");
        make.arg(format!("SSL_INC={}", prefix.join("include").display()));
        make.arg(format!("SSL_LIB={}", prefix.join("lib").display()));
        run(make.arg("haproxy"))?;
        fs::copy(source.join("haproxy"), folder.join("haproxy"))?;
        Ok(())
    })
}

/// The folder of AWS-LC in the crate.
fn aws_lc(workspace: &Path) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace).args(["metadata", "--locked", "--format-version=1"]);
    let metadata: serde_json::Value = serde_json::from_str(&run(&mut command)?)?;
    let packages = metadata.get("packages").and_then(|all| all.as_array());
    let manifest = packages.into_iter().flatten().find_map(|package| {
        let is_it = package.get("name")?.as_str()? == AWS_LC;
        is_it.then(|| package.get("manifest_path")?.as_str().map(PathBuf::from))?
    });
    let folder = manifest.as_deref().and_then(Path::parent).map(|folder| folder.join("aws-lc"));
    folder.with_context(|| format!("cargo does not know where {AWS_LC} is"))
}

/// Builds the libraries, and returns the folder that they are installed in.
fn build_crypto(source: &Path, work: &Path) -> anyhow::Result<PathBuf> {
    let (objects, prefix) = (work.join("aws-lc"), work.join("prefix"));
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(source).arg("-B").arg(&objects).args([
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_INSTALL_LIBDIR=lib",
        "-DBUILD_SHARED_LIBS=OFF",
        "-DBUILD_TESTING=OFF",
        "-DBUILD_TOOL=OFF",
        "-DDISABLE_GO=ON",
        "-DDISABLE_PERL=ON",
    ]);
    run(cmake.arg(format!("-DCMAKE_INSTALL_PREFIX={}", prefix.display())))?;
    run(Command::new("make").arg("-C").arg(&objects).args(["-j2", "install"]))?;
    Ok(prefix)
}

/// Downloads the source package with lists of its own: those of the machine stay as they are.
fn download(work: &Path) -> anyhow::Result<PathBuf> {
    let sites = run(Command::new("apt-get").args(["indextargets", "--format", "$(SITE)"]))?;
    let site = debian_site(&sites).context("apt has no source of Debian packages")?;
    let list = work.join("sources.list");
    fs::write(&list, format!("deb-src [signed-by={KEYRING}] {site} {RELEASE} main\n"))?;
    fs::create_dir_all(work.join("lists/partial"))?;
    fs::create_dir_all(work.join("archives/partial"))?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(work).arg("-qq").args(["-o", "Dir::Etc::SourceParts=/dev/null"]);
        for (option, path) in
            [("Dir::Etc::SourceList", &list), ("Dir::State::Lists", &work.join("lists"))]
        {
            command.arg("-o").arg(format!("{option}={}", path.display()));
        }
        command.arg("-o").arg(format!("Dir::Cache={}", work.display()));
        // The folder is not readable for the user of apt.
        run(command.args(["-o", "APT::Sandbox::User=root"]).args(arguments))
    };
    apt(&["update"])?;
    apt(&["source", "--download-only", "haproxy"])?;
    let source = work.join("haproxy");
    fs::create_dir_all(&source)?;
    let unpack = "tar -xf haproxy_*.orig.tar.* -C haproxy --strip-components 1";
    run(Command::new("sh").current_dir(work).args(["-c", unpack]))?;
    ensure!(source.join("Makefile").exists(), "the source package has no Makefile");
    Ok(source)
}

/// The site of Debian's packages among those that apt knows.
fn debian_site(sites: &str) -> Option<&str> {
    sites.lines().map(str::trim).find(|site| site.trim_end_matches('/').ends_with("/debian"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_comes_from_the_mirror_that_the_machine_uses() {
        let sites = "http://mirror.example/debian-security\nhttp://mirror.example/debian\n";
        assert_eq!(debian_site(sites), Some("http://mirror.example/debian"));
        assert_eq!(debian_site("http://mirror.example/apt\n"), None);
    }
}
