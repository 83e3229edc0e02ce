//! Expiry of certificates: a metric, and a warning a day before. Entry: [`Expiry`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::certificates;
use super::report::{FlagLabels, ReloadMetrics};
use crate::config::listener::SNI;
use crate::config::pem::unix_seconds;
use crate::config::{CertificateFile, ServeConfig};

/// The remaining validity below which a warning is logged.
const NEAR: Duration = Duration::from_hours(24);

/// The validity of a certificate; greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Validity {
    Expired,
    NotYet,
    Near,
    Good,
}

/// The validity that was last reported for each file.
pub(super) struct Expiry {
    pub(super) metrics: ReloadMetrics,
    told: BTreeMap<(&'static str, PathBuf), Validity>,
}

impl Expiry {
    /// Starts with the invalid certificates as reported: the check of the configuration warned of them.
    pub(super) fn start(config: &ServeConfig, metrics: ReloadMetrics, now: SystemTime) -> Expiry {
        let invalid = certificates(config)
            .map(|file| ((file.key, file.path.clone()), of(file, now)))
            .filter(|(_, validity)| matches!(validity, Validity::Expired | Validity::NotYet));
        let mut expiry = Expiry { metrics, told: invalid.collect() };
        expiry.observe(config, now);
        expiry
    }

    #[cfg(test)]
    pub(super) fn told(&self, key: &str) -> Option<Validity> {
        self.told.iter().find(|((flag, _), _)| *flag == key).map(|(_, validity)| *validity)
    }

    /// Updates the metric, and logs each change.
    pub(super) fn observe(&mut self, config: &ServeConfig, now: SystemTime) {
        let mut first: BTreeMap<&'static str, i64> = BTreeMap::new();
        for file in certificates(config) {
            // A flag may name several files.
            for (_, until) in file.validities() {
                first
                    .entry(file.key)
                    .and_modify(|first| *first = until.min(*first))
                    .or_insert(until);
            }
            let validity = of(file, now);
            let told = self.told.insert((file.key, file.path.clone()), validity);
            if told.unwrap_or(Validity::Good) == validity {
                continue;
            }
            let (flag, path) = (file.key, file.path.display());
            match validity {
                Validity::Expired => tracing::warn!(flag, %path, "certificate expired; renew it"),
                Validity::NotYet => {
                    tracing::warn!(flag, %path, "certificate not valid yet; check the clock");
                }
                Validity::Near => {
                    tracing::warn!(flag, %path, "certificate expires within a day; renew it");
                }
                Validity::Good => {
                    tracing::info!(flag, %path, "certificate valid for more than a day");
                }
            }
        }
        let serving = config.serving.chain.validities().next().map_or(0, |(_, until)| until);
        self.metrics.serving_until.store(serving, Ordering::Relaxed);
        for (flag, until) in first {
            self.metrics.expiration.get_or_create(&FlagLabels { flag }).set(until);
        }
    }
}

/// The validity of a file: that of the first certificate of a chain, or the best one of a bundle,
/// which may keep an old CA next to the new one.
fn of(file: &CertificateFile, now: SystemTime) -> Validity {
    let (now, near) = (unix_seconds(now), unix_seconds(now + NEAR));
    let one = |(from, until): (i64, i64)| match () {
        () if until < now => Validity::Expired,
        () if from > now => Validity::NotYet,
        () if until < near => Validity::Near,
        () => Validity::Good,
    };
    let chain = file.key.ends_with("cert-file") || file.key == SNI;
    let count = if chain { 1 } else { usize::MAX };
    file.validities().take(count).map(one).max().unwrap_or(Validity::Good)
}
