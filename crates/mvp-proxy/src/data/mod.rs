//! The steps of the data path: forward, answer, refuse.

pub(crate) mod answer;
mod connect;
mod copy;
pub(crate) mod forward;
mod headers;
mod inspect;
mod lanes;
mod pool;
mod pulse;
pub(crate) mod refuse;
mod remote;
mod replay;
mod schemas;
mod tokens;
pub(crate) mod tunnel;

pub use forward::{Forwarder, OutboundTls, ReloadableOutbound, Target, Upstream, server_name};
pub(crate) use headers::{asks_for_websocket, items, remove_named_by_connection};
pub(crate) use inspect::{Inspected, inspect_not_found};

pub(crate) use lanes::{Exclusive, Lasting};
pub(crate) use pool::Opened;
pub use remote::{Remote, Unreachable};
pub(crate) use replay::{Outgoing, Replay, broken_off};
pub(crate) use schemas::{Schema, Schemas, content_type as v2_media_type};
