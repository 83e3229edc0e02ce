//! A small HTTP CONNECT proxy that notes where it was asked to connect to. Entry item:
//! [`ConnectProxy`].

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinHandle;

/// The largest head that it reads.
const MAX_HEAD: usize = 8 << 10;

/// A running proxy. It stops, and its connections end, when it is dropped.
#[derive(Debug)]
pub struct ConnectProxy {
    shared: Shared,
    address: Option<SocketAddr>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Default)]
struct Shared {
    asked: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
    /// What it answers instead of opening connections.
    canned: Arc<Mutex<Option<Vec<u8>>>>,
}

impl ConnectProxy {
    /// Listens on a free port of 127.0.0.1.
    pub async fn tcp() -> io::Result<ConnectProxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, shared) = (listener.local_addr()?, Shared::default());
        let proxy = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                proxy.spawn(stream);
            }
        });
        Ok(ConnectProxy { shared, address: Some(address), task })
    }

    /// Listens on a Unix socket.
    pub fn unix(path: &Path) -> io::Result<ConnectProxy> {
        let (listener, shared) = (UnixListener::bind(path)?, Shared::default());
        let proxy = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                proxy.spawn(stream);
            }
        });
        Ok(ConnectProxy { shared, address: None, task })
    }

    /// Its address; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it was asked to connect to, in order.
    pub fn asked(&self) -> Vec<String> {
        lock(&self.shared.asked).clone()
    }

    /// From now on it answers with these bytes, keeps the connection open, and connects to nobody;
    /// with `None` it is a proxy again. Existing connections end.
    pub fn answer(&self, canned: Option<&[u8]>) {
        *lock(&self.shared.canned) = canned.map(<[u8]>::to_vec);
        lock(&self.shared.connections).drain(..).for_each(|task| task.abort());
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
        lock(&self.shared.connections).drain(..).for_each(|task| task.abort());
    }
}

impl Shared {
    fn spawn(&self, mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let shared = self.clone();
        let task = tokio::spawn(async move {
            // Either side may close its connection at any time.
            let _ = shared.serve(&mut stream).await;
        });
        lock(&self.connections).push(task);
    }

    async fn serve(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let server = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
        let Some(server) = server else {
            return stream.write_all(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n").await;
        };
        lock(&self.asked).push(server.to_owned());
        let canned = lock(&self.canned).clone();
        if let Some(canned) = canned {
            stream.write_all(&canned).await?;
            return std::future::pending().await;
        }
        match TcpStream::connect(server).await {
            Ok(mut to) => {
                stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
                copy_bidirectional(stream, &mut to).await.map(drop)
            }
            Err(_) => stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
