//! The certificates of a cluster, created once and written to files that the binary reads.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use mvp_net::{ClientTls, ClientTrust, ServerTls};
use testkit::certificates::{Ca, FRONT_PROXY_NAME, Pair, SERVER_NAME, cn, o};
use testkit::kubernetes::file_flag;

pub(crate) static PKI: LazyLock<Pki> = LazyLock::new(Pki::new);

/// The CAs of a cluster, the certificates they issued, and the directory of their files.
pub(crate) struct Pki {
    directory: PathBuf,
    servers: Ca,
    clients: Ca,
    front_proxies: Ca,
    server: Pair,
    user: Pair,
    auditor: Pair,
    proxy: Pair,
}

impl Pki {
    fn new() -> Pki {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gateway-certificates");
        let directory = directory.join(std::process::id().to_string());
        fs::create_dir_all(&directory).unwrap();
        let [servers, clients, front_proxies] = ["servers", "clients", "proxies"].map(Ca::new);
        let (server, user) = (servers.server(&[SERVER_NAME]), clients.client(&[cn("alice")]));
        let auditor = clients.client(&[cn("carol"), o("auditors")]);
        server.write(&directory, "server").unwrap();
        let proxy = front_proxies.client(&[cn(FRONT_PROXY_NAME)]);
        proxy.write(&directory, "proxy").unwrap();
        for (name, ca) in
            [("ca.crt", &servers), ("client-ca.crt", &clients), ("proxy-ca.crt", &front_proxies)]
        {
            fs::write(directory.join(name), ca.pem()).unwrap();
        }
        Pki { directory, servers, clients, front_proxies, server, user, auditor, proxy }
    }

    /// A flag whose value is one of the files.
    pub(crate) fn flag(&self, flag: &str, file: &str) -> String {
        file_flag(flag, &self.directory.join(file))
    }

    /// The private keys that a gateway has, with their names.
    pub(crate) fn keys(&self) -> [(&'static str, &str); 2] {
        [("the serving key", &self.server.key), ("the proxy key", &self.proxy.key)]
    }

    /// The serving certificate and its key, as PEM.
    pub(crate) fn server_pem(&self) -> (String, String) {
        (self.server.certificate.clone(), self.server.key.clone())
    }

    /// The TLS configuration of a server.
    pub(crate) fn server(&self) -> ServerTls {
        let (certificate, key) = self.server.pem();
        ServerTls::new(certificate, key, self.trust()).unwrap()
    }

    /// The TLS configuration of a server that does not know the request-header CA.
    pub(crate) fn server_without_front_proxies(&self) -> ServerTls {
        let (certificate, key) = self.server.pem();
        let trust = ClientTrust::new(Some(self.clients.pem().as_bytes()), None, Vec::new());
        ServerTls::new(certificate, key, trust.unwrap()).unwrap()
    }

    /// The client CAs that a server trusts.
    pub(crate) fn trust(&self) -> ClientTrust {
        let (clients, proxies) =
            (self.clients.pem().as_bytes(), self.front_proxies.pem().as_bytes());
        ClientTrust::new(Some(clients), Some(proxies), vec![FRONT_PROXY_NAME.to_owned()]).unwrap()
    }

    /// The TLS configuration of a client, with or without the certificate of a user.
    pub(crate) fn client(&self, as_user: bool, protocol: &[u8]) -> Arc<rustls::ClientConfig> {
        let user = as_user.then(|| self.user.pem());
        ClientTls::new(self.servers.pem().as_bytes(), user).unwrap().config(&[protocol])
    }

    /// The TLS configuration of a client of group `auditors`.
    pub(crate) fn auditor(&self, protocol: &[u8]) -> Arc<rustls::ClientConfig> {
        let roots = self.servers.pem().as_bytes();
        ClientTls::new(roots, Some(self.auditor.pem())).unwrap().config(&[protocol])
    }

    /// The TLS configuration of a front proxy or a peer.
    pub(crate) fn front_proxy(&self, protocol: &[u8]) -> Arc<rustls::ClientConfig> {
        let roots = self.servers.pem().as_bytes();
        ClientTls::new(roots, Some(self.proxy.pem())).unwrap().config(&[protocol])
    }
}
