//! The input of a decision besides the request and the snapshot. Entry item: [`Asked`].

use crate::Timestamp;

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client.
    Client,
    /// A peer, proved by its certificate. The request must not be proxied again.
    Peer,
    /// A client that claims to be a peer. The claim is ignored, but the request must not be proxied.
    Marked,
}

/// The health of the local server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalHealth {
    /// It responds and reports ready.
    Ready,
    /// It responds, but does not report ready.
    Unready,
    /// It does not respond.
    Unreachable,
}

/// The circumstances of a request: its sender, its time and what happened to it so far.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The sender.
    pub origin: Origin,
    /// Whether the client asks for the local server's own answer only (`profile=nopeer`).
    pub nopeer: bool,
    /// The time at which the request arrived.
    pub arrived: Timestamp,
    /// The health of the local server.
    pub local: LocalHealth,
    /// The withheld 404s so far; none at first.
    pub denials: &'a [Denial<'a>],
}

/// A 404 that a member answered to this request and that the decision told the caller to withhold.
#[derive(Debug, Clone, Copy)]
pub struct Denial<'a> {
    /// The member's ID.
    pub member: &'a str,
    /// The time of the 404.
    pub at: Timestamp,
    /// Whether the member's view lists the request: [`Decision::listed`](super::Decision::listed) of the decision that the
    /// caller followed.
    pub listed: bool,
}
