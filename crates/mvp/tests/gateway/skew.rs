//! `mvp skew` with the members that a gateway knows.

use std::process::Output;

use serde_json::{Value, json};

use crate::cluster::beside_bare_peer;
use crate::support::eventually;
use crate::support::process::Gateway;

fn skew(gateway: &Gateway, more: &[&str]) -> Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_mvp"))
        .args(["skew", &format!("--admin-address={}", gateway.admin)])
        .args(more)
        .output()
        .unwrap()
}

#[tokio::test]
async fn the_members_of_a_gateway_are_compared() {
    let (b, peer) = beside_bare_peer().await;
    let found = skew(&b.gateway, &["-o", "json"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    let name = |api: &Value| api["resource"].as_str().unwrap().to_owned();
    let names: Vec<String> = found["apis"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(names, ["bulks", "widgets", "gears"], "{found}");
    assert_eq!(found["apis"][1]["servers"]["b"], Value::Null);
    assert!(found["apis"][1]["servers"]["a"].as_array().unwrap().contains(&json!("watch")));

    let lost = skew(&b.gateway, &["--without", "a", "-o", "json"]);
    assert_eq!(lost.status.code(), Some(3), "{lost:?}");
    let lost: Value = serde_json::from_slice(&lost.stdout).unwrap();
    let widgets = &lost["without"]["lost"][1];
    assert_eq!((&widgets["resource"], &widgets["objects"]), (&json!("widgets"), &Value::Null));
    assert_eq!(widgets["objectsUnknown"], "a gateway may not read objects; ask with --kubeconfig");

    // What it served is still known, and that it does not answer is told.
    drop(peer);
    let silent = eventually("the peer does not answer", async || {
        let found = skew(&b.gateway, &[]);
        let text = String::from_utf8(found.stdout).unwrap();
        match text.contains("\na: no answer: silent for ") {
            true => Ok((found.status.code(), text)),
            false => Err(text),
        }
    })
    .await;
    assert_eq!(silent.0, Some(1), "{}", silent.1);
    assert!(silent.1.contains("widgets"), "{}", silent.1);
}
