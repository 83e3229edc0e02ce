//! As many requests as a target can answer: throughput, CPU a request, memory.

use super::{LOAD, REQUESTS, Run, order, path};
use crate::plan::Plan;
use crate::targets::Bench;

pub(super) async fn run(run: &mut Run, plan: &Plan, bench: &mut Bench) -> anyhow::Result<()> {
    for case in &plan.requests {
        // Memory is that of the case, not of what came before it.
        for target in bench.targets() {
            bench.restart(target).await?;
        }
        for round in 0..plan.rounds {
            for target in bench.targets() {
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
