//! The release of each member as a metric. Entry item: [`Releases`].

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use mvp_core::Snapshot;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::register;

/// One series for each member whose release is known.
#[derive(Debug)]
pub(super) struct Releases {
    info: Family<ReleaseLabels, Gauge>,
    /// The series that exists for a member: a new release replaces it.
    known: Mutex<HashMap<String, ReleaseLabels>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReleaseLabels {
    member: String,
    release: String,
}

impl Releases {
    pub(super) fn registered(registry: &mut Registry) -> Releases {
        let help = "Release of a member, as its /version shows it; always 1";
        Releases {
            info: register(registry, "mvp_member_release_info", help),
            known: Mutex::default(),
        }
    }

    pub(super) fn observe(&self, snapshot: &Snapshot) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for member in snapshot.members() {
            let Some(release) = member.view.release else { continue };
            self.set(&mut known, &member.id, release.to_string());
        }
    }

    fn set(&self, known: &mut HashMap<String, ReleaseLabels>, member: &str, release: String) {
        if known.get(member).is_some_and(|labels| labels.release == release) {
            return;
        }
        let labels = ReleaseLabels { member: member.to_owned(), release };
        // The new series comes first: a scrape never finds a member without a release.
        self.info.get_or_create(&labels).set(1);
        if let Some(before) = known.insert(member.to_owned(), labels) {
            self.info.remove(&before);
        }
    }

    pub(super) fn forget(&self, member: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(labels) = known.remove(member) {
            self.info.remove(&labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_member_has_one_release_until_it_is_forgotten() {
        let mut registry = Registry::default();
        let releases = Releases::registered(&mut registry);
        let series = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let mut lines: Vec<String> =
                text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let line = |member, release| {
            format!("mvp_member_release_info{{member=\"{member}\",release=\"{release}\"}} 1")
        };
        let set = |member, release: &str| {
            releases.set(&mut releases.known.lock().unwrap(), member, release.to_owned());
        };
        set("a", "1.34");
        set("b", "1.34");
        set("a", "1.34");
        assert_eq!(series(), [line("a", "1.34"), line("b", "1.34")]);
        set("a", "1.36");
        assert_eq!(series(), [line("a", "1.36"), line("b", "1.34")]);
        releases.forget("a");
        assert_eq!(series(), [line("b", "1.34")]);
    }
}
