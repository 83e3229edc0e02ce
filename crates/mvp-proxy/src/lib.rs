//! The Mixed Version Proxy as a tower layer, for API servers in Rust and for the gateway.
//!
//! - [`Member`] assembles everything: start here
//! - [`MixedVersionLayer`]: the data path (`layer::exchange`)
//! - [`control`]: the control loop, and where members come from
//! - [`AuthenticateLayer`]: who the caller is

mod body;
pub mod control;
mod door;
mod error;
mod gateway;
mod headers;
mod identity;
mod layer;
mod local;
mod member;
mod metrics;
mod peers;
mod probe;
mod status;
mod upstream;

pub use body::{Body, BodyError};
pub use error::{SendError, Stage};
pub use gateway::unique;
pub use identity::{
    Authenticate, AuthenticateLayer, Identity, RemoteHeaders, ResponseFuture, User,
};
pub use layer::{MixedVersion, MixedVersionLayer};
pub use local::LocalSlot;
pub use member::{Member, MemberBuilder, Worker};
pub use metrics::Metrics;
pub use probe::LocalState;
pub use upstream::{Forwarder, OutboundTls, ReloadableOutbound, Target, server_name};
