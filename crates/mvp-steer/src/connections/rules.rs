//! Which connections are not steered, and which may be ended. Entry items: [`is_unsteered`],
//! [`is_at_rest`] and [`kin`]. Nothing here talks to the kernel.

use std::time::Duration;

use super::owners::Owners;
use super::{Connection, Place};

/// Whether this is a connection to `place` that should be steered, and is not. Connections over
/// loopback never are: ours to the server are among them.
pub(super) fn is_unsteered(connection: &Connection, place: Place) -> bool {
    let loopback = [connection.local, connection.remote].iter().any(|end| end.ip().is_loopback());
    let local = connection.local;
    let is_there = place.address.is_none_or(|only| only == local.ip().to_canonical());
    local.port() == place.port && is_there && !loopback && !connection.steered
}

/// Whether nothing is under way, and nothing was for this long.
pub(super) fn is_at_rest(connection: &Connection, idle: Duration) -> bool {
    connection.received_bytes == 0
        && connection.sent_bytes == 0
        && connection.unacknowledged == 0
        && connection.idle() >= idle
}

/// To whom a connection belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kin {
    /// To a client.
    Client,
    /// To the server itself.
    Own,
    /// To one of them.
    Unclear,
}

/// To whom the connection of a server's socket (`inode`) belongs. `far_end` is the inode of the
/// client's socket, if that is on this host; `wildcard` tells whether the server listens on all
/// addresses.
pub(super) fn kin(inode: u32, far_end: Option<u32>, owners: &Owners, wildcard: bool) -> Kin {
    let Some(far_end) = far_end else { return Kin::Client };
    let (near, far) = (owners.holding(inode), owners.holding(far_end));
    if near.iter().any(|process| far.contains(process)) {
        return Kin::Own;
    }
    // Of a process that can be seen, all sockets can be: it does not hold the other end. A server on
    // all addresses talks to itself over loopback.
    if !near.is_empty() || !far.is_empty() || wildcard {
        return Kin::Client;
    }
    Kin::Unclear
}

#[cfg(test)]
mod tests;
