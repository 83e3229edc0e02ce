//! A client of a recorded load. It works on one object for a few requests, so that it knows the
//! version that its conditions depend on, while others work on the same object.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::history::Value;
use testkit::history::watched::Version;
use tokio::time::sleep;

use super::{Caller, Extent, Record, Request};

pub(super) struct Worker {
    caller: Caller,
    extent: Extent,
    record: Arc<Record>,
    over: Arc<AtomicBool>,
    numbers: Numbers,
}

/// Numbers that look random, from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % most.max(1)
    }
}

impl Worker {
    pub(super) fn new(
        number: usize,
        to: SocketAddr,
        extent: Extent,
        record: Arc<Record>,
        over: Arc<AtomicBool>,
    ) -> Worker {
        let caller = Caller { number, to, connection: None };
        Worker { caller, extent, record, over, numbers: Numbers(number as u64) }
    }

    /// Sends requests until the load is over.
    pub(super) async fn run(mut self) {
        while !self.over.load(Ordering::Relaxed) {
            let object = usize::try_from(self.numbers.below(self.extent.objects as u64));
            let object = self.record.name(object.unwrap_or_default());
            let mut known = self.send(&object, Request::Read).await;
            for _ in 0..1 + self.numbers.below(3) {
                let request = self.choose(known);
                known = self.send(&object, request).await.or(known);
            }
        }
    }

    /// The next request, by what the client knows of the object: its value and version.
    fn choose(&mut self, known: Option<(Value, Version)>) -> Request {
        match (self.numbers.below(20), known) {
            (0..6, _) => Request::Read,
            (6..12, Some((from, version))) => Request::Update { from, version },
            (12..15, _) => Request::Patch,
            (15..17, Some((from, version))) => Request::DeleteIf { from, version },
            (17, _) => Request::Delete,
            _ => Request::Create,
        }
    }

    /// Sends one request. Returns the value and the version that the object has now, if it tells.
    async fn send(&mut self, object: &str, request: Request) -> Option<(Value, Version)> {
        let performed = self.record.perform(&mut self.caller, object, request).await;
        sleep(self.extent.pause).await;
        performed?.now
    }
}
