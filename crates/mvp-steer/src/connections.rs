//! Connections to a port of another process that are not steered, such as those from before the
//! steering. Entry items: [`survey`] finds them, [`end`] ends one.
//!
//! - `message`: requests and answers of the kernel, as bytes
//! - `netlink`: the socket that carries them
//! - `rules`: which connections count, and which may be ended
//! - `owners`: the processes that hold a socket
//!
//! Listeners of ours have the option `IP_FREEBIND`, connections inherit it, and the kernel shows it to
//! everybody. That is how a steered connection is told from one of the other process.

mod error;
mod message;
mod netlink;
mod owners;
mod rules;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

pub use error::ConnectionError;
use message::{Ports, Socket};
use owners::Owners;
use rules::Kin;

/// A TCP connection, seen from the side of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The address of the client.
    pub remote: SocketAddr,
    /// The address of the server that the client connected to.
    pub local: SocketAddr,
    /// The inode of the server's socket.
    pub inode: u32,
    /// Identifies the server's socket: the kernel uses no cookie twice.
    pub cookie: u64,
    /// Whether this connection was handed to a listener of ours.
    pub steered: bool,
    /// The bytes that the server has not read yet.
    pub received_bytes: u32,
    /// The bytes that the client has not acknowledged yet.
    pub sent_bytes: u32,
    /// The packets that the client has not acknowledged yet.
    pub unacknowledged: u32,
    /// The time since data was last sent.
    pub last_sent: Duration,
    /// The time since data was last received.
    pub last_received: Duration,
    key: message::Key,
}

impl Connection {
    /// The time since data was last sent or received.
    pub fn idle(&self) -> Duration {
        self.last_sent.min(self.last_received)
    }

    /// Whether nothing is under way, and nothing was for this long. A request whose answer takes longer
    /// than that looks the same.
    pub fn is_at_rest(&self, idle: Duration) -> bool {
        rules::is_at_rest(self, idle)
    }
}

/// The connections to a port that are not steered. Those over loopback are left out: they never are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Connections of clients.
    pub unsteered: Vec<Connection>,
    /// Connections from this host that may belong to the server itself: its process cannot be seen.
    pub unclear: Vec<Connection>,
    /// Connections of the server with itself.
    pub own: Vec<Connection>,
}

/// The port whose connections are steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The port.
    pub port: u16,
    /// The only address that is steered; `None` for all. Other programs may have the same port at others.
    pub address: Option<IpAddr>,
}

/// Finds the connections to `place` that are not steered, in the network namespace of this thread.
/// Needs no rights; with the right to look into other processes it can tell more connections apart.
pub fn survey(place: Place) -> Result<Survey, ConnectionError> {
    let mut survey = Survey::default();
    let port = place.port;
    let mut left = established(port)?;
    left.retain(|connection| rules::is_unsteered(connection, place));
    if left.is_empty() {
        return Ok(survey);
    }
    // The other ends, if they are on this host and in this network namespace.
    let far = netlink::dump(Ports::to(port), message::FAR_STATES)?;
    let far: HashMap<(SocketAddr, SocketAddr), u32> =
        far.iter().map(|socket| ((socket.remote, socket.local), socket.inode)).collect();
    let far_end =
        |connection: &Connection| far.get(&(connection.local, connection.remote)).copied();
    let both = left.iter().filter_map(|one| Some([one.inode, far_end(one)?])).flatten();
    let both: Vec<u32> = both.collect();
    let (mut owners, mut wildcard) = (Owners::default(), false);
    if !both.is_empty() {
        owners = Owners::of(&both, Path::new("/proc"));
        let listeners = netlink::dump(Ports::at(port), message::LISTEN)?;
        wildcard = listeners.iter().any(|listener| listener.local.ip().is_unspecified());
    }
    for connection in left {
        let far_end = far_end(&connection);
        match rules::kin(connection.inode, far_end, &owners, wildcard) {
            Kin::Client => survey.unsteered.push(connection),
            Kin::Own => survey.own.push(connection),
            Kin::Unclear => survey.unclear.push(connection),
        }
    }
    Ok(survey)
}

/// All established connections of a local port, steered or not, over loopback or not, in the network
/// namespace of this thread.
pub fn established(port: u16) -> Result<Vec<Connection>, ConnectionError> {
    let sockets = netlink::dump(Ports::at(port), message::ESTABLISHED)?;
    sockets.into_iter().map(Connection::try_from).collect()
}

/// Ends a connection: both sides see a reset. Needs CAP_NET_ADMIN in the network namespace of this
/// thread. Returns whether it was still there.
pub fn end(connection: &Connection) -> Result<bool, ConnectionError> {
    match netlink::destroy(&connection.key) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            // It ended by itself, and perhaps another one has its addresses now.
            Some(libc::ENOENT | libc::ESTALE) => Ok(false),
            _ => Err(ConnectionError::of_end(error)),
        },
    }
}

impl TryFrom<Socket> for Connection {
    type Error = ConnectionError;

    /// Fails if the kernel does not tell the options of a socket: without them, a connection of ours
    /// would be taken for one of the server.
    fn try_from(socket: Socket) -> Result<Connection, ConnectionError> {
        let options = socket.options.ok_or(ConnectionError::NoOptions)?;
        let info = socket.info.ok_or(ConnectionError::NoOptions)?;
        Ok(Connection {
            remote: socket.remote,
            local: socket.local,
            inode: socket.inode,
            cookie: socket.key.cookie(),
            steered: options.freebind,
            received_bytes: socket.received_bytes,
            sent_bytes: socket.sent_bytes,
            unacknowledged: info.unacknowledged,
            last_sent: info.last_sent,
            last_received: info.last_received,
            key: socket.key,
        })
    }
}

#[cfg(test)]
mod tests;
