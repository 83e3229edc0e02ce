//! The certificates of one gateway, one server and one user.

use mvp_net::{ClientTls, ClientTrust, ServerTls, TlsError};
use mvp_proxy::OutboundTls;
use rustls_pki_types::CertificateDer;
use testkit::certificates::{Ca, FRONT_PROXY_NAME, Leaf, Pair, SERVER_NAME};

pub(crate) struct Pki {
    ca: Ca,
    front_proxy_ca: Ca,
    server: Pair,
    proxy: Pair,
    user: Pair,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        let (ca, front_proxy_ca) = (Ca::new("kubernetes"), Ca::new("front-proxy-ca"));
        Pki {
            server: ca.issue(Leaf::named("kube-apiserver").names(&[SERVER_NAME])),
            proxy: front_proxy_ca.issue(Leaf::named(FRONT_PROXY_NAME)),
            user: ca.issue(Leaf::named("system:kube-controller-manager")),
            ca,
            front_proxy_ca,
        }
    }

    pub(crate) fn trust(&self) -> Result<ClientTrust, TlsError> {
        let (ca, front_proxy) = (self.ca.pem().as_bytes(), self.front_proxy_ca.pem().as_bytes());
        ClientTrust::new(Some(ca), Some(front_proxy), vec![FRONT_PROXY_NAME.to_owned()])
    }

    pub(crate) fn server(&self) -> Result<ServerTls, TlsError> {
        let (certificate, key) = self.server.pem();
        ServerTls::new(certificate, key, self.trust()?)
    }

    pub(crate) fn outbound(&self) -> Result<OutboundTls, TlsError> {
        OutboundTls::new(self.ca.pem().as_bytes(), Some(self.proxy.pem()))
    }

    pub(crate) fn user(&self) -> Result<ClientTls, TlsError> {
        ClientTls::new(self.ca.pem().as_bytes(), Some(self.user.pem()))
    }

    pub(crate) fn user_chain(&self) -> Vec<CertificateDer<'static>> {
        self.user.chain()
    }
}
