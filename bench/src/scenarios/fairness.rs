//! Whether one user with very many requests to a member slows another one down, who asks the same
//! member at a low rate. The server takes its time, so that the requests are in flight together.

use std::path::Path;

use futures_util::future::try_join;

use super::{FAIRNESS, LOAD, Run, order};
use crate::backend::slow_path;
use crate::load::{Figures, Kind, Order};
use crate::pki::{ALICE, BOB};
use crate::plan::Plan;
use crate::targets::{Bench, Programs, Target};

pub(crate) const CASE: &str = "50 requests/s of a user, at a server that takes 200 ms for each";
pub(crate) const ALONE: &str = "alone";
pub(crate) const BESIDE: &str = "beside 10,000 requests of another user";

const SERVER_MILLISECONDS: u64 = 200;
const RATE: f64 = 50.0;
/// The requests of the other user, which are sent at once. Each answer is followed by the next request;
/// a refusal is not.
const CONNECTIONS: usize = 100;
const STREAMS: usize = 100;
/// The time until the other user's requests are all sent or refused.
const WARM_UP_SECONDS: f64 = 2.0;

pub(super) async fn run(
    run: &mut Run,
    plan: &Plan,
    programs: &Programs,
    folder: &Path,
) -> anyhow::Result<()> {
    let targets = [Target::MvpPeer];
    let bench = &Bench::start(programs, &folder.join(FAIRNESS), 0, &targets).await?;
    for round in 0..plan.rounds {
        let alone = of_bob(plan, bench).carry_out(LOAD).await;
        run.note(FAIRNESS, CASE, ALONE, round, alone);
        run.note(FAIRNESS, CASE, BESIDE, round, beside(plan, bench).await);
    }
    Ok(())
}

/// The user who asks at a low rate.
fn of_bob(plan: &Plan, bench: &Bench) -> Order {
    Order {
        user: BOB.to_owned(),
        connections: 4,
        streams: 100,
        warm_up_seconds: WARM_UP_SECONDS,
        seconds: plan.fairness_seconds,
        kind: Kind::Paced { rate: RATE },
        ..order(plan, bench, Target::MvpPeer, slow_path(SERVER_MILLISECONDS))
    }
}

async fn beside(plan: &Plan, bench: &Bench) -> anyhow::Result<Figures> {
    let bob = of_bob(plan, bench);
    let alice = Order {
        user: ALICE.to_owned(),
        connections: CONNECTIONS,
        streams: STREAMS,
        warm_up_seconds: 0.0,
        seconds: bob.warm_up_seconds + bob.seconds + 1.0,
        kind: Kind::Closed,
        ..bob.clone()
    };
    let (mut figures, of_alice) = try_join(bob.carry_out(LOAD), alice.carry_out(LOAD)).await?;
    for (name, of) in [("other_requests", "requests"), ("other_refusals", "failures")] {
        let value = of_alice.get(of).copied().unwrap_or_default();
        figures.insert(name.to_owned(), value);
    }
    Ok(figures)
}
