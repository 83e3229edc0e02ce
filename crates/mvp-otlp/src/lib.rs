//! Sends the spans of traced requests to an OpenTelemetry collector, over OTLP with gRPC. Entry item:
//! [`Exporter`].
//!
//! It takes spans from the queue of [`mvp_proxy::trace`] and sends them in batches. Whatever the
//! collector does, requests notice nothing: the queue, a batch, the wait for a response and the
//! response have limits, and spans beyond them are dropped and counted.
//!
//! - `connect`: connections to the collector
//! - `encode`: spans as OTLP has them
//! - `trouble`: logs that the collector fails, once

mod connect;
mod encode;
#[cfg(test)]
mod tests;
mod trouble;

use std::time::Duration;

use mvp_proxy::trace::{Span, SpanCounts, Spans};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Channel;

pub use connect::{Collector, InvalidCollector, Tls};
use encode::Resource;
use proto::ExportTraceServiceResponse;
use proto::trace_service_client::TraceServiceClient;
use trouble::Trouble;

/// The generated protocol code.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
mod proto {
    tonic::include_proto!("opentelemetry.proto.collector.trace.v1");
}

/// The most spans in one batch.
const BATCH: usize = 512;
/// How long a span waits for others of its batch.
const WAIT: Duration = Duration::from_secs(1);
/// How often the queue is looked at meanwhile. Requests then never wake the exporter.
const TICK: Duration = Duration::from_millis(100);
/// How long the collector may take for one batch, the connection included.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the end of the process waits for the collector.
const FAREWELL: Duration = Duration::from_secs(2);
/// The largest response that is read: it has no more than a number and a sentence.
const MAX_RESPONSE: usize = 64 << 10;

/// Sends spans to a collector.
#[derive(Debug)]
pub struct Exporter {
    spans: Mutex<Spans>,
    counts: SpanCounts,
    collector: Collector,
    resource: Resource,
    trouble: Trouble,
}

impl Exporter {
    /// An exporter of these spans. `resource` describes this process, by OpenTelemetry's names, such as
    /// `service.name`. It connects when the first span is there.
    pub fn new(spans: Spans, collector: Collector, resource: &[(&str, &str)]) -> Exporter {
        Exporter {
            counts: spans.counts().clone(),
            spans: Mutex::new(spans),
            resource: Resource::new(resource),
            trouble: Trouble::of(collector.to_string()),
            collector,
        }
    }

    /// Exports spans until `stop`, then those that still wait, for a bounded time. One call runs at a
    /// time; it can be called again after a panic.
    pub async fn run(&self, stop: CancellationToken) {
        let farewell = async {
            stop.cancelled().await;
            sleep(FAREWELL).await;
        };
        tokio::select! {
            () = self.export_all(&stop) => {}
            () = farewell => {}
        }
    }

    async fn export_all(&self, stop: &CancellationToken) {
        let mut spans = self.spans.lock().await;
        let client = TraceServiceClient::new(self.collector.channel());
        let client = client.max_decoding_message_size(MAX_RESPONSE);
        while let Some(Some(first)) = stop.run_until_cancelled(spans.next()).await {
            let mut batch = vec![first];
            let deadline = Instant::now() + WAIT;
            let gathered = async {
                while !fill(&mut batch, &mut spans) && Instant::now() < deadline {
                    sleep(TICK).await;
                }
            };
            stop.run_until_cancelled(gathered).await;
            self.export(client.clone(), batch).await;
        }
        loop {
            let mut batch = Vec::new();
            fill(&mut batch, &mut spans);
            if batch.is_empty() {
                return;
            }
            self.export(client.clone(), batch).await;
        }
    }

    /// Sends one batch, and counts what became of it.
    async fn export(&self, mut client: TraceServiceClient<Channel>, batch: Vec<Span>) {
        let count = batch.len() as u64;
        let request = self.resource.request(batch);
        let sent = timeout(LIMIT, client.export(request)).await.unwrap_or_else(|_| {
            let late = format!("no response within {} s", LIMIT.as_secs());
            Err(Status::deadline_exceeded(late))
        });
        match sent {
            Ok(response) => {
                let rejected = self.rejected(response.into_inner(), count);
                self.counts.rejected.inc_by(rejected);
                self.counts.exported.inc_by(count - rejected);
            }
            Err(status) => {
                self.counts.failed.inc_by(count);
                self.trouble.failed(&status);
            }
        }
    }

    /// How many spans of a batch the collector refused.
    fn rejected(&self, response: ExportTraceServiceResponse, batch: u64) -> u64 {
        let Some(partial) = response.partial_success.filter(|p| p.rejected_spans > 0) else {
            self.trouble.ended();
            return 0;
        };
        self.trouble.rejected(&partial.error_message);
        // It may claim anything.
        u64::try_from(partial.rejected_spans).unwrap_or(0).min(batch)
    }
}

/// Moves waiting spans into a batch. Whether it is full.
fn fill(batch: &mut Vec<Span>, spans: &mut Spans) -> bool {
    while batch.len() < BATCH {
        match spans.waiting() {
            Some(span) => batch.push(span),
            None => return false,
        }
    }
    true
}
