//! HTTP/2 frame by frame, for clients that no library would let one write. Entry: [`connect`].

use testkit::certificates::Pair;
use testkit::http2::RawHttp2;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::support::{Gateway, H2};

/// A connection over which preface and settings were sent.
pub async fn connect(gateway: &Gateway, identity: Option<&Pair>) -> RawHttp2<TlsStream<TcpStream>> {
    let config = gateway.authorities.client_tls(identity).config(&[H2]);
    RawHttp2::new(gateway.connect(config).await, &[]).await.unwrap()
}
