//! How many connections do not go through this gateway, although it steers. Entry: [`Unsteered`].
//!
//! Steering concerns new connections. Those from before, and those that reached the server while this
//! process could not serve, stay with the server until they end or `mvp adopt` ends them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mvp_steer::connections::{self, ConnectionError, Place, Survey};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

/// The time between two counts.
const INTERVAL: Duration = Duration::from_secs(5);

/// The last count. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unsteered(Arc<Mutex<Option<Counted>>>);

/// Connections that are not steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Of clients.
    pub(crate) clients: u64,
    /// Of clients on this host, or the server's own.
    pub(crate) unclear: u64,
}

impl Unsteered {
    /// The last count; none before the first, and while they cannot be counted.
    pub(crate) fn last(&self) -> Option<Counted> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts again and again, on a thread for blocking work.
    pub(crate) async fn watch(self, place: Place) {
        let mut failed = false;
        loop {
            let counted = tokio::task::spawn_blocking(move || connections::survey(place)).await;
            // A panic is counted by the supervisor.
            let Ok(counted) = counted else { return };
            self.store(counted, &mut failed);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn store(&self, counted: Result<Survey, ConnectionError>, failed: &mut bool) {
        let counted = match counted {
            Ok(survey) => Some(Counted::from(&survey)),
            Err(error) => {
                if !*failed {
                    tracing::warn!(error = %error, "cannot count unsteered connections");
                }
                None
            }
        };
        if *failed && counted.is_some() {
            tracing::info!("unsteered connections can be counted again");
        }
        *failed = counted.is_none();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counted;
    }
}

impl From<&Survey> for Counted {
    fn from(survey: &Survey) -> Counted {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        Counted { clients: count(survey.unsteered.len()), unclear: count(survey.unclear.len()) }
    }
}

impl Collector for Unsteered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(counted) = self.last() else { return Ok(()) };
        let help = "Client connections to the API port that are not steered to this process";
        let gauge = ConstGauge::new(i64::try_from(counted.clients).unwrap_or(i64::MAX));
        let name = "mvp_unsteered_connections";
        let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn text(unsteered: &Unsteered) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(unsteered.clone()));
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn the_metric_is_there_while_connections_can_be_counted() {
        let (unsteered, mut failed) = (Unsteered::default(), false);
        assert!(!text(&unsteered).contains("mvp_unsteered_connections"));
        unsteered.store(Ok(Survey::default()), &mut failed);
        assert!(text(&unsteered).contains("\nmvp_unsteered_connections 0\n"));
        unsteered.store(Err(ConnectionError::NoOptions), &mut failed);
        assert!(failed);
        assert!(!text(&unsteered).contains("mvp_unsteered_connections"));
        unsteered.store(Ok(Survey::default()), &mut failed);
        assert_eq!(unsteered.last(), Some(Counted { clients: 0, unclear: 0 }));
    }

    #[tokio::test]
    async fn connections_are_counted_without_rights() {
        let unsteered = Unsteered::default();
        let watch = tokio::spawn(unsteered.clone().watch(Place { port: 1, address: None }));
        let counted = async {
            while unsteered.last().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), counted).await.unwrap();
        assert_eq!(unsteered.last(), Some(Counted { clients: 0, unclear: 0 }));
        watch.abort();
    }
}
