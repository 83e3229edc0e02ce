//! Requests to servers: connections, request heads and responses.
//! Entry items: [`Forwarder::send`], `Delivery`.

pub(crate) mod client;
mod connect;
mod connect_error;
mod copy;
mod counted;
mod delivery;
mod egress;
mod forward;
mod head;
mod inspect;
mod lanes;
mod link;
mod network;
mod pool;
mod pulse;
mod remote;
mod replay;
mod single_flight;
mod target;
mod tokens;
pub(crate) mod tunnel;

pub(crate) use delivery::Delivery;
pub use egress::{ConnectProxy, Egress, Way, Ways};
pub use forward::Forwarder;
pub(crate) use forward::Upstream;
pub(crate) use inspect::inspect_not_found;
pub(crate) use network::Network;
#[cfg(test)]
pub(crate) use network::{Dial, Dialing};
pub(crate) use pool::Opened;
pub(crate) use remote::Remote;
pub(crate) use replay::{Outgoing, Replay};
pub use target::{OutboundTls, ReloadableOutbound, Target, server_name};
