//! The steps of the data path: forward, answer, refuse.

pub(crate) mod answer;
mod connect;
mod copy;
pub(crate) mod forward;
mod headers;
mod inspect;
mod pool;
pub(crate) mod refuse;
mod remote;
mod replay;
mod schemas;
pub(crate) mod tunnel;

pub use forward::{Forwarder, OutboundTls, ReloadableOutbound, Target, server_name};
pub(crate) use headers::{asks_for_websocket, items, remove_named_by_connection};
pub(crate) use inspect::{Inspected, inspect_not_found};

pub(crate) use pool::Opened;
pub use remote::{Remote, Unreachable};
pub(crate) use replay::{Replay, broken_off};
pub(crate) use schemas::{Schema, Schemas, content_type as v2_media_type};
