//! Opens listening sockets. Entries: [`bind`], [`bind_workers`] for one socket per worker, and
//! [`bind_steered`] for sockets whose connections come from elsewhere.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// The kernel uses `net.core.somaxconn` if that is lower.
const BACKLOG: i32 = 4096;

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

/// Opens listening sockets for connections that the kernel hands over from another port: for each of
/// `workers`, one for IPv4 and, if this host has IPv6, one for IPv6.
///
/// They are on loopback, each on a port of its own that the system chooses and that no other process
/// can share. Accepted sockets have the option
/// `IP_FREEBIND`, which has no effect on them, but can be seen from outside the process: it tells
/// connections that were handed over from those of the other port's owner.
pub fn bind_steered(workers: usize) -> io::Result<Vec<Vec<TcpListener>>> {
    let ipv4 = steered((Ipv4Addr::LOCALHOST, 0).into(), workers)?;
    // Without IPv6 on this host there is nothing to hand over.
    let ipv6 = steered((Ipv6Addr::LOCALHOST, 0).into(), workers).unwrap_or_default();
    let mut ipv6 = ipv6.into_iter();
    Ok(ipv4.into_iter().map(|four| std::iter::once(four).chain(ipv6.next()).collect()).collect())
}

fn steered(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::with_capacity(workers);
    for _ in 0..workers.max(1) {
        let socket = open(address, false)?;
        #[cfg(target_os = "linux")]
        if address.is_ipv4() {
            socket.set_freebind_v4(true)?;
        } else {
            socket.set_freebind_v6(true)?;
        }
        socket.listen(BACKLOG)?;
        listeners.push(TcpListener::from(socket));
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
