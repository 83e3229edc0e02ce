//! Client certificates over the wire: none of them breaks TLS, each is judged.

use std::sync::Arc;

use mvp_net::{BadName, Limits};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, SupportedProtocolVersion};
use testkit::certificates::{Leaf, Pair, cn, o};

use crate::support::{Authorities, Gateway, H1, get, http1, soon, text};

/// What it is, the certificate, whether it makes a front proxy, and the user's name.
type Case = (&'static str, Pair, bool, Option<Result<&'static str, BadName>>);

#[tokio::test]
async fn no_certificate() {
    let info = Gateway::start(Limits::default()).info_of(None).await;
    assert!(!info.judgement().presented);
    assert!(info.certificates().is_empty());
    assert!(info.http2());
    assert!(info.remote().ip().is_loopback());
}

#[tokio::test]
async fn every_kind_of_certificate_reaches_the_service() {
    let gateway = Gateway::start(Limits::default());
    let Authorities { clients, front_proxies, strangers, .. } = &gateway.authorities;
    let jane = [cn("jane"), o("dev")];
    let expired = Leaf::new(&jane).for_clients().valid((2020, 1, 1), (2020, 12, 31));
    let cases: [Case; 8] = [
        ("client CA", clients.client(&jane), false, Some(Ok("jane"))),
        ("intermediate", clients.intermediate("i").client(&jane), false, Some(Ok("jane"))),
        ("expired", clients.issue(expired), false, None),
        ("padded", clients.client(&[cn("jane ")]), false, Some(Err(BadName::Padded("CN")))),
        ("empty name", clients.client(&[cn(""), o("dev")]), false, None),
        ("allowed proxy", front_proxies.client(&[cn("front-proxy-client")]), true, None),
        ("other proxy", front_proxies.client(&[cn("someone")]), false, None),
        ("unknown CA", strangers.client(&jane), false, None),
    ];
    for (case, pair, front_proxy, user) in cases {
        let info = gateway.info_of(Some(&pair)).await;
        let judgement = info.judgement();
        assert!(judgement.presented, "{case}");
        assert!(!info.certificates().is_empty(), "{case}");
        assert_eq!(judgement.front_proxy, front_proxy, "{case}");
        let name = judgement.user.as_ref().map(|user| match user {
            Ok(user) => Ok(user.name.as_str()),
            Err(bad) => Err(*bad),
        });
        assert_eq!(name, user, "{case}");
    }
}

#[tokio::test]
async fn a_resumed_session_keeps_its_certificate() {
    for version in [&TLS12, &TLS13] {
        let gateway = Gateway::start(Limits::default());
        let pair = gateway.authorities.clients.client(&[cn("jane")]);
        let config = with_version(&gateway, &pair, version);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let stream = gateway.connect(Arc::clone(&config)).await;
            let kind = stream.get_ref().1.handshake_kind().unwrap();
            // The first handshake may ask for another key share; it is full all the same.
            assert_eq!(kind == HandshakeKind::Resumed, expected == HandshakeKind::Resumed);
            let mut sender = http1(stream).await;
            let response = soon(sender.send_request(get("/"))).await.unwrap();
            assert_eq!(text(response).await, "well");
            let user = gateway.info("/").judgement().user.clone().unwrap().unwrap();
            assert_eq!(user.name, "jane");
        }
    }
}

fn with_version(
    gateway: &Gateway,
    pair: &Pair,
    version: &'static SupportedProtocolVersion,
) -> Arc<rustls::ClientConfig> {
    crate::protocols::only(&gateway.authorities, Some(pair), version, &[H1])
}
