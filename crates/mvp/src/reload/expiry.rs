//! When certificates expire: a metric always, and a warning a day before. Entry: [`Expiry`].

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::certificates;
use super::report::{FlagLabels, ReloadMetrics};
use crate::config::pem::unix_seconds;
use crate::config::{CertificateFile, ServeConfig};

/// Whoever renews certificates should have done so by now.
const NEAR: Duration = Duration::from_hours(24);

/// How it stands with the time of a certificate; the greater, the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Validity {
    Expired,
    NotYet,
    Near,
    Good,
}

/// What was said of each file.
pub(super) struct Expiry {
    metrics: ReloadMetrics,
    told: BTreeMap<&'static str, Validity>,
}

impl Expiry {
    /// The check of the configuration has told of those that are not valid.
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

    /// Keeps the metric true, and says what came to be.
    pub(super) fn observe(&mut self, config: &ServeConfig, now: SystemTime) {
        for file in certificates(config) {
            let Some(first) = file.validities().map(|(_, until)| until).min() else { continue };
            self.metrics.expiration.get_or_create(&FlagLabels { flag: file.key }).set(first);
            let validity = of(file, now);
            if self.told.insert(file.key, validity).unwrap_or(Validity::Good) == validity {
                continue;
            }
            let (flag, shown) = (file.key, file.path.display());
            match validity {
                Validity::Expired => tracing::warn!(flag, "{shown} has expired; renew it"),
                Validity::NotYet => {
                    tracing::warn!(flag, "{shown} is not valid yet; is the clock right?")
                }
                Validity::Near => tracing::warn!(flag, "{shown} expires within a day; renew it"),
                Validity::Good => tracing::info!(flag, "{shown} is valid for longer than a day"),
            }
        }
    }
}

/// A chain is as good as its first certificate; a bundle, which may well keep an old CA beside the
/// new one, as its best.
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
