//! Which requests are traced, and who may ask for it. Entry item: [`Sampler::samples`].
//!
//! A trace costs memory and the collector's disk, so a client must not be able to switch it on for
//! all of its requests. kube-apiserver follows only the contexts of `system:masters` and
//! `system:monitoring`; so does this, and it follows those of others up to a limit. Who asks not to
//! be traced is never traced.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::{Context, Sampling};
use crate::door::Chance;

/// The groups whose contexts kube-apiserver follows.
pub(crate) const TRUSTED_GROUPS: [&str; 2] = ["system:masters", "system:monitoring"];

/// Who sent a request, as far as traces are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Another gateway, which traces the request.
    Peer,
    /// Another gateway, which does not trace the request: the context is that of its client.
    Untraced,
    /// A user of one of [`TRUSTED_GROUPS`].
    Trusted,
    /// Anybody else.
    Client,
}

/// Decides which requests are traced.
#[derive(Debug)]
pub(super) struct Sampler {
    ratio: Chance,
    per_second: u64,
    start: Instant,
    /// The current second in the upper half, the requests that clients asked to trace in the lower.
    window: AtomicU64,
}

impl Sampler {
    pub(super) fn new(sampling: Sampling) -> Sampler {
        let Sampling { ratio, client_requests_per_second } = sampling;
        Sampler {
            ratio: Chance::new(ratio),
            per_second: client_requests_per_second.into(),
            start: Instant::now(),
            window: AtomicU64::new(0),
        }
    }

    /// Whether a request is traced.
    pub(super) fn samples(&self, context: Option<&Context>, sender: Sender, now: Instant) -> bool {
        match (context.map(|context| context.sampled), sender) {
            (Some(false), _) => false,
            (Some(true), Sender::Peer | Sender::Trusted) => true,
            // The trace ID must not decide: clients choose it.
            (Some(true), Sender::Client | Sender::Untraced) => {
                self.admits(now) || self.ratio.hits()
            }
            // The gateway of the client has decided.
            (None, Sender::Peer | Sender::Untraced) => false,
            (None, Sender::Trusted | Sender::Client) => self.ratio.hits(),
        }
    }

    /// Counts a request that a client asks to trace. Whether it is within the limit.
    fn admits(&self, now: Instant) -> bool {
        let second = now.saturating_duration_since(self.start).as_secs() << 32;
        let counted = |window: u64| {
            let same = window & !u64::from(u32::MAX) == second;
            let next = if same { window + 1 } else { second | 1 };
            // At the limit nothing is written, so that the count cannot overflow.
            (next & u64::from(u32::MAX) <= self.per_second).then_some(next)
        };
        self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn context(sampled: bool) -> Context {
        Context { trace: [1; 16], span: [1; 8], sampled }
    }

    const SENDERS: [Sender; 4] = [Sender::Peer, Sender::Untraced, Sender::Trusted, Sender::Client];

    #[test]
    fn the_context_decides_before_the_ratio() {
        for (ratio, is_drawn) in [(0.0, false), (1.0, true)] {
            let sampler = Sampler::new(Sampling { ratio, client_requests_per_second: 2 });
            for sender in SENDERS {
                let samples = |asked: Option<bool>| {
                    sampler.samples(asked.map(context).as_ref(), sender, sampler.start)
                };
                assert!(samples(Some(true)), "{sender:?}");
                assert!(!samples(Some(false)), "{sender:?}");
                let is_of_gateway = matches!(sender, Sender::Peer | Sender::Untraced);
                assert_eq!(samples(None), is_drawn && !is_of_gateway, "{sender:?}");
            }
        }
    }

    #[test]
    fn clients_cannot_force_more_traces_than_the_limit() {
        let sampler = Sampler::new(Sampling { ratio: 0.0, client_requests_per_second: 3 });
        let traced = |sender, second| {
            let now = sampler.start + Duration::from_secs(second);
            (0..100).filter(|_| sampler.samples(Some(&context(true)), sender, now)).count()
        };
        assert_eq!(traced(Sender::Client, 0), 3);
        assert_eq!(traced(Sender::Client, 7), 3, "the limit is for each second");
        assert_eq!(traced(Sender::Client, 7), 0);
        assert_eq!(traced(Sender::Untraced, 7), 0, "the context is that of a client");
        assert_eq!(traced(Sender::Trusted, 7), 100);
        assert_eq!(traced(Sender::Peer, 7), 100);
        assert_eq!(traced(Sender::Client, 8), 3, "others do not use it up");
        let none = Sampler::new(Sampling { ratio: 0.0, client_requests_per_second: 0 });
        assert!(!none.samples(Some(&context(true)), Sender::Client, none.start));
    }

    #[test]
    fn beyond_the_limit_a_client_has_the_chance_of_others() {
        let sampler = Sampler::new(Sampling { ratio: 0.5, client_requests_per_second: 0 });
        let now = sampler.start;
        let samples = |_: &u32| sampler.samples(Some(&context(true)), Sender::Client, now);
        let hits = (0..10_000).filter(samples).count();
        assert!((4_000..6_000).contains(&hits), "{hits}");
    }
}
