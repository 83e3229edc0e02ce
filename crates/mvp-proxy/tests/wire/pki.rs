//! The certificates of one cluster, created once for all tests. Entry item: [`pki`].

use std::sync::LazyLock;

use mvp_net::{ClientTls, ClientTrust, ReloadableTls, ServerTls};
use mvp_proxy::OutboundTls;
use testkit::certificates::{Ca, FRONT_PROXY_NAME, Pair, SERVER_NAME, cn, o, uid};

/// The CAs of a cluster, and the certificates that tests use.
pub struct Pki {
    pub servers: Ca,
    pub clients: Ca,
    pub front_proxies: Ca,
    server: Pair,
    /// The proxy client certificate.
    pub proxy: Pair,
    /// A user with a group and a UID.
    pub alice: Pair,
    /// A user of a CA that the cluster does not trust.
    pub stranger: Pair,
}

/// The certificates that all tests share.
pub fn pki() -> &'static Pki {
    static PKI: LazyLock<Pki> = LazyLock::new(|| {
        let servers = Ca::new("servers");
        let clients = Ca::new("clients");
        let front_proxies = Ca::new("front-proxies");
        Pki {
            server: servers.server(&[SERVER_NAME, "127.0.0.1"]),
            proxy: front_proxies.client(&[cn(FRONT_PROXY_NAME)]),
            alice: clients.client(&[cn("alice"), o("developers"), uid("uid-of-alice")]),
            stranger: Ca::new("strangers").client(&[cn("alice"), o("system:masters")]),
            servers,
            clients,
            front_proxies,
        }
    });
    &PKI
}

impl Pki {
    /// The TLS configuration of every server.
    pub fn server_tls(&self) -> ReloadableTls {
        let trust = ClientTrust::new(
            Some(self.clients.pem().as_bytes()),
            Some(self.front_proxies.pem().as_bytes()),
            vec![FRONT_PROXY_NAME.to_owned()],
        );
        let (certificate, key) = self.server.pem();
        ReloadableTls::new(ServerTls::new(certificate, key, trust.unwrap()).unwrap())
    }

    /// The TLS configuration of a client.
    pub fn client_tls(&self, identity: Option<&Pair>) -> ClientTls {
        ClientTls::new(self.servers.pem().as_bytes(), identity.map(Pair::pem)).unwrap()
    }

    /// The TLS configuration of a gateway towards servers.
    pub fn outbound(&self) -> OutboundTls {
        OutboundTls {
            plain: self.client_tls(None),
            vouched: Some(self.client_tls(Some(&self.proxy))),
        }
    }
}
