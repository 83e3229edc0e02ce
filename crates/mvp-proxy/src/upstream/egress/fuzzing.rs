//! What the fuzz targets in `fuzz/` need: peers in this process, and the response to CONNECT. Exists with
//! `cfg(fuzzing)` alone.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

use super::{ConnectProxy, Transport, request};

/// Opens a connection in this process, by the address of the server.
#[derive(Clone)]
pub(super) struct Dial(Arc<dyn Fn(&str) -> DuplexStream + Send + Sync>);

impl Deref for Dial {
    type Target = dyn Fn(&str) -> DuplexStream + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

impl ConnectProxy {
    /// Connections in this process, without CONNECT.
    pub fn in_memory(dial: impl Fn(&str) -> DuplexStream + Send + Sync + 'static) -> ConnectProxy {
        ConnectProxy(Transport::Memory(Dial(Arc::new(dial))))
    }

    /// Asks a proxy for a connection to a server.
    pub async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
        request(stream, "10.0.0.2:6443").await
    }
}
