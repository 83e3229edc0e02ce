//! The queue between requests and the exporter. A span that does not fit is dropped and counted: no
//! request ever waits for the collector. Entry items: [`Spans`], [`SpanCounts`].

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use super::Span;

/// The most spans that wait for the exporter.
const MAX_SPANS: usize = 4096;

/// The end of the queue that requests use.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<Span>,
    dropped: Counter,
}

/// The end of the queue that the exporter uses.
#[derive(Debug)]
pub struct Spans {
    queued: mpsc::Receiver<Span>,
    counts: SpanCounts,
}

/// A new queue.
pub(super) fn channel() -> (Queue, Spans) {
    let (spans, queued) = mpsc::channel(MAX_SPANS);
    let counts = SpanCounts::default();
    (Queue { spans, dropped: counts.queue_full.clone() }, Spans { queued, counts })
}

impl Queue {
    /// Queues a span, or drops it. Never waits.
    pub(super) fn push(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.dropped.inc();
        }
    }
}

impl Spans {
    /// Waits for a span. `None` when all tracers are gone.
    pub async fn next(&mut self) -> Option<Span> {
        self.queued.recv().await
    }

    /// A span that waits already.
    pub fn waiting(&mut self) -> Option<Span> {
        self.queued.try_recv().ok()
    }

    /// What becomes of spans.
    pub fn counts(&self) -> &SpanCounts {
        &self.counts
    }
}

/// What became of spans. Clones share the counters.
#[derive(Debug, Clone)]
pub struct SpanCounts {
    all: Family<OutcomeLabels, Counter>,
    /// Spans that the collector took.
    pub exported: Counter,
    /// Spans that were dropped because the queue was full.
    pub queue_full: Counter,
    /// Spans that were dropped because the collector could not be reached or failed.
    pub failed: Counter,
    /// Spans that the collector refused.
    pub rejected: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

impl Default for SpanCounts {
    fn default() -> SpanCounts {
        let all: Family<OutcomeLabels, Counter> = Family::default();
        let counter = |outcome| all.get_or_create_owned(&OutcomeLabels { outcome });
        let [exported, queue_full] = ["exported", "queue-full"].map(counter);
        let [failed, rejected] = ["failed", "rejected"].map(counter);
        SpanCounts { all, exported, queue_full, failed, rejected }
    }
}

impl SpanCounts {
    /// Adds `mvp_trace_spans_total`.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Spans of traced requests, by what became of them";
        registry.register("mvp_trace_spans", help, self.all.clone());
    }
}
