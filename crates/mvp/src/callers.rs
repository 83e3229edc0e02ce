//! The callers that a gateway recorded: for its admin endpoint, and as a metric. Entries:
//! [`described`], [`DeprecatedCallers`].

use std::fmt;
use std::sync::Arc;

use mvp_proxy::control::SnapshotReader;
use mvp_proxy::{CallersReport, Metrics};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::lifecycle::Lifecycle;

/// The callers of the last hour; `None` if they are not recorded.
pub(crate) fn described(
    metrics: &Metrics,
    reader: &SnapshotReader,
    addresses: bool,
) -> Option<CallersReport> {
    metrics.callers().map(|callers| callers.report(reader.now(), addresses))
}

/// A collector that counts the callers of deprecated APIs whenever metrics are written. The labels
/// are bounded by the number of APIs that Kubernetes ever deprecated.
#[derive(Debug)]
pub(crate) struct DeprecatedCallers {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reader: SnapshotReader,
}

impl Collector for DeprecatedCallers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(callers) = self.metrics.callers() else { return Ok(()) };
        let mut found = Vec::new();
        callers.count(self.reader.now(), |group, version, resource, count| {
            let api = Lifecycle::of(group, version, resource).filter(|api| api.is_deprecated());
            if let Some(api) = api {
                let removed = api.removed.map(|release| release.to_string()).unwrap_or_default();
                let labels = [
                    ("group", group.to_owned()),
                    ("version", version.to_owned()),
                    ("resource", resource.to_owned()),
                    ("removed_release", removed),
                ];
                found.push((labels, i64::try_from(count).unwrap_or(i64::MAX)));
            }
        });
        // A metric without samples needs no header.
        if found.is_empty() {
            return Ok(());
        }
        let help = "Distinct callers of a deprecated API in the last hour.";
        let name = "mvp_deprecated_api_callers";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, count) in &found {
            ConstGauge::new(*count).encode(metric.encode_family(labels)?)?;
        }
        Ok(())
    }
}
