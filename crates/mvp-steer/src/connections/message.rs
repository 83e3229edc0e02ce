//! Messages of netlink's `sock_diag`, as bytes. Entry items: [`list_request`], [`end_request`] and
//! [`parse`]. Nothing here talks to the kernel.
//!
//! The structures are `nlmsghdr` (16 bytes), `inet_diag_req_v2` (56), `inet_diag_msg` (72, then
//! attributes) and `tcp_info`. Numbers are in the byte order of the host; ports and addresses are in
//! network order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::ConnectionError;

/// Sets of states of TCP, one bit for each.
pub(super) const ESTABLISHED: u32 = 1 << 1;
pub(super) const LISTEN: u32 = 1 << 10;
/// States of a client whose server is still in the state ESTABLISHED: also FIN_WAIT1, FIN_WAIT2.
pub(super) const FAR_STATES: u32 = ESTABLISHED | 1 << 4 | 1 << 5;

/// Both families: IPv4 clients of a listener on all addresses have an IPv6 socket.
pub(super) const FAMILIES: [u8; 2] = [AF_INET, AF_INET6];
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;

const HEADER: usize = 16;
const BODY: usize = 72;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
/// Of an answer: sockets came or went meanwhile, so that some may be missing.
const INTERRUPTED: u16 = 0x10;

const ATTRIBUTE_INFO: u16 = 2;
const ATTRIBUTE_OPTIONS: u16 = 22;
/// Asks for [`ATTRIBUTE_INFO`].
const WITH_INFO: u8 = 1 << (ATTRIBUTE_INFO - 1);
/// The third bit field of `inet_diag_sockopt`.
const FREEBIND: u8 = if cfg!(target_endian = "little") { 1 << 2 } else { 1 << 5 };

/// The ports that sockets are chosen by; 0 for any.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    local: u16,
    remote: u16,
}

impl Ports {
    /// Sockets at a local port.
    pub(super) fn at(local: u16) -> Ports {
        Ports { local, remote: 0 }
    }

    /// Sockets that are connected to a port.
    pub(super) fn to(remote: u16) -> Ports {
        Ports { local: 0, remote }
    }

    fn choose(self, socket: &Socket) -> bool {
        (self.local == 0 || self.local == socket.local.port())
            && (self.remote == 0 || self.remote == socket.remote.port())
    }
}

/// What the kernel finds a socket by: its family, and `inet_diag_sockid` as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    family: u8,
    id: [u8; 48],
}

#[cfg(test)]
impl Default for Key {
    fn default() -> Key {
        Key { family: AF_INET, id: [0; 48] }
    }
}

impl Key {
    pub(super) fn cookie(&self) -> u64 {
        let word = |at| u32_at(&self.id, at).unwrap_or_default();
        u64::from(word(40)) | u64::from(word(44)) << 32
    }
}

/// A socket, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) key: Key,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) inode: u32,
    pub(super) received_bytes: u32,
    pub(super) sent_bytes: u32,
    pub(super) options: Option<Options>,
    pub(super) info: Option<Info>,
}

/// The options of a socket, as far as they matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) freebind: bool,
}

/// `tcp_info`, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) unacknowledged: u32,
    pub(super) last_sent: Duration,
    pub(super) last_received: Duration,
}

/// Asks for all sockets of a family in some of these states, chosen by their ports.
pub(super) fn list_request(family: u8, ports: Ports, states: u32, sequence: u32) -> Vec<u8> {
    let mut id = [0; 48];
    for (place, byte) in
        id.iter_mut().zip([ports.local, ports.remote].map(u16::to_be_bytes).concat())
    {
        *place = byte;
    }
    let key = Key { family, id };
    request(SOCK_DIAG_BY_FAMILY, REQUEST | DUMP, sequence, &key, states)
}

/// Asks to end one connection.
pub(super) fn end_request(key: &Key, sequence: u32) -> Vec<u8> {
    request(SOCK_DESTROY, REQUEST | ACKNOWLEDGE, sequence, key, ESTABLISHED)
}

