//! Client certificates that no CA of ours issued: the log names them, each once. Entry item:
//! [`Untrusted::report`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mvp_net::{CertificateNames, ConnectionInfo};

/// The most certificates of peers, and of clients, that are reported in a [`PERIOD`]: anybody can
/// present one.
const MAX_REPORTED: usize = 32;
/// How long a report is not repeated.
const PERIOD: Duration = Duration::from_secs(3600);

/// The reported certificates. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Untrusted(Arc<Mutex<Reported>>);

#[derive(Debug, Default)]
struct Reported {
    since: Option<Instant>,
    /// Issuer, subject, and whether a peer presented it.
    names: BTreeSet<(String, String, bool)>,
}

impl Untrusted {
    /// Reports the certificate of a connection. `is_peer` is true for requests that claim to come
    /// from a peer.
    pub(super) fn report(&self, connection: &ConnectionInfo, is_peer: bool) {
        let Some(names) = self.news(connection, is_peer, Instant::now()) else { return };
        let CertificateNames { subject, issuer } = names;
        let client = tracing::field::display(connection.remote());
        if is_peer {
            tracing::warn!(
                client,
                subject,
                issuer,
                flag = "--requestheader-client-ca-file",
                hint = "a peer presents it (x-kubernetes-peer-proxied); no CA of this flag signed it, its \
                        name is not in --requestheader-allowed-names, or it is not valid now",
                "untrusted client certificate"
            );
        } else {
            tracing::info!(
                client,
                subject,
                issuer,
                flag = "--client-ca-file",
                hint = "no CA of --client-ca-file or --requestheader-client-ca-file signed it, it is \
                        not valid now, or it has no common name",
                "untrusted client certificate"
            );
        }
    }

    /// The names of the certificate, if they were not reported lately.
    fn news(
        &self,
        connection: &ConnectionInfo,
        is_peer: bool,
        now: Instant,
    ) -> Option<CertificateNames> {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.since.is_none_or(|since| now.duration_since(since) >= PERIOD) {
            *reported = Reported { since: Some(now), names: BTreeSet::new() };
        }
        // Those of clients must not hide those of peers.
        if reported.names.iter().filter(|(.., peer)| *peer == is_peer).count() >= MAX_REPORTED {
            return None;
        }
        let names = CertificateNames::of(connection.certificates().first()?)?;
        let CertificateNames { subject, issuer } = &names;
        reported.names.insert((issuer.clone(), subject.clone(), is_peer)).then_some(names)
    }

    /// How many certificates of peers, and of clients, were reported.
    #[cfg(test)]
    pub(super) fn reported(&self) -> (usize, usize) {
        let reported = self.0.lock().unwrap();
        let of_peers = reported.names.iter().filter(|(.., is_peer)| *is_peer).count();
        (of_peers, reported.names.len() - of_peers)
    }
}

#[cfg(test)]
mod tests {
    use mvp_net::Judgement;
    use testkit::certificates::{Ca, cn};

    use super::*;

    #[test]
    fn each_certificate_is_reported_once_in_a_period_and_few_at_all() {
        let ca = Ca::new("unknown");
        let connection = |name: &str| {
            let remote = ([127, 0, 0, 1], 1).into();
            ConnectionInfo::new(remote, ca.client(&[cn(name)]).chain(), Judgement::default())
        };
        let (untrusted, now) = (Untrusted::default(), Instant::now());
        let first = connection("proxy");
        let names = untrusted.news(&first, true, now).unwrap();
        assert_eq!((&*names.subject, &*names.issuer), ("CN=proxy", "CN=unknown"));
        assert_eq!(untrusted.clone().news(&connection("proxy"), true, now), None, "another leaf");
        assert!(untrusted.news(&first, false, now).is_some(), "a client has it, too");
        let flood = (0..100).filter(|number| {
            let connection = connection(&number.to_string());
            untrusted.news(&connection, true, now).is_some()
        });
        assert_eq!(flood.count(), MAX_REPORTED - 1);
        assert!(untrusted.news(&connection("client"), false, now).is_some(), "clients are apart");
        assert!(untrusted.news(&first, true, now + PERIOD).is_some());
    }
}
