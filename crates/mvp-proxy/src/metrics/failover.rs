//! Metrics of failovers, the retry budget and ejections.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{MemberLabels, register};
use crate::error::Stage;

/// Metrics of failovers, the retry budget and ejections.
#[derive(Debug)]
pub(super) struct Failover {
    failovers: Family<FailoverLabels, Counter>,
    over_budget: Counter,
    ejections: Family<MemberLabels, Counter>,
    ejected: Family<MemberLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailoverLabels {
    after: &'static str,
    outcome: &'static str,
}

impl Failover {
    pub(super) fn registered(registry: &mut Registry) -> Failover {
        Failover {
            failovers: register(
                registry,
                "mvp_failovers",
                "Requests sent to another server after a failure",
            ),
            over_budget: register(
                registry,
                "mvp_retry_budget_refusals",
                "Retries refused because the retry budget was empty",
            ),
            ejections: register(
                registry,
                "mvp_ejections",
                "Ejections of a member after failed requests",
            ),
            ejected: register(
                registry,
                "mvp_ejected",
                "Ejection state of a member: 1 while it is ejected, else 0",
            ),
        }
    }

    pub(super) fn failed_over(&self, after: Stage, answered: bool) {
        let after = if after.is_unprocessed() { "not-sent" } else { "sent" };
        let outcome = if answered { "answered" } else { "failed" };
        self.failovers.get_or_create(&FailoverLabels { after, outcome }).inc();
    }

    pub(super) fn over_budget(&self) {
        self.over_budget.inc();
    }

    pub(super) fn ejected(&self, member: &str, ejected: bool) {
        let labels = MemberLabels { member: member.to_owned() };
        if ejected {
            self.ejections.get_or_create(&labels).inc();
        }
        self.ejected.get_or_create(&labels).set(i64::from(ejected));
    }

    pub(super) fn forget(&self, labels: &MemberLabels) {
        self.ejections.remove(labels);
        self.ejected.remove(labels);
    }
}
