//! Metrics of forwarded connections and of members. Entry: [`BalanceMetrics`].

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::limit::Limit;
use super::members::{Members, Outcome};
use super::order::Health;

/// A collector that reads the counts whenever metrics are written. A member that is gone has none.
#[derive(Debug)]
pub(super) struct BalanceMetrics {
    pub(super) members: Arc<Members>,
    pub(super) limit: Arc<Limit>,
}

impl Collector for BalanceMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.members.all();
        let healthy = all.iter().filter(|member| member.health() == Health::Healthy).count();
        for (name, help, value) in [
            ("mvp_balancer_members", "Members that are known.", all.len()),
            ("mvp_balancer_healthy_members", "Members whose last probe succeeded.", healthy),
            ("mvp_client_connections", "Open client connections.", self.limit.open()),
            (
                "mvp_client_connections_limit",
                "The most client connections that may be open.",
                self.limit.total(),
            ),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, count) in [
            (
                "mvp_client_connections_refused",
                "Client connections that were refused because of a limit.",
                self.limit.refused(),
            ),
            (
                "mvp_balancer_unserved_connections",
                "Client connections that were closed because no member could be reached.",
                self.members.unserved(),
            ),
        ] {
            let count = ConstCounter::new(count);
            count.encode(encoder.encode_descriptor(name, help, None, count.metric_type())?)?;
        }
        let (name, help) = ("mvp_balancer_open_connections", "Open connections of each member.");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for member in all.iter() {
            let open = ConstGauge::new(i64::try_from(member.open()).unwrap_or(i64::MAX));
            open.encode(family.encode_family(&[("member", &*member.address)])?)?;
        }
        let (name, help) = ("mvp_balancer_connect_seconds", "Time to connect to each member.");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for member in all.iter() {
            let Some(least) = member.state().distance.least() else { continue };
            let gauge = ConstGauge::new(least.as_secs_f64());
            gauge.encode(family.encode_family(&[("member", &*member.address)])?)?;
        }
        let help = "Connections and attempts that ended, by member and outcome.";
        let name = "mvp_balancer_connections";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for member in all.iter() {
            for outcome in Outcome::ALL {
                let labels = [("member", &*member.address), ("outcome", outcome.as_str())];
                let count = ConstCounter::new(member.ended(outcome));
                count.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
