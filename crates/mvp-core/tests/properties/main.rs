//! Properties of every cluster, document and request. They are random, from small pools, so that
//! servers overlap, agree and contradict each other.
//!
//! Runs are repeatable. Set `PROPTEST_RNG_SEED` and `PROPTEST_CASES` for other and for more cases.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod allocations;
mod clusters;
mod coherence;
mod contents;
mod decisions;
mod discovery_decisions;
mod documents;
mod endings;
mod legacy_documents;
mod listings;
mod merging;
mod orders;
mod rebuilding;
mod requests;
mod robustness;
mod round_trips;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// The same cases in every run, unless the environment sets others; nothing is written to disk.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(4020);
    }
    config
}
