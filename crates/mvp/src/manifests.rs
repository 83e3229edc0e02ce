//! `mvp manifests KIND`: what installs `mvp`, with values filled in. Entry: [`run`].
//!
//! The templates are the files in `deploy/`, which are also the output with default values.

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use crate::cli::{KubeadmVersion, ManifestKind, ManifestsArgs, Proxy};
use crate::mistake::Mistake;

/// A file in `deploy/`.
macro_rules! embedded {
    ($name:literal) => {
        include_str!(concat!("../../../deploy/", $name))
    };
}

/// The image in the templates.
const IMAGE: &str = concat!("mvp:", env!("CARGO_PKG_VERSION"));
/// The servers in the templates.
const SERVERS: &str = "https://10.0.0.1:6443,https://10.0.0.2:6443,https://10.0.0.3:6443";

/// Prints a manifest.
pub(crate) fn run(args: &ManifestsArgs) -> anyhow::Result<()> {
    let text = manifest(args)?;
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// The manifest that the flags describe.
fn manifest(args: &ManifestsArgs) -> Result<String, Mistake> {
    check(args)?;
    let mut text = template(args);
    if let Some(image) = &args.image {
        text = text.replace(&format!("image: {IMAGE}\n"), &format!("image: {image}\n"));
    }
    if !args.servers.is_empty() {
        let servers: Vec<String> = args.servers.iter().map(ToString::to_string).collect();
        text = text.replace(
            &format!("--servers={SERVERS}\n"),
            &format!("--servers={}\n", servers.join(",")),
        );
    }
    Ok(text)
}

/// Refuses flags that this kind does not have, so that none is ignored.
fn check(args: &ManifestsArgs) -> Result<(), Mistake> {
    use ManifestKind::{Before, Daemonset, Kubeadm, NodeLocal, NodeLocalStaticPod, StaticPod};
    let kind = args.kind;
    let balancer = matches!(kind, NodeLocal | NodeLocalStaticPod | Before);
    let kubeadm = kind == Kubeadm;
    for (flag, given, has, whose) in [
        (
            "--image",
            args.image.is_some(),
            balancer || matches!(kind, Daemonset | StaticPod),
            "daemonset, static-pod, node-local, node-local-static-pod and before",
        ),
        (
            "--servers",
            !args.servers.is_empty(),
            balancer,
            "node-local, node-local-static-pod and before",
        ),
        ("--for", args.proxy.is_some(), kubeadm, "kubeadm"),
        ("--api-version", args.api_version.is_some(), kubeadm, "kubeadm"),
    ] {
        if given && !has {
            return Err(Mistake::usage(flag, format!("is only for {whose}; leave it out")));
        }
    }
    Ok(())
}

/// The file in `deploy/`, with default values.
fn template(args: &ManifestsArgs) -> String {
    let (proxy, version) = (args.proxy, args.api_version);
    let proxy = proxy.unwrap_or(Proxy::Mvp);
    let version = version.unwrap_or(KubeadmVersion::V1beta4);
    match args.kind {
        ManifestKind::Daemonset => embedded!("mvp.yaml").to_owned(),
        ManifestKind::StaticPod => embedded!("static-pod.yaml").to_owned(),
        ManifestKind::Systemd => embedded!("mvp.service").to_owned(),
        ManifestKind::Rbac => {
            format!("{}---\n{}", embedded!("rbac.yaml"), embedded!("flowschema.yaml"))
        }
        ManifestKind::Kubeadm => kubeadm(proxy, version).to_owned(),
        ManifestKind::NodeLocal => embedded!("node-local.yaml").to_owned(),
        ManifestKind::NodeLocalStaticPod => embedded!("node-local-static-pod.yaml").to_owned(),
        ManifestKind::Before => embedded!("before.yaml").to_owned(),
    }
}

fn kubeadm(proxy: Proxy, version: KubeadmVersion) -> &'static str {
    match (proxy, version) {
        (Proxy::Mvp, KubeadmVersion::V1beta3) => embedded!("kubeadm/mvp-v1beta3.yaml"),
        (Proxy::Mvp, KubeadmVersion::V1beta4) => embedded!("kubeadm/mvp-v1beta4.yaml"),
        (Proxy::Kubernetes, KubeadmVersion::V1beta3) => {
            embedded!("kubeadm/kubernetes-v1beta3.yaml")
        }
        (Proxy::Kubernetes, KubeadmVersion::V1beta4) => {
            embedded!("kubeadm/kubernetes-v1beta4.yaml")
        }
    }
}
