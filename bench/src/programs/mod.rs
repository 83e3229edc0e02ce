//! The programs to compare: built, found or installed, and the missing ones. Entry item: [`get`].

mod envoy;
mod haproxy;
mod pingora;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::ensure;

use crate::machine::{find, first_line, output};
use crate::scenarios::{EMBEDDED, HANDSHAKES, KUBE, KubePrograms, LATENCY, REQUESTS, WATCHES};
use crate::targets::Programs;

/// The programs that were found.
pub(crate) struct Found {
    pub(crate) programs: Programs,
    pub(crate) kube: Option<KubePrograms>,
    pub(crate) versions: Vec<String>,
    /// The missing programs, and how to install each.
    pub(crate) missing: Vec<String>,
}

/// Builds `mvp`, installs the other proxies if possible, and looks for kube-apiserver.
pub(crate) fn get(wanted: &[String], workspace: &Path) -> anyhow::Result<Found> {
    ensure!(find("setpriv").is_some(), "setpriv is missing: install util-linux");
    ensure!(find("taskset").is_some(), "taskset is missing: install util-linux");
    // The profile of released images: the fastest code.
    let mvp = testkit::programs::mvp("dist")?;
    let needs = |scenarios: &[&str]| {
        wanted.is_empty() || wanted.iter().any(|name| scenarios.contains(&name.as_str()))
    };
    let versions = vec![version(&mvp, "version")];
    let mut search = Search { versions, missing: Vec::new() };
    let mut programs = Programs::only(mvp);
    if wanted.iter().any(|name| name != EMBEDDED) || wanted.is_empty() {
        if find("haproxy").is_none() || find("nginx").is_none() {
            install(&["haproxy", "nginx-light"]);
        }
        programs.haproxy = search.package("haproxy", "-v");
        programs.nginx = search.package("nginx", "-v");
    }
    if needs(&[REQUESTS, LATENCY, HANDSHAKES, WATCHES]) {
        search.peers(&mut programs, workspace)?;
    }
    let kube = KubePrograms::find();
    match &kube {
        Some(kube) => search.versions.push(format!("kube-apiserver {}", kube.version)),
        None if needs(&[KUBE]) => {
            search.miss("kube-apiserver and etcd: cargo run -p e2e -- programs".to_owned());
        }
        None => {}
    }
    Ok(Found { programs, kube, versions: search.versions, missing: search.missing })
}

/// The results so far.
struct Search {
    versions: Vec<String>,
    missing: Vec<String>,
}

impl Search {
    /// A program of one of Debian's packages.
    fn package(&mut self, name: &str, flag: &str) -> Option<PathBuf> {
        let program = find(name);
        match &program {
            Some(program) => self.versions.push(version(program, flag)),
            None => self.miss(format!("{name}: apt-get install {name}, as root")),
        }
        program
    }

    /// The peers that no package of this release has.
    fn peers(&mut self, programs: &mut Programs, workspace: &Path) -> anyhow::Result<()> {
        let cache = testkit::programs::cache()?;
        std::fs::create_dir_all(&cache)?;
        let built = haproxy::build(&cache, workspace);
        programs.haproxy_aws_lc = self.installed("haproxy on AWS-LC", built, |program| {
            format!("{} on {}", version(program, "-v"), crypto(program))
        });
        programs.envoy = self.installed("Envoy", envoy::install(&cache), envoy_version);
        let (built, pingora) = match pingora::build(&cache, workspace) {
            Ok((program, version)) => (Ok(program), version),
            Err(error) => (Err(error), String::new()),
        };
        programs.pingora = self.installed("Pingora", built, |_| format!("Pingora {pingora}"));
        Ok(())
    }

    /// A program that the bench installs, or why it cannot.
    fn installed(
        &mut self,
        name: &str,
        outcome: anyhow::Result<PathBuf>,
        version: impl FnOnce(&Path) -> String,
    ) -> Option<PathBuf> {
        match outcome {
            Ok(program) => {
                self.versions.push(version(&program));
                Some(program)
            }
            Err(error) => {
                // A failed build says a lot.
                let all = format!("{error:#}");
                let (start, end) = (all.lines().next(), all.lines().next_back());
                let why = if start == end { vec![start] } else { vec![start, Some("…"), end] };
                let why: Vec<&str> = why.into_iter().flatten().collect();
                self.miss(format!("{name}: {}", why.join(" ")));
                None
            }
        }
    }

    fn miss(&mut self, line: String) {
        eprintln!("missing: {line}");
        self.missing.push(line);
    }
}

/// The version that a program reports, without addresses and dates.
fn version(program: &Path, flag: &str) -> String {
    let said = first_line(&program.display().to_string(), &[flag]);
    let words: Vec<&str> = said.split_whitespace().take(3).collect();
    words.join(" ").replace("HAProxy version", "haproxy").replace("nginx version: nginx/", "nginx ")
}

/// `Envoy 1.40.0` of `envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
fn envoy_version(program: &Path) -> String {
    let said = output(&program.display().to_string(), &["--version"]);
    let version = said
        .split('/')
        .find(|part| part.starts_with(|first: char| first.is_ascii_digit()) && part.contains('.'));
    format!("Envoy {}", version.unwrap_or("of unknown version"))
}

/// The TLS library of an haproxy.
fn crypto(program: &Path) -> String {
    let said = output(&program.display().to_string(), &["-vv"]);
    let line = said.lines().find_map(|line| line.strip_prefix("Running on OpenSSL version : "));
    line.unwrap_or("an unknown TLS library").trim().to_owned()
}

/// Installs packages, as root on Debian.
fn install(packages: &[&str]) {
    if find("apt-get").is_none() || !rustix::process::geteuid().is_root() {
        return;
    }
    eprintln!("installing {}", packages.join(", "));
    let run = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    // The package lists may be old or missing.
    if !run(&arguments) && run(&["update"]) {
        run(&arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_installed_is_skipped_with_the_reason() {
        let mut search = Search { versions: Vec::new(), missing: Vec::new() };
        let failed = Err(anyhow::anyhow!("cargo build: a warning\nan error\nno linker"));
        assert_eq!(search.installed("Pingora", failed, |_| unreachable!()), None);
        assert_eq!(search.missing, ["Pingora: cargo build: a warning … no linker"]);
        let there = search.installed("Envoy", Ok("/e".into()), |_| "Envoy 1".to_owned());
        assert_eq!((there.as_deref(), search.versions.len()), (Some(Path::new("/e")), 1));
    }
}
