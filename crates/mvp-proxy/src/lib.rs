//! The Mixed Version Proxy as a tower layer, for API servers in Rust and for the gateway.
//!
//! - [`layer`]: the data path, in order, on one screen
//! - [`control`]: the control loop, on one screen
//! - [`identity`]: who the caller is

pub mod body;
pub mod control;
mod door;
mod embed;
pub mod error;
mod gateway;
mod headers;
pub mod identity;
pub mod layer;
mod local;
pub mod metrics;
pub mod peers;
mod status;
pub mod upstream;

pub use body::Body;
pub use embed::{Embed, Embedded};
pub use layer::MixedVersionLayer;
pub use local::LocalSlot;
pub use upstream as data;
