//! Opens listening sockets. Entries: [`bind`], and [`bind_workers`] for one socket per worker.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

const BACKLOG: i32 = 1024;

/// Opens one non-blocking listening socket. `[::]` accepts IPv4, too.
///
/// With `reuse_port` several sockets can share the port, and the kernel spreads connections over
/// them. Another process of the same user can share it unnoticed: see [`bind_workers`].
pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = open(address, reuse_port)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Opens one listening socket for each of `workers` (at least one), all on one address.
///
/// Fails if any process uses the port: this is tested first, without sharing. With `shared` it is not
/// tested: this process then shares the port with another one that also used `shared`, so that a new
/// process can take over from an old one. With port 0 the kernel picks one port for all.
pub fn bind_workers(
    mut address: SocketAddr,
    workers: usize,
    shared: bool,
) -> io::Result<Vec<TcpListener>> {
    if workers <= 1 && !shared {
        return Ok(vec![bind(address, false)?]);
    }
    if address.port() != 0 && !shared {
        drop(open(address, false)?);
    }
    let mut listeners = Vec::with_capacity(workers);
    for _ in 0..workers.max(1) {
        let listener = bind(address, true)?;
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn open(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Otherwise a restart must wait until the connections of the last run leave TIME_WAIT.
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
