//! Connections from an address of this host, and whose fault it is if there is none. Entries:
//! [`connect_from`], [`is_own_failure`].

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
    socket_at(source)?.connect(target).await
}

/// A socket with this address, which reserves no port: a port that was chosen at `bind` would be
/// taken for all destinations.
fn socket_at(source: IpAddr) -> io::Result<TcpSocket> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    #[cfg(target_os = "linux")]
    mvp_steer::reserve_no_port(&socket)?;
    socket.bind(SocketAddr::new(source, 0))?;
    Ok(socket)
}

/// Whether a failure to connect is about this process or host and not about the server: no
/// descriptors, no memory, no buffers, no ports.
pub fn is_own_failure(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, OutOfMemory};
    matches!(error.kind(), OutOfMemory | AddrNotAvailable | AddrInUse)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOBUFS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_source_address_reserves_no_port() {
        let source = IpAddr::from([127, 0, 0, 2]);
        let bound = socket_at(source).unwrap();
        assert_eq!(bound.local_addr().unwrap(), SocketAddr::new(source, 0));
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = connect_from(source, server.local_addr().unwrap()).await.unwrap();
        assert_eq!(stream.local_addr().unwrap().ip(), source);
        assert_ne!(stream.local_addr().unwrap().port(), 0);
    }

    #[test]
    fn errors_of_this_process_are_told_from_those_of_a_server() {
        for number in [12, 23, 24, 98, 99, 105] {
            assert!(is_own_failure(&io::Error::from_raw_os_error(number)), "{number}");
        }
        // Refused, timed out, no route to the host.
        for number in [111, 110, 113] {
            assert!(!is_own_failure(&io::Error::from_raw_os_error(number)), "{number}");
        }
    }
}
