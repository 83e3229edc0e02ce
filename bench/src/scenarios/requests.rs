//! The maximum throughput of a target, CPU per request, and memory.

use super::{LOAD, REQUESTS, Run, order, path};
use crate::plan::Plan;
use crate::targets::Bench;

pub(super) async fn run(run: &mut Run, plan: &Plan, bench: &mut Bench) -> anyhow::Result<()> {
    for case in &plan.requests {
        // A restart makes the memory that of this case alone.
        for target in bench.targets() {
            bench.restart(target).await?;
            run.without(REQUESTS, bench);
        }
        for round in 0..plan.rounds {
            for target in Plan::in_round(bench.targets(), round) {
                let mut order = order(plan, bench, target, path(target, case.bytes));
                order.protocol = case.protocol;
                (order.connections, order.streams) = (case.connections, case.streams);
                let outcome = order.carry_out(LOAD).await;
                run.note(REQUESTS, &case.name(), target.name(), round, outcome);
            }
        }
    }
    Ok(())
}
