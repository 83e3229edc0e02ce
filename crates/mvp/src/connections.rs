//! Metrics of the client connections of all workers. Entry: [`ConnectionMetrics`].

use std::fmt;

use mvp_net::Limits;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A collector that reads the counts of the listeners whenever metrics are written.
#[derive(Debug)]
pub(crate) struct ConnectionMetrics(pub(crate) Limits);

impl Collector for ConnectionMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Limits { connections, handshakes, waits, errors, .. } = &self.0;
        let gauges = [
            ("mvp_client_connections", "Open client connections.", connections.open()),
            (
                "mvp_client_connections_limit",
                "The most client connections that may be open.",
                connections.total(),
            ),
            (
                "mvp_client_handshakes",
                "TLS handshakes with clients in progress.",
                handshakes.in_progress(),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        let counts = [
            (
                "mvp_client_connections_refused",
                "Client connections that were refused because of a limit.",
                connections.refused(),
            ),
            (
                "mvp_client_connections_evicted",
                "Idle client connections that were closed to make room for new ones.",
                connections.evicted(),
            ),
            (
                "mvp_client_connections_idle",
                "Client connections that were closed because they had no request for a while.",
                connections.idle(),
            ),
            (
                "mvp_client_handshakes_refused",
                "Client connections that were refused because of too many TLS handshakes.",
                handshakes.refused(),
            ),
            (
                "mvp_client_write_stalls",
                "Times that the connection of a client took no more data.",
                waits.stalls(),
            ),
            (
                "mvp_client_streams_full",
                "Times that a client connection came to have as many streams as it may have.",
                waits.full(),
            ),
        ];
        for (name, help, count) in counts {
            let count = ConstCounter::new(count);
            let metric = encoder.encode_descriptor(name, help, None, count.metric_type())?;
            count.encode(metric)?;
        }
        let (name, help) = (
            "mvp_client_errors",
            "Client connections that failed, and requests refused before they were routed, by reason.",
        );
        let mut family =
            encoder.encode_descriptor(name, help, None, ConstCounter::new(0u64).metric_type())?;
        for (error, count) in errors.counts() {
            let labels = [("reason", error.label())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
