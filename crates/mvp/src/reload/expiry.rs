//! Expiry of certificates: a metric, and a warning a day before. Entry: [`Expiry`].

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::certificates;
use super::report::{FlagLabels, ReloadMetrics};
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
    metrics: ReloadMetrics,
    told: BTreeMap<&'static str, Validity>,
}

impl Expiry {
    /// Starts with the invalid certificates as reported: the check of the configuration warned of them.
    pub(super) fn start(config: &ServeConfig, metrics: ReloadMetrics, now: SystemTime) -> Expiry {
        let invalid = certificates(config)
            .map(|file| (file.key, of(file, now)))
            .filter(|(_, validity)| matches!(validity, Validity::Expired | Validity::NotYet));
        let mut expiry = Expiry { metrics, told: invalid.collect() };
        expiry.observe(config, now);
        expiry
    }

    #[cfg(test)]
    pub(super) fn told(&self, key: &str) -> Option<Validity> {
        self.told.get(key).copied()
    }

    /// Updates the metric, and logs each change.
    pub(super) fn observe(&mut self, config: &ServeConfig, now: SystemTime) {
        for file in certificates(config) {
            let Some(first) = file.validities().map(|(_, until)| until).min() else { continue };
            self.metrics.expiration.get_or_create(&FlagLabels { flag: file.key }).set(first);
            let validity = of(file, now);
            if self.told.insert(file.key, validity).unwrap_or(Validity::Good) == validity {
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
    let chain = file.key.ends_with("cert-file");
    let count = if chain { 1 } else { usize::MAX };
    file.validities().take(count).map(one).max().unwrap_or(Validity::Good)
}
