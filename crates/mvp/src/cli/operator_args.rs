//! The flags of the commands that operators ask a cluster with.

mod adopt;
mod callers;
pub(super) mod doctor;
mod skew;
mod status;

pub(crate) use adopt::AdoptArgs;
pub(crate) use callers::CallersArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use skew::{DirectArgs, SkewArgs, SkewOutput};
pub(crate) use status::{Probe, StatusArgs};
