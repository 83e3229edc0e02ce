//! Proxies on the way to peers, by HTTP CONNECT. Entry items: [`Egress`], [`ConnectProxy`].
//!
//! A proxy may be hostile or broken: its response is read up to [`MAX_HEAD`], and the time limit of
//! connections covers it, too. The connection to the server has TLS of its own in any case.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mvp_net::is_own_failure;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::connect::tcp;
use super::link::{Link, Stream};

/// The largest head of a response to CONNECT.
const MAX_HEAD: usize = 8 << 10;
/// How much of it one read may take.
const PIECE: usize = 512;

/// The ways to peers, which can be replaced at any time. Clones share them.
///
/// Later connections use the new ways; existing ones stay as they are.
#[derive(Debug, Clone, Default)]
pub struct Egress(Arc<ArcSwap<Ways>>);

/// The ways to peers.
#[derive(Debug, Clone, Default)]
pub struct Ways {
    /// The way to all peers that are not in `by_address`.
    pub others: Way,
    /// The ways to single peers, by address as `HOST:PORT`.
    pub by_address: BTreeMap<String, Way>,
}

/// The way to a peer.
#[derive(Debug, Clone, Default)]
pub enum Way {
    /// A connection to the peer itself.
    #[default]
    Direct,
    /// Through this proxy.
    Proxy(ConnectProxy),
}

impl Egress {
    /// Replaces the ways.
    pub fn replace(&self, ways: Ways) {
        self.0.store(Arc::new(ways));
    }

    /// The proxy to the peer at this address, if there is one on the way.
    pub(super) fn proxy_to(&self, address: &str) -> Option<ConnectProxy> {
        let ways = self.0.load();
        match ways.by_address.get(address).unwrap_or(&ways.others) {
            Way::Direct => None,
            Way::Proxy(proxy) => Some(proxy.clone()),
        }
    }
}

impl From<Ways> for Egress {
    fn from(ways: Ways) -> Egress {
        Egress(Arc::new(ArcSwap::from_pointee(ways)))
    }
}

/// A proxy that opens connections by HTTP CONNECT.
#[derive(Debug, Clone)]
pub struct ConnectProxy(Transport);

/// How the proxy is reached.
#[derive(Debug, Clone)]
enum Transport {
    Tcp {
        address: Arc<str>,
    },
    Tls {
        address: Arc<str>,
        server_name: ServerName<'static>,
        tls: Arc<ClientConfig>,
    },
    Unix {
        path: Arc<Path>,
    },
    #[cfg(fuzzing)]
    Memory(fuzzing::Dial),
}

#[cfg(fuzzing)]
mod fuzzing;

impl ConnectProxy {
    /// A proxy at this address (`HOST:PORT`), over plain TCP.
    pub fn tcp(address: &str) -> ConnectProxy {
        ConnectProxy(Transport::Tcp { address: address.into() })
    }

    /// A proxy at this address (`HOST:PORT`), over TLS. Its certificate must be for `server_name`.
    pub fn tls(
        address: &str,
        server_name: ServerName<'static>,
        tls: Arc<ClientConfig>,
    ) -> ConnectProxy {
        ConnectProxy(Transport::Tls { address: address.into(), server_name, tls })
    }

    /// A proxy that listens on this Unix socket.
    pub fn unix(path: &Path) -> ConnectProxy {
        ConnectProxy(Transport::Unix { path: path.into() })
    }

    /// Opens a connection to a server (`HOST:PORT`). The errors name the proxy.
    pub(super) async fn connect(&self, server: &str) -> io::Result<Link> {
        #[cfg(fuzzing)]
        if let Transport::Memory(dial) = &self.0 {
            return Ok(Link::Proxied(Box::new(dial(server))));
        }
        let socket = async {
            let mut stream = self.open().await?;
            request(&mut stream, server).await?;
            Ok(Link::Proxied(stream))
        };
        socket.await.map_err(|error: io::Error| {
            // Errors of this process must be recognised as such.
            if is_own_failure(&error) {
                return error;
            }
            io::Error::new(error.kind(), format!("{self}: {error}"))
        })
    }

    async fn open(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match &self.0 {
            Transport::Tcp { address } => Box::new(tcp(TcpStream::connect(&**address).await?)?),
            Transport::Tls { address, server_name, tls } => {
                let stream = tcp(TcpStream::connect(&**address).await?)?;
                let connector = TlsConnector::from(Arc::clone(tls));
                Box::new(connector.connect(server_name.clone(), stream).await?)
            }
            Transport::Unix { path } => Box::new(UnixStream::connect(path).await?),
            #[cfg(fuzzing)]
            Transport::Memory(dial) => Box::new(dial("")),
        })
    }
}

impl fmt::Display for ConnectProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Transport::Tcp { address } => write!(f, "proxy http://{address}"),
            Transport::Tls { address, .. } => write!(f, "proxy https://{address}"),
            Transport::Unix { path } => write!(f, "proxy at the Unix socket {}", path.display()),
            #[cfg(fuzzing)]
            Transport::Memory(_) => f.write_str("memory"),
        }
    }
}

