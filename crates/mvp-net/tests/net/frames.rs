//! HTTP/2 frame by frame, for clients that no library would let one write. Entry: [`RawHttp2`].

use testkit::certificates::Pair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::support::{Gateway, H2, soon};

pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// `GET / https`, by indices into the static table, and an authority of `a`.
pub const GET_ROOT: [u8; 6] = [0x82, 0x84, 0x87, 0x01, 0x01, b'a'];

#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub stream: u32,
    /// For whoever reads a failure.
    #[allow(dead_code)]
    pub payload: Vec<u8>,
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The head of a request without a body.
pub fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
}

/// A connection over which preface and settings were sent.
pub struct RawHttp2 {
    pub stream: TlsStream<TcpStream>,
}

impl RawHttp2 {
    pub async fn connect(gateway: &Gateway, identity: Option<&Pair>) -> Self {
        let config = gateway.authorities.client_tls(identity).config(&[H2]);
        let mut stream = gateway.connect(config).await;
        let mut preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        preface.extend(frame(SETTINGS, 0, 0, &[]));
        soon(stream.write_all(&preface)).await.unwrap();
        Self { stream }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.unwrap();
        soon(self.stream.flush()).await.unwrap();
    }

    /// The next frame; nothing once the connection is closed.
    pub async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        soon(self.stream.read_exact(&mut head)).await.ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        soon(self.stream.read_exact(&mut payload)).await.ok()?;
        Some(Frame { kind: head[3], stream, payload })
    }

    /// The first frame of this stream, or the GOAWAY that ends the connection; nothing if the
    /// connection is closed without either.
    pub async fn answer(&mut self, stream: u32) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == GOAWAY || frame.stream == stream {
                return Some(frame);
            }
        }
    }
}
