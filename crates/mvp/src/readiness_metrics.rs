//! The checks of readiness as metrics, so that an alert can name the check that fails. Entry:
//! [`ReadinessMetrics`].

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::health::Probes;

/// A collector that runs the checks whenever metrics are written.
pub(crate) struct ReadinessMetrics(pub(crate) Arc<Probes>);

impl Collector for ReadinessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Checks of /readyz: 1 for a check that passes, else 0.";
        let checks = self.0.readiness();
        let kind = ConstGauge::new(0_i64).metric_type();
        let mut family = encoder.encode_descriptor("mvp_readiness", help, None, kind)?;
        for check in checks {
            let passes = ConstGauge::new(i64::from(check.problem.is_none()));
            let labels = [("check", check.name)];
            passes.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ReadinessMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadinessMetrics")
    }
}