/// Asks the proxy for a connection to `server`.
async fn request(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    server: &str,
) -> io::Result<()> {
    let head = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let (mut head, mut piece) = (Vec::new(), [0; PIECE]);
    let after = loop {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            let what = "closed the connection without a complete response to CONNECT";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
        }
        head.extend_from_slice(piece.get(..read).unwrap_or_default());
        // The status line of something else than HTTP needs no more patience.
        if let Some(after) = end(&head) {
            break after;
        }
        if head.len() >= MAX_HEAD || !may_be_http(&head) {
            return Err(not_http());
        }
    };
    match status(&head) {
        None => Err(not_http()),
        Some(200..=299) if after == head.len() => Ok(()),
        // The client speaks first in TLS: a server cannot have sent anything yet.
        Some(200..=299) => {
            let what = "sent data of its own behind its response to CONNECT";
            Err(io::Error::new(ErrorKind::InvalidData, what))
        }
        Some(407) => {
            let what = "asks for credentials (407), which mvp does not send to proxies; use one that \
                        accepts a client certificate, or none";
            Err(io::Error::new(ErrorKind::PermissionDenied, what))
        }
        Some(code) => {
            let what = format!("answers CONNECT {server} with {code}; see the log of the proxy");
            Err(io::Error::new(ErrorKind::ConnectionRefused, what))
        }
    }
}

fn not_http() -> io::Error {
    let what = format!(
        "sends no HTTP response head of at most {} KiB to CONNECT; give the address of an HTTP proxy",
        MAX_HEAD >> 10
    );
    io::Error::new(ErrorKind::InvalidData, what)
}

/// The position behind the empty line that ends a head.
fn end(head: &[u8]) -> Option<usize> {
    const EMPTY_LINE: &[u8] = b"\r\n\r\n";
    let found = head.windows(EMPTY_LINE.len()).position(|window| window == EMPTY_LINE)?;
    Some(found + EMPTY_LINE.len())
}

const VERSION: &[u8] = b"HTTP/1.";

fn may_be_http(head: &[u8]) -> bool {
    head.iter().zip(VERSION).all(|(one, other)| one == other)
}

/// The status code of a head: `HTTP/1.1 200 Connection established`.
fn status(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(VERSION)?;
    let [b'0' | b'1', b' ', code @ ..] = rest else { return None };
    let (code, after) = (code.get(..3)?, code.get(3)?);
    let is_code = code.iter().all(u8::is_ascii_digit) && matches!(after, b' ' | b'\r');
    is_code.then(|| std::str::from_utf8(code).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// What becomes of a CONNECT that is answered so.
    async fn answered(response: &[u8]) -> Result<(), String> {
        let (mut client, mut proxy) = duplex(1 << 16);
        proxy.write_all(response).await.unwrap();
        let mut asked = vec![0; 256];
        let outcome = tokio::select! {
            outcome = request(&mut client, "10.0.0.2:6443") => outcome,
            () = async {
                let read = proxy.read(&mut asked).await.unwrap();
                let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
                let head = "CONNECT 10.0.0.2:6443 HTTP/1.1\r\nHost: 10.0.0.2:6443\r\n\r\n";
                assert_eq!(asked, head);
                proxy.shutdown().await.unwrap();
                std::future::pending().await
            } => unreachable!(),
        };
        outcome.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_2xx_response_opens_the_tunnel() {
        for response in [
            "HTTP/1.1 200 Connection established\r\n\r\n",
            "HTTP/1.0 200 OK\r\nVia: x\r\n\r\n",
            "HTTP/1.1 204\r\n\r\n",
        ] {
            assert_eq!(answered(response.as_bytes()).await, Ok(()), "{response}");
        }
    }

    #[tokio::test]
    async fn other_responses_are_errors_that_say_what_the_proxy_did() {
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; 60_000]].concat();
        let cases: [(&[u8], &str); 11] = [
            (b"HTTP/1.1 403 Forbidden\r\n\r\n", "answers CONNECT 10.0.0.2:6443 with 403"),
            (b"HTTP/1.1 502 \x1b[31m\r\n\r\n", "with 502; see the log"),
            (b"HTTP/1.1 101 Switching\r\n\r\n", "with 101"),
            (b"HTTP/1.1 407 Who\r\n\r\n", "asks for credentials (407)"),
            (b"HTTP/1.1 200 OK\r\n\r\nhello", "data of its own"),
            (b"HTTP/1.1 2000 OK\r\n\r\n", "no HTTP response head"),
            (b"HTTP/1.1 2x0 OK\r\n\r\n", "no HTTP response head"),
            (b"SSH-2.0-OpenSSH_9.9\r\n", "no HTTP response head"),
            (&endless, "no HTTP response head of at most 8 KiB"),
            (b"HTTP/1.1 200 OK\r\nX: y\r\n", "without a complete response"),
            (b"", "without a complete response"),
        ];
        for (response, what) in cases {
            let error = answered(response).await.unwrap_err();
            assert!(error.contains(what), "{:?}: {error}", String::from_utf8_lossy(response));
            assert!(!error.contains('\x1b'), "{error}");
        }
    }

    #[test]
    fn a_way_of_its_own_comes_before_that_of_all_others() {
        let egress = Egress::default();
        assert!(egress.proxy_to("10.0.0.2:6443").is_none());
        let by_address = BTreeMap::from([
            ("10.0.0.2:6443".to_owned(), Way::Direct),
            ("10.0.0.3:6443".to_owned(), Way::Proxy(ConnectProxy::tcp("own:3128"))),
        ]);
        let others = Way::Proxy(ConnectProxy::unix(Path::new("/run/proxy")));
        egress.replace(Ways { others, by_address });
        let shown = |address| egress.proxy_to(address).map(|proxy| proxy.to_string());
        assert_eq!(shown("10.0.0.2:6443"), None);
        assert_eq!(shown("10.0.0.3:6443").unwrap(), "proxy http://own:3128");
        assert_eq!(shown("10.0.0.4:6443").unwrap(), "proxy at the Unix socket /run/proxy");
    }
}
