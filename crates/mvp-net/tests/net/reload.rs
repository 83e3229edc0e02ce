//! Certificates and CAs are replaced while connections live.

use mvp_net::{ClientTrust, Limits, ServerTls};
use testkit::certificates::{Ca, SERVER_NAME, cn};

use crate::support::{Gateway, H2, get, http2, soon, text};

#[tokio::test]
async fn a_new_certificate_is_for_new_connections() {
    let gateway = Gateway::start(Limits::default());
    let config = gateway.authorities.client_tls(None).config(&[H2]);
    let old = gateway.connect(config.clone()).await;
    let certificate = |stream: &tokio_rustls::client::TlsStream<_>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let before = certificate(&old);
    let mut sender = http2(old).await;
    text(soon(sender.send_request(get("/before"))).await.unwrap()).await;

    gateway.tls.replace(gateway.authorities.server_tls());
    // With the old session in hand, which the new configuration does not know.
    let new = gateway.connect(config).await;
    assert_ne!(certificate(&new), before);
    text(soon(sender.send_request(get("/after"))).await.unwrap()).await;
    assert_eq!(gateway.info("/before").remote(), gateway.info("/after").remote());
}

#[tokio::test]
async fn a_ca_that_was_taken_away_vouches_for_nobody() {
    let gateway = Gateway::start(Limits::default());
    let pair = gateway.authorities.clients.client(&[cn("jane")]);
    let mut sender = gateway.http2(Some(&pair)).await;
    let mut user = async || {
        text(soon(sender.send_request(get("/"))).await.unwrap()).await;
        gateway.info("/").judgement().user.clone()
    };
    assert_eq!(user().await.unwrap().unwrap().name, "jane");

    let server = gateway.authorities.servers.server(&[SERVER_NAME]);
    let replace = |ca: &Ca| {
        let trust = ClientTrust::new(Some(ca.pem().as_bytes()), None, Vec::new()).unwrap();
        let tls = ServerTls::new(server.pem().0, server.pem().1, trust);
        gateway.tls.replace(tls.unwrap());
    };
    replace(&Ca::new("clients"));
    assert_eq!(user().await, None);
    assert!(gateway.info("/").judgement().presented);
    replace(&gateway.authorities.clients);
    assert_eq!(user().await.unwrap().unwrap().name, "jane");
}
