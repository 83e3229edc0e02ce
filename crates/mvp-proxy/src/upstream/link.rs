//! The connection under the TLS of a server: to the server itself, or through a proxy. Entry item:
//! [`Link`].

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use mvp_net::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The connection under the TLS of a server.
#[derive(Debug)]
pub(crate) enum Link {
    /// To the server itself.
    Tcp(Socket),
    /// Through a proxy.
    Proxied(Box<dyn Stream>),
}

/// A connection to a proxy.
pub(crate) trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Stream for T {}

impl From<Socket> for Link {
    fn from(stream: Socket) -> Link {
        Link::Tcp(stream)
    }
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Link::Proxied(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Link::Proxied(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Link::Proxied(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Link::Tcp(stream) => stream.is_write_vectored(),
            Link::Proxied(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Link::Proxied(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Link::Proxied(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
