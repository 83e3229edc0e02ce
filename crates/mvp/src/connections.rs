//! Metrics of the client connections of all workers. Entry: [`ConnectionMetrics`].

use std::fmt;

use mvp_net::ConnectionLimit;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A collector that reads the counts of the limit whenever metrics are written.
#[derive(Debug)]
pub(crate) struct ConnectionMetrics(pub(crate) ConnectionLimit);

impl Collector for ConnectionMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let open = ConstGauge::new(i64::try_from(self.0.open()).unwrap_or(i64::MAX));
        let help = "Open client connections.";
        let metric =
            encoder.encode_descriptor("mvp_client_connections", help, None, open.metric_type())?;
        open.encode(metric)?;
        let counts = [
            (
                "mvp_client_connections_refused",
                "Client connections that were refused because of a limit.",
                self.0.refused(),
            ),
            (
                "mvp_client_connections_evicted",
                "Idle client connections that were closed to make room for new ones.",
                self.0.evicted(),
            ),
        ];
        for (name, help, count) in counts {
            let count = ConstCounter::new(count);
            let metric = encoder.encode_descriptor(name, help, None, count.metric_type())?;
            count.encode(metric)?;
        }
        Ok(())
    }
}
