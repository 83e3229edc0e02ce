//! The flags of `mvp manifests`.

use clap::{Args, ValueEnum};

use super::url::{self, ServerUrl};
use crate::mistake::Problem;

/// The flags of `mvp manifests`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  Install mvp on a running cluster, with an image of your registry, and remove it again:
    mvp manifests daemonset --image=registry.example.com/mvp:0.1.0 > mvp.yaml
    kubectl apply -f mvp.yaml
    kubectl delete -f mvp.yaml
  As a systemd service of this node:
    mvp manifests systemd > /etc/systemd/system/mvp.service
  A load balancer on every node, for three servers:
    mvp manifests node-local \\
      --servers=https://10.0.0.1:6443,https://10.0.0.2:6443,https://10.0.0.3:6443
  Kubernetes' own proxy, for an older kubeadm:
    mvp manifests kubeadm --for=kubernetes --api-version=v1beta3

The comments in each manifest say how to install it, how to check it, and how to remove it.")]
pub(crate) struct ManifestsArgs {
    /// What to print.
    #[arg(value_name = "KIND")]
    pub kind: ManifestKind,
    /// Image of mvp [default: mvp:VERSION, VERSION being that of this mvp].
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub image: Option<String>,
    /// Addresses of the kube-apiservers, as https://HOST:PORT, separated by commas; for node-local,
    /// node-local-static-pod and before [default: three that you must replace].
    #[arg(long, value_name = "URLS", value_delimiter = ',', value_parser = url::server_url)]
    pub servers: Vec<ServerUrl>,
    /// Whose proxy kube-apiserver is configured for; for kubeadm [default: mvp].
    #[arg(long = "for", value_name = "PROXY")]
    pub proxy: Option<Proxy>,
    /// Version of kubeadm's configuration; for kubeadm [default: v1beta4].
    #[arg(long, value_name = "VERSION")]
    pub api_version: Option<KubeadmVersion>,
}

/// What `mvp manifests` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum ManifestKind {
    /// Gateways on all control plane nodes, with steering: the default way to install mvp
    Daemonset,
    /// A gateway on one control plane node, as a static pod
    StaticPod,
    /// A gateway on one control plane node, as a systemd service
    Systemd,
    /// The rights and the priority of gateways that are not installed by the DaemonSet
    Rbac,
    /// kubeadm's configuration for gateways without steering, or for Kubernetes' own proxy
    Kubeadm,
    /// A load balancer on every node, at 127.0.0.1:7445
    NodeLocal,
    /// The same on one node as a static pod, which kubelet can use, too
    NodeLocalStaticPod,
    /// A load balancer before all servers
    Before,
}

/// Whose proxy kubeadm's configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Proxy {
    /// mvp, without steering
    Mvp,
    /// Kubernetes' own, without mvp
    Kubernetes,
}

/// A version of kubeadm's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum KubeadmVersion {
    /// kubeadm 1.22 to 1.36; arguments as a map
    V1beta3,
    /// kubeadm 1.31 and newer; arguments as a list
    V1beta4,
}

/// Parses the name of an image: `HOST/PATH:TAG` or with `@DIGEST`.
fn image(text: &str) -> Result<String, Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    if text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(allowed)
    {
        return Ok(text.to_owned());
    }
    let fix = "give a name such as registry.example.com/mvp:0.1.0";
    Err(format!("{text:?} is not the name of an image; {fix}").into())
}
