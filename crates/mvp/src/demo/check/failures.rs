//! Servers that end: 503, failover, and an upgrade under load.

use std::time::Duration;

use anyhow::{Context, ensure};
use http::StatusCode;

use super::discovery::end;
use super::{Check, JOBS, Outcome, POLICIES, Trial, check, expect, plans, until};
use crate::demo::cluster::Mode;
use crate::demo::load;
use crate::demo::story::{self, Teller};

pub(super) async fn all(trial: &Trial) -> Vec<Check> {
    vec![
        check("503 when the only peer is down", peer_down(trial).await),
        check("failover to another peer", failover(trial).await),
        check("a rolling upgrade has no false 404", upgrade(trial).await),
    ]
}

async fn peer_down(trial: &Trial) -> Outcome {
    let mut cluster = trial.another(plans(), Mode::Proxied).await?;
    expect(&trial.admin.get(cluster.at(0)?, POLICIES).await?, StatusCode::OK)?;
    let plan = cluster.at(2)?.plan.clone();
    cluster.end(2).await?;
    let answer = trial.admin.get(cluster.at(0)?, POLICIES).await?;
    expect(&answer, StatusCode::SERVICE_UNAVAILABLE)?;
    ensure!(answer.headers.contains_key("retry-after"), "no Retry-After");
    cluster.restart(2, plan, |_| ()).await?;
    let server = cluster.at(0)?;
    until("the peer is used again", async || {
        Ok(trial.admin.get(server, POLICIES).await?.status == StatusCode::OK)
    })
    .await?;
    end(cluster).await?;
    Ok("503 with Retry-After, and 200 again once the peer is back".to_owned())
}

async fn failover(trial: &Trial) -> Outcome {
    let mut cluster = trial.another(plans(), Mode::Proxied).await?;
    expect(&trial.admin.get(cluster.at(1)?, JOBS).await?, StatusCode::OK)?;
    let mut answers = 0;
    for place in [0, 2] {
        let plan = cluster.at(place)?.plan.clone();
        cluster.end(place).await?;
        for _ in 0..10 {
            let answer = trial.admin.get(cluster.at(1)?, JOBS).await?;
            expect(&answer, StatusCode::OK).with_context(|| format!("without {}", plan.id))?;
            answers += 1;
        }
        cluster.restart(place, plan, |_| ()).await?;
    }
    end(cluster).await?;
    Ok(format!("{answers} of {answers} reads, with either of two peers down"))
}

async fn upgrade(trial: &Trial) -> Outcome {
    let phase = Duration::from_millis(500);
    let (certificates, silent) = (&trial.certificates, Teller::silent());
    let without = story::upgrade(certificates, Mode::Alone, phase, &silent, &trial.stop).await?;
    let without = load::sum(&without.seconds);
    // Otherwise the load shows nothing.
    ensure!(without.false_404 > 0, "even without the layer there is no false 404");
    let with = story::upgrade(certificates, Mode::Proxied, phase, &silent, &trial.stop).await?;
    let with = load::sum(&with.seconds);
    ensure!(with.answered > 0, "no answers");
    ensure!(with.false_404 == 0, "{} false 404s of {}", with.false_404, with.answered);
    ensure!(with.failed == 0, "{} failures of {}", with.failed, with.answered);
    let (answered, before) = (with.answered, without.false_404);
    Ok(format!("0 of {answered} answers, from 1.34 to 1.36; without the layer {before}"))
}
