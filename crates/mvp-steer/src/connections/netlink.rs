//! The exchange of messages with the kernel. Entry items: [`dump`] and [`destroy`].
//!
//! Each request has a socket of its own, so that nothing of an answer that was given up can be taken
//! for part of another one.

use std::io::{self, Read, Write};
use std::time::Duration;

use socket2::{Domain, Protocol, Type};

use super::ConnectionError;
use super::message::{self, FAMILIES, Key, Part, Ports, Socket};

/// `NETLINK_SOCK_DIAG`.
const SOCK_DIAG: i32 = 4;
/// The kernel sends at most 32 KiB at once.
const BUFFER: usize = 64 << 10;
/// The kernel answers from memory.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a list is read again that changed while it was read.
const ATTEMPTS: u32 = 5;
/// There is one request for each socket.
const SEQUENCE: u32 = 1;

/// Lists the TCP sockets of both families in some of these states, chosen by their ports.
pub(super) fn dump(ports: Ports, states: u32) -> Result<Vec<Socket>, ConnectionError> {
    let mut sockets = Vec::new();
    for family in FAMILIES {
        let request = message::list_request(family, ports, states, SEQUENCE);
        let ask = || open_and_send(&request).map_err(ConnectionError::of_list);
        sockets.extend(repeated(|| collected(&mut ask()?, ports))?);
    }
    Ok(sockets)
}

/// Ends one connection.
pub(super) fn destroy(key: &Key) -> io::Result<()> {
    let mut socket = open_and_send(&message::end_request(key, SEQUENCE))?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = socket.read(&mut buffer)?;
        let bytes = buffer.get(..length).unwrap_or_default();
        let part = message::parse(bytes, Ports::at(0), SEQUENCE).map_err(io::Error::other)?;
        match part.end {
            Some(0) => return Ok(()),
            Some(number) => return Err(io::Error::from_raw_os_error(number)),
            None if bytes.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => {}
        }
    }
}

/// A list that did not change while it was read.
fn repeated(
    mut list: impl FnMut() -> Result<(Vec<Socket>, bool), ConnectionError>,
) -> Result<Vec<Socket>, ConnectionError> {
    for _ in 0..ATTEMPTS {
        if let (sockets, false) = list()? {
            return Ok(sockets);
        }
    }
    Err(ConnectionError::Malformed("it changes whenever it is read; try again"))
}

/// All parts of a list, and whether some sockets may be missing.
fn collected(answer: &mut impl Read, ports: Ports) -> Result<(Vec<Socket>, bool), ConnectionError> {
    let (mut sockets, mut interrupted) = (Vec::new(), false);
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = match answer.read(&mut buffer) {
            Ok(0) => return Err(ConnectionError::Malformed("it has no end")),
            Ok(length) if length == BUFFER => {
                return Err(ConnectionError::Malformed("a part of it is too long"));
            }
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ConnectionError::of_list(error)),
        };
        let bytes = buffer.get(..length).unwrap_or_default();
        let part: Part = message::parse(bytes, ports, SEQUENCE)?;
        sockets.extend(part.sockets);
        interrupted |= part.interrupted;
        match part.end {
            None => {}
            Some(0) => return Ok((sockets, interrupted)),
            Some(number) => {
                return Err(ConnectionError::of_list(io::Error::from_raw_os_error(number)));
            }
        }
    }
}

fn open_and_send(request: &[u8]) -> io::Result<socket2::Socket> {
    let (domain, protocol) = (Domain::from(libc::AF_NETLINK), Protocol::from(SOCK_DIAG));
    let mut socket = socket2::Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    // Without an address, it goes to the kernel.
    socket.write_all(request)?;
    Ok(socket)
}

#[cfg(test)]
mod tests;
