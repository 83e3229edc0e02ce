//! A model checker of the shipped code: the decision, [`Progress`](super::progress::Progress), the
//! delivery and the roster, in a small world. It searches everything that can happen there, in every
//! order, and checks the promises of DESIGN.md. docs/proof.md has its bounds and its results. Entry
//! item: [`search::search`].
//!
//! - `cluster`, `bits`: servers, what they serve, and what clients ask for
//! - `world`, `steps`, `control`: what happens, what can happen, and the control loop
//! - `request`, `outcome`, `peer`: a request at the gateway under test, what comes of it, and the
//!   gateway of a peer
//! - `rules`: the decision, whole or without a rule
//! - `invariants`: what must hold
//! - `key`, `search`: which worlds are the same, and the search
//! - `tests`: the worlds

mod bits;
mod cluster;
mod control;
mod invariants;
mod key;
mod outcome;
mod peer;
mod request;
mod rules;
mod search;
mod steps;
mod tests;
mod world;
