//! Connections from an address of this host. Entry: [`connect_from`].

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpSocket, TcpStream, ToSocketAddrs, lookup_host};

/// Connects from `source` to the first address of the same family.
pub async fn connect_from(source: IpAddr, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let mut addresses = lookup_host(address).await?;
    let target = addresses.find(|address| address.is_ipv4() == source.is_ipv4());
    let target = target.ok_or_else(|| {
        let message = format!("no address can be reached from {source}: another IP family");
        io::Error::new(io::ErrorKind::Unsupported, message)
    })?;
    let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(target).await
}