fn request(kind: u16, flags: u16, sequence: u32, key: &Key, states: u32) -> Vec<u8> {
    const LENGTH: u32 = 72;
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // The sender; the kernel knows it.
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([key.family, TCP, WITH_INFO, 0]);
    bytes.extend(states.to_ne_bytes());
    bytes.extend(key.id);
    bytes
}

/// A part of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) sockets: Vec<Socket>,
    /// Set by the last part: how the request ended, as an error number, 0 for success.
    pub(super) end: Option<i32>,
    /// Some sockets may be missing.
    pub(super) interrupted: bool,
}

/// Reads what the kernel sent at once, as far as it belongs to a request.
pub(super) fn parse(bytes: &[u8], ports: Ports, sequence: u32) -> Result<Part, ConnectionError> {
    let mut part = Part::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (Some(length), Some(kind), Some(flags), Some(answers)) =
            (u32_at(rest, 0), u16_at(rest, 4), u16_at(rest, 6), u32_at(rest, 8))
        else {
            return Err(ConnectionError::Malformed("a message is cut off"));
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let message = rest.get(..length).and_then(|message| message.get(HEADER..));
        let Some(body) = message else {
            return Err(ConnectionError::Malformed("a message has a wrong length"));
        };
        rest = rest.get(aligned(length)..).unwrap_or_default();
        if answers != sequence {
            continue;
        }
        part.interrupted |= flags & INTERRUPTED != 0;
        match kind {
            SOCK_DIAG_BY_FAMILY => {
                let cut = ConnectionError::Malformed("a description of a socket is cut off");
                part.sockets.extend(Some(socket(body).ok_or(cut)?).filter(|one| ports.choose(one)));
            }
            // Both begin with a negative error number, or 0; older kernels end with nothing.
            ERROR | DONE => {
                let number = u32_at(body, 0).map_or(0, u32::cast_signed);
                part.end = Some(number.saturating_neg());
                return Ok(part);
            }
            _ => {}
        }
    }
    Ok(part)
}

/// Reads `inet_diag_msg` and its attributes.
fn socket(body: &[u8]) -> Option<Socket> {
    let (fixed, attributes) = body.split_at_checked(BODY)?;
    let family = *fixed.first()?;
    let id: [u8; 48] = fixed.get(4..52)?.try_into().ok()?;
    let port = |at: usize| Some(u16::from_be_bytes(id.get(at..at + 2)?.try_into().ok()?));
    let (local, remote) = (address(family, id.get(4..20)?)?, address(family, id.get(20..36)?)?);
    let mut socket = Socket {
        key: Key { family, id },
        local: SocketAddr::new(local, port(0)?),
        remote: SocketAddr::new(remote, port(2)?),
        received_bytes: u32_at(fixed, 56)?,
        sent_bytes: u32_at(fixed, 60)?,
        inode: u32_at(fixed, 68)?,
        options: None,
        info: None,
    };
    let mut rest = attributes;
    while !rest.is_empty() {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(..length)?.get(4..)?;
        match kind {
            ATTRIBUTE_INFO => socket.info = Some(info(value)?),
            ATTRIBUTE_OPTIONS => {
                socket.options = Some(Options { freebind: value.first()? & FREEBIND != 0 });
            }
            _ => {}
        }
        rest = rest.get(aligned(length)..).unwrap_or_default();
    }
    Some(socket)
}

/// Reads `tcp_info`, which newer kernels make longer.
fn info(value: &[u8]) -> Option<Info> {
    let milliseconds = |at| Some(Duration::from_millis(u32_at(value, at)?.into()));
    Some(Info {
        unacknowledged: u32_at(value, 24)?,
        last_sent: milliseconds(44)?,
        last_received: milliseconds(52)?,
    })
}

/// An address of 4 or 16 bytes. An IPv4 address in an IPv6 socket is an IPv4 address.
fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?).into()),
        AF_INET6 => {
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(..16)?).ok()?).to_canonical())
        }
        _ => None,
    }
}

/// Messages and attributes begin at multiples of four bytes.
fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..)?.first_chunk::<2>().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk::<4>().copied()?))
}

#[cfg(test)]
mod tests;
