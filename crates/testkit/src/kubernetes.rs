//! The flags of kube-apiserver, etcd and `mvp` in a cluster under test.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::certificates::FRONT_PROXY_NAME;
use crate::pki::PkiFiles;

/// The settings that differ between the kube-apiservers of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct ApiServer {
    /// The address on which it listens.
    pub listen: SocketAddr,
    /// The address that it advertises to the cluster.
    pub advertise: IpAddr,
    /// The client address of the cluster's etcd, over plain HTTP.
    pub etcd: SocketAddr,
}

impl ApiServer {
    /// The flags of this kube-apiserver.
    pub fn flags(&self, pki: &PkiFiles) -> Vec<String> {
        let (server, proxy, accounts) = (pki.server(), pki.front_proxy(), pki.service_accounts());
        vec![
            format!("--etcd-servers=http://{}", self.etcd),
            format!("--bind-address={}", self.listen.ip()),
            format!("--advertise-address={}", self.advertise),
            format!("--secure-port={}", self.listen.port()),
            file_flag("tls-cert-file", &server.certificate),
            file_flag("tls-private-key-file", &server.key),
            file_flag("client-ca-file", &pki.ca()),
            file_flag("service-account-key-file", &accounts.certificate),
            file_flag("service-account-signing-key-file", &accounts.key),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            // Endpoints reject loopback addresses.
            "--endpoint-reconciler-type=none".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            file_flag("requestheader-client-ca-file", &pki.front_proxy_ca()),
            format!("--requestheader-allowed-names={FRONT_PROXY_NAME}"),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            file_flag("proxy-client-cert-file", &proxy.certificate),
            file_flag("proxy-client-key-file", &proxy.key),
        ]
    }

    /// The flags that turn on Kubernetes' own peer proxy (KEP-4020).
    pub fn native_proxy_flags(&self, pki: &PkiFiles) -> Vec<String> {
        vec![
            "--feature-gates=UnknownVersionInteroperabilityProxy=true".to_owned(),
            file_flag("peer-ca-file", &pki.ca()),
            format!("--peer-advertise-ip={}", self.advertise),
            format!("--peer-advertise-port={}", self.listen.port()),
        ]
    }
}

/// The certificate flags of `mvp serve`.
pub fn gateway_flags(pki: &PkiFiles) -> Vec<String> {
    let (server, proxy) = (pki.server(), pki.front_proxy());
    vec![
        file_flag("tls-cert-file", &server.certificate),
        file_flag("tls-private-key-file", &server.key),
        file_flag("client-ca-file", &pki.ca()),
        file_flag("peer-ca-file", &pki.ca()),
        file_flag("requestheader-client-ca-file", &pki.front_proxy_ca()),
        format!("--requestheader-allowed-names={FRONT_PROXY_NAME}"),
        file_flag("proxy-client-cert-file", &proxy.certificate),
        file_flag("proxy-client-key-file", &proxy.key),
    ]
}

/// One member of an etcd cluster.
#[derive(Debug)]
pub struct EtcdMember<'a> {
    /// The name of the member.
    pub name: &'a str,
    /// The folder for its data, which is not synced to disk: a test throws it away.
    pub data: &'a Path,
    /// The URL for clients.
    pub clients: &'a str,
    /// The URL for other members.
    pub peers: &'a str,
    /// The members of the cluster as `NAME=URL`, comma-separated; empty for a single member.
    pub cluster: &'a str,
}

impl EtcdMember<'_> {
    /// The flags of this etcd.
    pub fn flags(&self) -> Vec<String> {
        let EtcdMember { name, data, clients, peers, cluster } = self;
        let alone = format!("{name}={peers}");
        let cluster = if cluster.is_empty() { &alone } else { *cluster };
        vec![
            format!("--name={name}"),
            file_flag("data-dir", data),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster={cluster}"),
            "--unsafe-no-fsync".to_owned(),
        ]
    }
}

/// A flag whose value is a path.
pub fn file_flag(flag: &str, path: &Path) -> String {
    format!("--{flag}={}", path.display())
}
