//! Sockets that are bound to an address, but reserve no port. Entry item: [`reserve_no_port`].

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets the next `bind` of this TCP socket to port 0 choose the address only. The kernel then chooses
/// the port at `connect`, where it is needed for one destination only: the same port can be used for
/// others.
pub fn reserve_no_port(socket: &impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    // SAFETY: `on` is valid during the call, and `length` is its size. The kernel copies it. The
    // option is one of IP, but holds for IPv6 sockets, too.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn the_port_is_chosen_at_connect() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            // Without IPv6 on this host there is nothing to test.
            let Ok(server) = TcpListener::bind(address) else { continue };
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            reserve_no_port(&socket).unwrap();
            socket.bind(&address.into()).unwrap();
            let port = || socket.local_addr().unwrap().as_socket().unwrap().port();
            assert_eq!(port(), 0, "{address}");
            socket.connect(&server.local_addr().unwrap().into()).unwrap();
            assert_ne!(port(), 0, "{address}");
        }
    }
}
