//! Signs of life: reads from a server on any connection of this process. They tell a busy server,
//! whose handshakes are slow, from a dead one. Entry item: [`Pulses`].
//!
//! Each server has several counters of reads, so that workers seldom write to the same memory. They
//! are summed only when an operation takes too long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::counted::Counted;
use super::single_flight::SingleFlight;

/// The number of counters for each server.
const COUNTERS: usize = 16;

/// The signs of life of all servers, by address. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulses(Arc<Mutex<HashMap<Arc<str>, Arc<Pulse>>>>);

impl Pulses {
    /// The counter of a pool's reads from the server at this address.
    pub(crate) fn beat(&self, address: &Arc<str>) -> Beat {
        let mut pulses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !pulses.contains_key(address) {
            // Addresses change over time. Those without a connection are dropped.
            pulses.retain(|_, pulse| Arc::strong_count(pulse) > 1);
        }
        let pulse = Arc::clone(pulses.entry(Arc::clone(address)).or_default());
        let counter = pulse.pools.fetch_add(1, Ordering::Relaxed) % COUNTERS;
        Beat { pulse, counter }
    }
}

/// The signs of life of one server.
#[derive(Debug, Default)]
struct Pulse {
    reads: [Counter; COUNTERS],
    /// The number of pools so far. Each one uses the next counter.
    pools: AtomicUsize,
    /// At most one request at a time probes whether the server hangs.
    probing: SingleFlight,
}

/// A counter on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// The counter of the reads of one pool.
#[derive(Debug, Clone)]
pub(crate) struct Beat {
    pulse: Arc<Pulse>,
    counter: usize,
}

impl Beat {
    /// The number of reads from the server so far, on all connections of the process.
    pub(crate) fn heard(&self) -> u64 {
        self.pulse.reads.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    /// The probe of whether the server hangs.
    pub(crate) fn probing(&self) -> &SingleFlight {
        &self.pulse.probing
    }

    /// Notes a read.
    pub(super) fn hear(&self) {
        if let Some(counter) = self.pulse.reads.get(self.counter) {
            counter.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the reads of this connection.
    pub(crate) fn count<T>(self, connection: T) -> Counted<T> {
        Counted::new(connection, self)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn reads_on_every_connection_of_the_process_count() {
        let pulses = Pulses::default();
        let address: Arc<str> = "one:1".into();
        let (mine, other) = (pulses.beat(&address), pulses.clone().beat(&address));
        let stranger = pulses.beat(&"two:2".into());
        let (mut server, client) = duplex(64);
        let mut client = other.clone().count(client);
        server.write_all(b"x").await.unwrap();
        client.read_exact(&mut [0]).await.unwrap();
        assert_eq!((mine.heard(), stranger.heard()), (1, 0));
        // The reads of a dropped pool still count.
        drop((client, other));
        assert_eq!(mine.heard(), 1);
    }

    #[test]
    fn addresses_without_a_connection_are_dropped() {
        let pulses = Pulses::default();
        for number in 0..100 {
            pulses.beat(&format!("{number}:1").into());
        }
        assert_eq!(pulses.0.lock().unwrap().len(), 1);
    }
}
