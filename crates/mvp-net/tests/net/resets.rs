//! Many resets: on a client's own connection they end it, on a front proxy's they do not.

use mvp_net::Limits;
use testkit::certificates::cn;
use testkit::http2::{GET_ROOT, GOAWAY, HEADERS, RST_STREAM, RawHttp2, frame, headers};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::frames::connect;
use crate::support::Gateway;

const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// 200 requests in one write, each reset at once, then one that is not: what answers it.
async fn after_resets(connection: &mut RawHttp2<TlsStream<TcpStream>>) -> u8 {
    let mut bytes = Vec::new();
    for stream in (1..400).step_by(2) {
        bytes.extend(headers(stream, &GET_ROOT));
        bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL));
    }
    bytes.extend(headers(401, &GET_ROOT));
    connection.send(&bytes).await.unwrap();
    connection.answer(401).await.unwrap().kind
}

#[tokio::test]
async fn a_front_proxy_may_pass_on_the_resets_of_many_users() {
    let gateway = Gateway::start(Limits::default());
    let proxy = gateway.authorities.front_proxies.client(&[cn("front-proxy-client")]);
    let mut connection = connect(&gateway, Some(&proxy)).await;
    assert_eq!(after_resets(&mut connection).await, HEADERS);
}

#[tokio::test]
async fn a_client_that_resets_rapidly_loses_its_own_connection() {
    let gateway = Gateway::start(Limits::default());
    let mut connection = connect(&gateway, None).await;
    assert_eq!(after_resets(&mut connection).await, GOAWAY);
    gateway.info_of(None).await;
}
