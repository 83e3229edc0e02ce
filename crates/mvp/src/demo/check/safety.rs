//! Controllers that believe a 404: with the layer they do no harm; without it they do.

use anyhow::ensure;

use super::discovery::end;
use super::{Check, Outcome, Trial, check, plans};
use crate::demo::cluster::Mode;
use crate::demo::story::Harm;

pub(super) async fn all(trial: &Trial) -> Vec<Check> {
    let harm = harm(trial).await;
    let told = |tell: fn(Harm, Harm) -> Outcome| match &harm {
        Ok((without, with)) => tell(*without, *with),
        Err(error) => Err(anyhow::anyhow!("{error:#}")),
    };
    vec![
        check("a namespace takes its contents with it", told(namespace)),
        check("garbage collection spares live dependents", told(collection)),
    ]
}

/// What the controllers did without the layer, and with it.
async fn harm(trial: &Trial) -> anyhow::Result<(Harm, Harm)> {
    let mut plans = plans();
    // The first server has everything, the second lacks the most.
    plans.reverse();
    if let Some(poor) = plans.iter().position(|plan| !plan.off.is_empty()) {
        plans.swap(1, poor);
    }
    let alone = trial.another(plans.clone(), Mode::Alone).await?;
    let without = Harm::tempt(&trial.certificates, &alone).await?;
    end(alone).await?;
    let proxied = trial.another(plans, Mode::Proxied).await?;
    let with = Harm::tempt(&trial.certificates, &proxied).await?;
    end(proxied).await?;
    Ok((without, with))
}

fn namespace(without: Harm, with: Harm) -> Outcome {
    // Otherwise the controller shows nothing.
    ensure!(without.jobs_left == 1, "even without the layer no Job is left");
    ensure!(with.jobs_left == 0, "{} Jobs are left behind", with.jobs_left);
    Ok("its Job is deleted with it; without the layer it is left behind".to_owned())
}

fn collection(without: Harm, with: Harm) -> Outcome {
    ensure!(without.dependents_taken == 1, "even without the layer nothing is taken");
    ensure!(with.dependents_taken == 0, "the dependent of a live owner was deleted");
    Ok("it stays with its owner; without the layer it is deleted".to_owned())
}
