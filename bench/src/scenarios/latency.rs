//! Latency at a rate that leaves `mvp` and haproxy half idle.

use super::{LATENCY, LOAD, Run, order, path};
use crate::load::{Figures, Kind, Protocol};
use crate::plan::{Plan, main_case};
use crate::targets::{Bench, Target};

const WARM_UP_SECONDS: f64 = 0.2;

pub(super) async fn run(run: &mut Run, plan: &Plan, bench: &Bench) -> anyhow::Result<()> {
    let protocols: &[Protocol] =
        if plan.full { &[Protocol::Http2, Protocol::Http1] } else { &[Protocol::Http2] };
    for protocol in protocols {
        let rate = half_load(plan, bench, *protocol).await?;
        for round in 0..plan.rounds {
            for target in plan.compared(bench.targets(), round) {
                let mut order = order(plan, bench, target, path(target, 2_000));
                order.protocol = *protocol;
                // Upstream connections exist before the measurement: a proxy that must open them
                // under a fixed rate may not catch up for seconds.
                order.seconds = WARM_UP_SECONDS;
                order.carry_out(LOAD).await?;
                order.seconds = plan.latency_seconds;
                order.kind = Kind::Paced { rate };
                // Further requests wait in the load, and their wait counts. Without a limit, a
                // stall of the machine makes haproxy and nginx open thousands of connections.
                order.streams = if *protocol == Protocol::Http2 { 4 } else { 1 };
                let outcome = order.carry_out(LOAD).await.map(|mut figures: Figures| {
                    figures.insert("rate_per_second".to_owned(), rate);
                    figures
                });
                let name = main_case(*protocol).name();
                run.note(LATENCY, &name, target.name(), round, outcome);
            }
        }
    }
    Ok(())
}

/// Half of the throughput of the slower of `mvp` and haproxy, the same for all.
async fn half_load(plan: &Plan, bench: &Bench, protocol: Protocol) -> anyhow::Result<f64> {
    let mut slowest = f64::MAX;
    let compared = |target: &Target| *target != Target::Direct && !target.is_further_peer();
    for target in bench.targets().into_iter().filter(compared) {
        let mut order = order(plan, bench, target, path(target, 2_000));
        order.protocol = protocol;
        let figures = order.carry_out(LOAD).await?;
        slowest = figures.get("requests_per_second").copied().unwrap_or_default().min(slowest);
    }
    Ok((slowest / 2.0).max(100.0).round())
}
