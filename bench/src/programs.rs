//! The programs to compare: built, found or installed, and the missing ones. Entry item: [`get`].

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::ensure;

use crate::machine::{find, first_line};
use crate::scenarios::{EMBEDDED, KUBE, KubePrograms};
use crate::targets::Programs;

/// The programs that were found.
pub(crate) struct Found {
    pub(crate) programs: Programs,
    pub(crate) kube: Option<KubePrograms>,
    pub(crate) versions: Vec<String>,
    /// The missing programs, and how to install each.
    pub(crate) missing: Vec<String>,
}

/// Builds `mvp`, installs haproxy and nginx if possible, and looks for kube-apiserver.
pub(crate) fn get(wanted: &[String]) -> anyhow::Result<Found> {
    ensure!(find("setpriv").is_some(), "setpriv is missing: install util-linux");
    ensure!(find("taskset").is_some(), "taskset is missing: install util-linux");
    // The profile of released images: the fastest code.
    let mvp = testkit::programs::mvp("dist")?;
    let compares = wanted.iter().any(|name| name != EMBEDDED) || wanted.is_empty();
    if compares && (find("haproxy").is_none() || find("nginx").is_none()) {
        install(&["haproxy", "nginx-light"]);
    }
    let (haproxy, nginx) = (find("haproxy"), find("nginx"));
    let kube = KubePrograms::find();

    let mut missing = Vec::new();
    let mut versions = vec![version(&mvp, "version")];
    for (program, name, flag) in [(&haproxy, "haproxy", "-v"), (&nginx, "nginx", "-v")] {
        match program {
            Some(program) => versions.push(version(program, flag)),
            None if !compares => {}
            None => missing.push(format!("{name}: apt-get install {name}, as root")),
        }
    }
    match &kube {
        Some(kube) => versions.push(format!("kube-apiserver {}", kube.version)),
        None if wanted.is_empty() || wanted.iter().any(|name| name == KUBE) => {
            missing.push("kube-apiserver and etcd: cargo run -p e2e -- programs".to_owned());
        }
        None => {}
    }
    for line in &missing {
        eprintln!("missing: {line}");
    }
    Ok(Found { programs: Programs { mvp, haproxy, nginx }, kube, versions, missing })
}

/// The version that a program reports, without addresses and dates.
fn version(program: &Path, flag: &str) -> String {
    let said = first_line(&program.display().to_string(), &[flag]);
    let words: Vec<&str> = said.split_whitespace().take(3).collect();
    words.join(" ").replace("HAProxy version", "haproxy").replace("nginx version: nginx/", "nginx ")
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
