//! Requests for APIs that another server has: reads, writes and watches, over exactly one hop.

use anyhow::{Context, ensure};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::discovery::end;
use super::{
    Check, JOBS, Outcome, POLICIES, SETTLES, Trial, check, each, expect, job, plans, text,
};
use crate::demo::cluster::Mode;
use crate::demo::extension;

pub(super) async fn all(trial: &Trial) -> Vec<Check> {
    vec![
        check("an old server answers for a new API", new_api(trial).await),
        check("a server answers for an API that is off", off_api(trial).await),
        check("writes go through any server, once", writes(trial).await),
        check("a watch works through a peer", watch(trial).await),
        check("a missing object is 404", missing_object(trial).await),
        check("an API that no server has is 404", unserved(trial).await),
        check("the loop header is set", loop_header(trial).await),
        check("one hop, never a loop", one_hop(trial).await),
        check("an aggregated API passes untouched", extension_server(trial).await),
        check("a custom resource works everywhere at once", custom_resource(trial).await),
    ]
}

async fn new_api(trial: &Trial) -> Outcome {
    let own = trial.old()?.own();
    ensure!(own.iter().all(|name| !name.starts_with("mutatingadmissionpolicies")), "it has it");
    expect(&trial.admin.get(trial.old()?, POLICIES).await?, StatusCode::OK)?;
    Ok("mutatingadmissionpolicies of 1.36, through a 1.34 server".to_owned())
}

async fn off_api(trial: &Trial) -> Outcome {
    let own = trial.poor()?.own();
    ensure!(own.iter().all(|name| !name.starts_with("jobs.")), "it has it");
    expect(&trial.admin.get(trial.poor()?, JOBS).await?, StatusCode::OK)?;
    Ok("jobs, through a server with batch/v1=false".to_owned())
}

async fn writes(trial: &Trial) -> Outcome {
    let admin = &trial.admin;
    for server in trial.servers() {
        let name = format!("by-{}", server.plan.id);
        trial.create(server, JOBS, job(&name)).await?;
        let again = admin.send(server, Method::POST, JOBS, &[], Some(job(&name))).await?;
        expect(&again, StatusCode::CONFLICT).context("created twice")?;
        let path = format!("{JOBS}/{name}");
        let mut object = admin.get(server, &path).await?.json();
        object["metadata"]["labels"] = json!({"touched": "yes"});
        let put = admin.send(server, Method::PUT, &path, &[], Some(object)).await?;
        expect(&put, StatusCode::OK).context("update")?;
        for other in trial.servers() {
            let got = admin.get(other, &path).await?.json();
            ensure!(got["metadata"]["labels"]["touched"] == "yes", "{} has {got}", other.plan.id);
        }
    }
    let names = |list: &Value| -> Vec<String> {
        each(&list["items"]).iter().map(|item| text(&item["metadata"]["name"])).collect()
    };
    let listed = names(&admin.get(trial.poor()?, JOBS).await?.json());
    ensure!(listed == ["by-server-a", "by-server-b", "by-server-c"], "listed: {listed:?}");
    for name in listed {
        trial.delete(trial.poor()?, &format!("{JOBS}/{name}")).await?;
    }
    Ok("created, updated, listed and deleted through each; a second create is 409".to_owned())
}

async fn watch(trial: &Trial) -> Outcome {
    let path = format!("{JOBS}?watch=1");
    let poor = trial.poor()?;
    let mut events = trial.admin.open(poor, Method::GET, &path, &[], None).await?;
    ensure!(events.status() == StatusCode::OK, "watch: {}", events.status());
    trial.create(trial.newest()?, JOBS, job("watched")).await?;
    trial.delete(trial.old()?, &format!("{JOBS}/watched")).await?;
    let mut text = Vec::new();
    let mut kinds = Vec::new();
    let read = async {
        while kinds.last().is_none_or(|kind| kind != "DELETED") {
            let frame = events.body_mut().frame().await.context("the watch ended")??;
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            kinds = event_types(&text);
        }
        anyhow::Ok(())
    };
    timeout(SETTLES, read).await.context("no events in time")??;
    ensure!(kinds.first().is_some_and(|kind| kind == "ADDED"), "events {kinds:?}");
    Ok("ADDED and DELETED, as they happened".to_owned())
}

