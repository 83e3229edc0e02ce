//! Watches through each proxy: memory of idle ones, CPU and delay of events.

use super::{LOAD, Run, WATCHES, order};
use crate::backend::WATCH_PATH;
use crate::load::Kind;
use crate::plan::Plan;
use crate::targets::{Bench, Target};

/// Events per second of all watches: far below the capacity of any proxy.
const EVENTS_PER_SECOND: f64 = 4_000.0;

pub(super) async fn run(run: &mut Run, plan: &Plan, bench: &mut Bench) -> anyhow::Result<()> {
    // Memory hardly differs between rounds, and large cases take long.
    let rounds = if plan.full { plan.rounds.min(3) } else { 1 };
    for case in &plan.watches {
        for round in 0..rounds {
            // The bare forwarder does not spread watches over connections.
            let left_out = [Target::MvpLocal, Target::Bare];
            let targets = plan.compared(bench.targets(), round);
            for target in targets.into_iter().filter(|one| !left_out.contains(one)) {
                bench.restart(target).await?;
                run.without(WATCHES, bench);
                if !bench.targets().contains(&target) {
                    continue;
                }
                let mut order = order(plan, bench, target, WATCH_PATH.to_owned());
                (order.connections, order.streams) = (case.connections, case.streams);
                let server = bench.server();
                order.kind = Kind::Watches { server, events_per_second: EVENTS_PER_SECOND };
                let outcome = order.carry_out(LOAD).await;
                run.note(WATCHES, &case.name(), target.name(), round, outcome);
            }
        }
    }
    Ok(())
}
