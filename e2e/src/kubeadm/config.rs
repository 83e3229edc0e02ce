//! The configuration files for `kubeadm init` and `kubeadm join`. Entry items: [`init`] and
//! [`join`].

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

const API: &str = "kubeadm.k8s.io/v1beta4";
const TOKEN: &str = "abcdef.0123456789abcdef";

/// Encrypts the certificates that a joining control plane node downloads from the cluster.
const CERTIFICATE_KEY: &str = "5f0c1b7a4de2938861fa07c5d94be3728f16a0d3c5b29e4471086fbd3ea95c21";

/// Three members of etcd share one disk and few cores here: a sync of seconds, or a late heartbeat,
/// would cost the quorum, and every server its readiness.
const ETCD: [(&str, &str); 3] =
    [("unsafe-no-fsync", "true"), ("heartbeat-interval", "500"), ("election-timeout", "5000")];

/// For the first node of a cluster behind a load balancer.
pub(super) fn init(name: &str, address: IpAddr, version: &str, balancer: SocketAddr) -> String {
    let init = json!({
        "apiVersion": API, "kind": "InitConfiguration",
        "bootstrapTokens": [{
            "token": TOKEN,
            "usages": ["signing", "authentication"],
            "groups": ["system:bootstrappers:kubeadm:default-node-token"],
        }],
        "certificateKey": CERTIFICATE_KEY,
        "localAPIEndpoint": endpoint(address),
        "nodeRegistration": registration(name, address),
    });
    let cluster = json!({
        "apiVersion": API, "kind": "ClusterConfiguration",
        "kubernetesVersion": version,
        "controlPlaneEndpoint": balancer.to_string(),
        "etcd": {"local": {"extraArgs": ETCD.map(argument)}},
        "networking": {"podSubnet": "10.88.0.0/16", "serviceSubnet": "10.96.0.0/16"},
    });
    // The machine may be short of disk, and its control groups are of version 1.
    let none = "0%";
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "nodefs.available": none, "nodefs.inodesFree": none,
            "imagefs.available": none, "imagefs.inodesFree": none,
        },
    });
    [init, cluster, kubelet].map(|document| document.to_string()).join("\n---\n")
}

/// For another control plane node.
pub(super) fn join(name: &str, address: IpAddr, balancer: SocketAddr) -> String {
    let join = json!({
        "apiVersion": API, "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {
            "token": TOKEN,
            "apiServerEndpoint": balancer.to_string(),
            "unsafeSkipCAVerification": true,
        }},
        "controlPlane": {
            "certificateKey": CERTIFICATE_KEY, "localAPIEndpoint": endpoint(address),
        },
        "nodeRegistration": registration(name, address),
    });
    join.to_string()
}

fn endpoint(address: IpAddr) -> Value {
    json!({"advertiseAddress": address, "bindPort": 6443})
}

fn registration(name: &str, address: IpAddr) -> Value {
    json!({
        "name": name,
        "criSocket": "unix:///run/containerd/containerd.sock",
        "imagePullPolicy": "Never",
        "kubeletExtraArgs": [argument(("node-ip", &address.to_string()))],
    })
}

fn argument((name, value): (&str, &str)) -> Value {
    json!({"name": name, "value": value})
}
