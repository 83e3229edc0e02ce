//! The programs of kubeadm nodes: Kubernetes' from Go modules, and Debian's containerd and runc, of
//! which nothing is installed. Entry item: [`NodePrograms::get`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::debian::unpack;
use super::{Build, Minor};

/// Every program that kubeadm or kubelet runs on a control plane node, except etcd.
const PROGRAMS: &[(&str, &str)] = &[
    ("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
];

/// The releases that nodes can run. kubeadm upgrades by one minor version at a time.
const RELEASES: [Minor; 2] = [Minor::V1_35, Minor::V1_36];

/// The programs of nodes, ready to run.
#[derive(Debug, Clone)]
pub(crate) struct NodePrograms {
    /// By module folder: the version and the folder of the programs.
    releases: BTreeMap<&'static str, (String, PathBuf)>,
    /// The folders of containerd and runc.
    runtime: [PathBuf; 2],
}

impl NodePrograms {
    /// Finds the programs in the cache, or builds or downloads them.
    pub(super) fn get(cache: &Path) -> anyhow::Result<NodePrograms> {
        let mut releases = BTreeMap::new();
        for minor in RELEASES {
            let folder = minor.folder();
            let build = Build { folder, main_module: "k8s.io/kubernetes", programs: PROGRAMS };
            releases.insert(folder, build.get_as(cache, "-node")?);
        }
        let of_debian = |package: &str, program: &str| {
            let program = unpack(cache, package, &format!("{package}-of-debian"), program.as_ref());
            let program = program.with_context(|| format!("{package} of Debian"))?;
            anyhow::Ok(program.parent().unwrap_or(&program).to_owned())
        };
        let runtime =
            [of_debian("containerd", "usr/bin/containerd")?, of_debian("runc", "usr/sbin/runc")?];
        Ok(NodePrograms { releases, runtime })
    }

    /// The version of a release, such as `v1.36.4`, and the folder of its programs.
    pub(crate) fn release(&self, minor: Minor) -> anyhow::Result<(&str, &Path)> {
        let found = self.releases.get(minor.folder());
        let (version, folder) = found.with_context(|| format!("no nodes of {minor:?}"))?;
        Ok((version, folder))
    }

    /// The folders of containerd and runc.
    pub(crate) fn runtime(&self) -> &[PathBuf] {
        &self.runtime
    }
}
