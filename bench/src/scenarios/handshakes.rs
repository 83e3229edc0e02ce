//! New TLS connections, with a client certificate, each for one request: full and resumed.

use super::{HANDSHAKES, LOAD, Run, order, path};
use crate::load::{Kind, Protocol};
use crate::plan::Plan;
use crate::targets::Bench;

pub(crate) const FULL: &str = "full handshake";
pub(crate) const RESUMED: &str = "resumed";

pub(super) async fn run(run: &mut Run, plan: &Plan, bench: &Bench) {
    for (case, resumed) in [(FULL, false), (RESUMED, true)] {
        for round in 0..plan.rounds {
            for target in plan.compared(bench.targets(), round) {
                let mut order = order(plan, bench, target, path(target, 100));
                (order.protocol, order.connections) = (Protocol::Http1, 16);
                order.kind = Kind::Handshakes { resumed };
                let outcome = order.carry_out(LOAD).await;
                run.note(HANDSHAKES, case, target.name(), round, outcome);
            }
        }
    }
}
