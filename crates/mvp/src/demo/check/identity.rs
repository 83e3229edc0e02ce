//! Who the caller is, behind a hop: certificates, tokens and front proxies; nobody can pretend.

use anyhow::ensure;
use http::{Method, StatusCode};
use serde_json::json;

use super::{Check, JOBS, Outcome, REVIEWS, Trial, check, each, expect, job, text};
use crate::demo::client::Client;

pub(super) async fn all(trial: &Trial) -> Vec<Check> {
    vec![
        check("callers keep their identity", certificate(trial).await),
        check("a token is verified by the peer", token(trial).await),
        check("a front proxy names the user", front_proxy(trial).await),
        check("callers cannot take another identity", spoof(trial).await),
        check("the peer authorizes the caller", authorization(trial).await),
    ]
}

async fn certificate(trial: &Trial) -> Outcome {
    let (user, groups) = whoami(trial, &trial.admin, &[]).await?;
    ensure!(user == "demo-admin", "the server saw {user:?}");
    ensure!(groups.iter().any(|group| group == "system:masters"), "groups {groups:?}");
    Ok(format!("{user} of {}, as the server behind the hop sees it", groups.join(", ")))
}

async fn token(trial: &Trial) -> Outcome {
    let viewer = Client::bearer(&trial.certificates, "demo-viewer")?;
    let (user, _) = whoami(trial, &viewer, &[]).await?;
    ensure!(user == "viewer", "the server saw {user:?}");
    let stranger = Client::bearer(&trial.certificates, "demo-nobody")?;
    let answer = stranger.get(trial.poor()?, JOBS).await?;
    expect(&answer, StatusCode::UNAUTHORIZED)?;
    Ok("viewer; an unknown token is 401".to_owned())
}

async fn front_proxy(trial: &Trial) -> Outcome {
    let proxy = Client::front_proxy(&trial.certificates)?;
    let named = [
        ("x-remote-user", "alice"),
        ("x-remote-group", "people"),
        ("x-remote-group", "system:authenticated"),
    ];
    let (user, groups) = whoami(trial, &proxy, &named).await?;
    ensure!(user == "alice" && groups.iter().any(|group| group == "people"), "{user} {groups:?}");
    Ok("alice of people, named by a trusted front proxy".to_owned())
}

async fn spoof(trial: &Trial) -> Outcome {
    let pretence = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x_remote_user", "root"),
    ];
    let (user, _) = whoami(trial, &trial.admin, &pretence).await?;
    ensure!(user == "demo-admin", "demo-admin became {user:?}");
    let anonymous = Client::anonymous(&trial.certificates)?;
    let answer = anonymous.send(trial.poor()?, Method::GET, JOBS, &pretence, None).await?;
    expect(&answer, StatusCode::FORBIDDEN)?;
    let message = answer.message();
    ensure!(message.contains("system:anonymous"), "{message}");
    Ok("X-Remote-User of a client is ignored: demo-admin stays, anonymous is 403".to_owned())
}

async fn authorization(trial: &Trial) -> Outcome {
    let viewer = Client::bearer(&trial.certificates, "demo-viewer")?;
    expect(&viewer.get(trial.poor()?, JOBS).await?, StatusCode::OK)?;
    let body = Some(job("by-viewer"));
    let answer = viewer.send(trial.poor()?, Method::POST, JOBS, &[], body).await?;
    expect(&answer, StatusCode::FORBIDDEN)?;
    let there = trial.admin.get(trial.newest()?, &format!("{JOBS}/by-viewer")).await?;
    expect(&there, StatusCode::NOT_FOUND)?;
    Ok(answer.message())
}

/// The caller as a peer sees it: the asked server has no reviews.
async fn whoami(
    trial: &Trial,
    client: &Client,
    headers: &[(&str, &str)],
) -> anyhow::Result<(String, Vec<String>)> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = client.send(trial.poor()?, Method::POST, REVIEWS, headers, Some(review)).await?;
    expect(&answer, StatusCode::CREATED)?;
    let user = &answer.json()["status"]["userInfo"];
    Ok((text(&user["username"]), each(&user["groups"]).iter().map(text).collect()))
}
