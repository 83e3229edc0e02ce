//! Simulations of whole gateways: the shipped layer, control loop and pools, with TLS and HTTP, on an
//! in-memory network in paused time. A seed decides the cluster, what goes wrong when, and what clients
//! ask for. docs/proof.md says what is simulated and what is not. Entry item: [`world::simulate`].
//!
//! - `random`, `plan`: what a seed decides
//! - `network`, `pipe`: connections, and their faults
//! - `serve`, `server`, `gateway`: processes
//! - `membership`: the source of members
//! - `client`: requests
//! - `log`, `invariants`: what happened, and what must hold
//! - `world`: all of it together
//! - `tests`: the seeds

mod client;
mod gateway;
mod invariants;
mod log;
mod membership;
mod network;
mod pipe;
mod plan;
mod random;
mod serve;
mod server;
mod tests;
mod world;
