//! A TCP stream whose ordinary writes are cheap. Entry item: [`Socket`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A TCP stream that writes a single slice with `send`.
///
/// rustls always writes slices, and mostly one: a TLS record. tokio would write it with `writev`, which
/// is a call of the kernel's file layer and costs more than `send`.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    /// The same stream, without a delay of small writes.
    ///
    /// # Errors
    ///
    /// The system refuses the option.
    pub fn new(stream: TcpStream) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        Ok(Socket(stream))
    }

    /// The stream itself.
    pub fn tcp(&self) -> &TcpStream {
        &self.0
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.0);
        match slices {
            [only] => stream.poll_write(context, only),
            slices => stream.poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn one_slice_and_many_arrive_alike() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut client = Socket::new(client).unwrap();
        assert!(client.tcp().nodelay().unwrap());
        let (mut server, _) = listener.accept().await.unwrap();
        let slices = |texts: &'static [&'static str]| -> Vec<IoSlice<'static>> {
            texts.iter().map(|text| IoSlice::new(text.as_bytes())).collect()
        };
        for (texts, expected) in [(&["one"][..], 3), (&["two, ", "three"], 10), (&[], 0)] {
            assert_eq!(client.write_vectored(&slices(texts)).await.unwrap(), expected);
        }
        client.shutdown().await.unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "onetwo, three");
    }
}
