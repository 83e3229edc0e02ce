//! Connections of the server to itself, which reach us when connections of its port are handed over.
//! Entry: [`PassThrough`].
//!
//! A kube-apiserver that listens on one address only connects to itself there, with a certificate that
//! it made for itself and the server name `apiserver-loopback-client`. Nobody else can serve these
//! connections, so they are joined to the server, byte by byte.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::request::{Activity, Guard};
use crate::{Socket, connect_from};

/// The largest ClientHello that is looked at.
const LARGEST_HELLO: usize = 16 << 10;
/// The time between two looks at an incomplete ClientHello.
const PAUSE: Duration = Duration::from_millis(5);
/// The time to connect to a server on the same host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which connections are for the server, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassThrough {
    /// The TLS server name of these connections.
    pub server_name: &'static str,
    /// The address of the server.
    pub server: SocketAddr,
    /// The address of this host to connect from.
    pub source: IpAddr,
}

impl PassThrough {
    /// Whether the connection is for the server: it comes from its own address, and asks for the
    /// server name. Nothing is read from it.
    pub(super) async fn is_for_server(
        &self,
        stream: &TcpStream,
        remote: SocketAddr,
        limit: Duration,
    ) -> bool {
        let from_here =
            stream.local_addr().is_ok_and(|l| l.ip().to_canonical() == remote.ip().to_canonical());
        if !from_here {
            return false;
        }
        let mut buffer = vec![0; LARGEST_HELLO];
        let deadline = Instant::now() + limit;
        loop {
            let Ok(Ok(length @ 1..)) = timeout_at(deadline, stream.peek(&mut buffer)).await else {
                return false;
            };
            match asked_name(buffer.get(..length).unwrap_or_default()) {
                Hello::Complete(name) => return name.as_deref() == Some(self.server_name),
                Hello::Invalid => return false,
                Hello::Incomplete if length == LARGEST_HELLO => return false,
                Hello::Incomplete => sleep(PAUSE).await,
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }

    /// Joins the connection with a new one to the server, until both directions end, or until
    /// `shutdown`: the server opens another one, which reaches it.
    pub(super) async fn join(
        &self,
        mut stream: Socket,
        remote: SocketAddr,
        activity: &Arc<Activity>,
        shutdown: &CancellationToken,
    ) {
        // In use, however quiet it is: it is not cut to make room for others.
        let _in_use = Guard::new(Arc::clone(activity));
        let outcome = async {
            let deadline = Instant::now() + CONNECT_TIMEOUT;
            let mut server = timeout_at(deadline, connect_from(self.source, self.server)).await??;
            server.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut stream, &mut server).await
        };
        let outcome: Option<io::Result<_>> = shutdown.run_until_cancelled(outcome).await;
        if let Some(Err(error)) = outcome {
            tracing::debug!(client = %remote, %error, "connection of the server to itself failed");
        }
    }
}

/// The beginning of a TLS connection.
enum Hello {
    /// A whole ClientHello, with its server name.
    Complete(Option<String>),
    Incomplete,
    Invalid,
}

fn asked_name(mut bytes: &[u8]) -> Hello {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        if acceptor.read_tls(&mut bytes).is_err() {
            return Hello::Invalid;
        }
        match acceptor.accept() {
            Ok(Some(hello)) => {
                return Hello::Complete(hello.client_hello().server_name().map(str::to_owned));
            }
            Ok(None) => {}
            Err(_) => return Hello::Invalid,
        }
    }
    Hello::Incomplete
}
