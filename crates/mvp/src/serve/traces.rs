//! The traces of a gateway: from requests to the collector. Entry: [`Traces`].

use std::sync::{Arc, Mutex, PoisonError};

use mvp_otlp::Exporter;
use mvp_proxy::trace::Tracer;
use mvp_proxy::unique;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::build_info::VERSION;
use crate::config::ServeConfig;
use crate::supervise::Supervisor;

/// The traces of a gateway with `--tracing-endpoint`.
pub(super) struct Traces {
    /// Begins the traces of requests.
    pub(super) tracer: Tracer,
    /// Taken when it starts.
    exporter: Mutex<Option<Exporter>>,
}

impl Traces {
    /// As configured, with a metric of its own; none without a collector.
    pub(super) fn new(config: &ServeConfig, registry: &mut Registry) -> Option<Traces> {
        let tracing = config.tracing.as_ref()?;
        let (tracer, spans) = Tracer::new(tracing.sampling);
        spans.counts().register(registry);
        // A load balancer has no server whose ID it could use.
        let instance = config.local.as_ref().map_or_else(unique, |local| local.id.clone());
        let resource = [
            ("service.name", "mvp"),
            ("service.version", VERSION),
            ("service.instance.id", &instance),
        ];
        let exporter = Exporter::new(spans, tracing.collector.clone(), &resource);
        Some(Traces { tracer, exporter: Mutex::new(Some(exporter)) })
    }

    /// Starts to export spans.
    pub(super) fn start(&self, supervisor: &Supervisor) -> Option<Exporting> {
        let exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (exporter, stop) = (Arc::new(exporter), CancellationToken::new());
        let stopped = stop.clone();
        let run = move || {
            let (exporter, stop) = (Arc::clone(&exporter), stopped.clone());
            async move { exporter.run(stop).await }
        };
        let task = tokio::spawn(supervisor.clone().run("traces", run));
        Some(Exporting { stop, task })
    }
}

/// A running exporter.
pub(super) struct Exporting {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporting {
    /// Exports what is left, for a bounded time.
    pub(super) async fn end(self) {
        self.stop.cancel();
        // It panics only if the task did, which is logged.
        let _ = self.task.await;
    }
}