/// The types of all complete events.
fn event_types(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|event| super::text(&event["type"]))
        .collect()
}

async fn missing_object(trial: &Trial) -> Outcome {
    let answer = trial.admin.get(trial.poor()?, &format!("{JOBS}/nope")).await?;
    expect(&answer, StatusCode::NOT_FOUND)?;
    let message = answer.message();
    ensure!(!answer.is_unrouted() && message.contains("nope"), "{message:?}");
    Ok(message)
}

async fn unserved(trial: &Trial) -> Outcome {
    for server in trial.servers() {
        let answer = trial.admin.get(server, "/apis/example.com/v1/things").await?;
        expect(&answer, StatusCode::NOT_FOUND)?;
        ensure!(answer.is_unrouted(), "{}: {}", server.plan.id, answer.message());
    }
    Ok("the server's own 404, after every member confirmed it".to_owned())
}

/// A peer takes a request as a peer's only with the header, and with a front proxy's certificate.
async fn loop_header(trial: &Trial) -> Outcome {
    let path = format!("{POLICIES}/seen-by-a-peer");
    trial.admin.get(trial.old()?, &path).await?;
    let new = trial.newest()?.arrivals(&path);
    ensure!(new == [true], "arrivals at the peer, and whether they were marked: {new:?}");
    Ok("the peer received x-kubernetes-peer-proxied".to_owned())
}

async fn one_hop(trial: &Trial) -> Outcome {
    let claim = [("x-kubernetes-peer-proxied", "true")];
    let path = format!("{JOBS}/marked-before");
    let answer = trial.admin.send(trial.poor()?, Method::GET, &path, &claim, None).await?;
    expect(&answer, StatusCode::SERVICE_UNAVAILABLE)?;
    let status = answer.json();
    ensure!(status["kind"] == "Status" && answer.headers.contains_key("retry-after"), "{status}");
    for other in [trial.old()?, trial.newest()?] {
        ensure!(other.arrivals(&path).is_empty(), "{} was asked", other.plan.id);
    }
    Ok("a request that was proxied before: 503 with Retry-After, and no peer is asked".to_owned())
}

/// Each server establishes a custom resource in its own time. As soon as one has, all answer.
async fn custom_resource(trial: &Trial) -> Outcome {
    let cluster = trial.another(plans(), Mode::Proxied).await?;
    let (first, definitions) =
        (cluster.at(0)?, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    expect(&trial.admin.get(first, path).await?, StatusCode::NOT_FOUND)?;
    trial.create(first, definitions, definition()).await?;
    let definition = format!("{definitions}/widgets.example.com");
    super::until("the definition is established", async || {
        let object = trial.admin.get(first, &definition).await?.json();
        let conditions = each(&object["status"]["conditions"]);
        Ok(conditions.iter().any(|held| held["type"] == "Established" && held["status"] == "True"))
    })
    .await?;
    for server in &cluster.servers {
        let id = server.plan.id;
        let object = json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": format!("by-{id}")}, "spec": {"size": 1}});
        trial.create(server, path, object).await?;
        expect(&trial.admin.get(server, path).await?, StatusCode::OK).context(id)?;
    }
    end(cluster).await?;
    Ok("created and listed through each server as soon as one has established it".to_owned())
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                }}},
            }],
        },
    })
}

async fn extension_server(trial: &Trial) -> Outcome {
    for server in trial.servers() {
        let id = server.plan.id;
        let list = trial.admin.get(server, extension::READINGS).await?;
        expect(&list, StatusCode::OK).context(id)?;
        ensure!(list.json()["items"][0]["value"] == 42, "{id}: {}", list.json());
        let path = format!("{}/none", extension::READINGS);
        // The members learn of the APIService within a second or two.
        super::until("the extension server's 404", async || {
            let answer = trial.admin.get(server, &path).await?;
            Ok(answer.status == StatusCode::NOT_FOUND && answer.body == extension::NOTHING)
        })
        .await
        .context(id)?;
    }
    Ok("200 and 404 in the extension server's own words, through each server".to_owned())
}
