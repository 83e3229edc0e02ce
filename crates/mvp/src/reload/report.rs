//! Logs and metrics of reloads: each failure is logged once, not every second. Entry: [`Report`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Loaded;
use crate::config::pem::unix_seconds;

/// The metrics of reloads. A private key is counted under the flag of its certificate.
#[derive(Clone, Default)]
pub(crate) struct ReloadMetrics {
    reloads: Family<ResultLabels, Counter>,
    failing: Family<FlagLabels, Gauge>,
    pub(super) expiration: Family<FlagLabels, Gauge>,
    /// The Unix time at which the serving certificate itself expires; 0 if it is not known. Not exported.
    pub(super) serving_until: Arc<AtomicI64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    flag: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FlagLabels {
    pub(super) flag: &'static str,
}

impl ReloadMetrics {
    /// Whether the serving certificate in use has expired.
    pub(crate) fn serving_has_expired(&self, now: SystemTime) -> bool {
        let until = self.serving_until.load(Ordering::Relaxed);
        until != 0 && until < unix_seconds(now)
    }

    /// Adds the metrics to a registry.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("mvp_reload", "Reloads of changed files by result", self.reloads.clone());
        registry.register(
            "mvp_reload_failing",
            "1 while the contents of a file cannot be used and the old ones stay in use",
            self.failing.clone(),
        );
        registry.register(
            "mvp_certificate_expiration_timestamp_seconds",
            "Unix time at which the first certificate of a file in use expires",
            self.expiration.clone(),
        );
    }
}

/// The flags whose files cannot be used, with the reasons.
pub(super) struct Report {
    metrics: ReloadMetrics,
    failing: BTreeMap<&'static str, String>,
}

impl Report {
    /// A report on these flags, none of which fails.
    pub(super) fn new(metrics: ReloadMetrics, keys: &[&'static str]) -> Report {
        for flag in keys {
            for result in ["ok", "failed"] {
                metrics.reloads.get_or_create(&ResultLabels { flag, result }).inc_by(0);
            }
            metrics.failing.get_or_create(&FlagLabels { flag }).set(0);
        }
        Report { metrics, failing: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(super) fn encoded(&self) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        self.metrics.register(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    /// Whether any flag fails.
    pub(super) fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// The new contents, if any. A failure is reported.
    pub(super) fn take<T>(&mut self, key: &'static str, loaded: Loaded<T>) -> Option<T> {
        match loaded {
            Ok(Some(new)) => return Some(new),
            Ok(None) => self.unchanged(key),
            Err(mistake) => self.failed(&[key], &mistake.to_string()),
        }
        None
    }

    /// The contents of a file are those in use.
    pub(super) fn unchanged(&mut self, key: &'static str) {
        if self.failing.remove(key).is_some() {
            self.metrics.failing.get_or_create(&FlagLabels { flag: key }).set(0);
            tracing::info!(flag = key, "reload no longer fails, file unchanged");
        }
    }

    /// The new contents of files are in use.
    pub(super) fn replaced(&mut self, keys: &[&'static str]) {
        for flag in keys {
            self.failing.remove(flag);
            self.metrics.failing.get_or_create(&FlagLabels { flag }).set(0);
            self.metrics.reloads.get_or_create(&ResultLabels { flag, result: "ok" }).inc();
            tracing::info!(flag, "reloaded");
        }
    }

    /// The contents of files cannot be used, for one reason.
    pub(super) fn failed(&mut self, keys: &[&'static str], reason: &str) {
        for flag in keys {
            if self.failing.get(flag).is_some_and(|known| known == reason) {
                continue;
            }
            self.failing.insert(flag, reason.to_owned());
            self.metrics.failing.get_or_create(&FlagLabels { flag }).set(1);
            self.metrics.reloads.get_or_create(&ResultLabels { flag, result: "failed" }).inc();
            tracing::warn!(flag, reason, "not reloaded, keeping the old one");
        }
    }
}
