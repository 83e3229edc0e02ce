//! Sequences of applies and updates against the results of Kubernetes' own packages, which
//! `tools/patch-oracle` records.

use serde_json::{Value, json};

use super::*;

const APPLIES: &str = include_str!("../../tests/fixtures/patches/applies.jsonl");
const SCHEMAS: &str = include_str!("../../tests/fixtures/patches/schemas.json");

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn write<'a>(schema: Option<Schema<'a>>, manager: &'a str, api_version: &'a str) -> Write<'a> {
    let now = "2026-01-01T00:00:00Z";
    Write { manager, api_version, subresource: "", only: "", separate: &[], schema, now }
}

/// The managers as the fixtures have them.
fn managed_of(object: &mut Value) -> Value {
    let managed = take_managed(object).unwrap_or(json!([]));
    let mut managed: Vec<Value> = managed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            json!({
                "manager": entry["manager"],
                "operation": entry["operation"],
                "timed": entry.get("time").is_some(),
                "fields": entry["fieldsV1"],
            })
        })
        .collect();
    managed.sort_by_key(|entry| format!("{}{}", entry["operation"], entry["manager"]));
    if managed.is_empty() { Value::Null } else { Value::Array(managed) }
}

#[test]
fn applies_and_updates_have_the_results_of_kubernetes() {
    let schemas = parse(SCHEMAS);
    let (mut sequences, mut steps) = (0, 0);
    for sequence in APPLIES.lines().map(parse) {
        let (name, kind) = (&sequence["name"], sequence["kind"].as_str().unwrap());
        let component = match kind {
            "Deployment" => "io.k8s.api.apps.v1.Deployment".to_owned(),
            kind => format!("io.k8s.api.core.v1.{kind}"),
        };
        let schema = Schema::component(&schemas, &component);
        assert_eq!(schema.is_none(), kind == "Widget");
        let first = &sequence["steps"][0]["sent"];
        let mut live = type_meta_of(first);
        for (place, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
            let context = format!("{name} step {place}");
            let api_version = first["apiVersion"].as_str().unwrap();
            let write = write(schema, step["manager"].as_str().unwrap(), api_version);
            let sent = &step["sent"];
            let result = match step["operation"].as_str().unwrap() {
                "apply" => apply(write, &live, sent, step["force"] == true),
                _ => {
                    let mut new = sent.clone();
                    record(write, Some(&live), &mut new);
                    Ok(new)
                }
            };
            match (result, step["error"].as_str()) {
                (Ok(new), None) => {
                    live = new.clone();
                    let mut object = new;
                    assert_eq!(managed_of(&mut object), step["managed"], "{context}: managers");
                    assert_eq!(object, step["live"], "{context}: object");
                }
                (Err(Refusal::Conflicts(message, causes)), Some(error)) => {
                    let mut causes: Vec<_> = causes
                        .iter()
                        .map(|(manager, path)| format!("conflict with {manager}: {path}"))
                        .collect();
                    causes.sort();
                    assert_eq!(json!(causes), step["causes"], "{context}");
                    assert_eq!(message, error, "{context}");
                }
                (Err(Refusal::Malformed(message)), Some(error)) => {
                    assert_eq!(message, error, "{context}");
                }
                (result, error) => panic!("{context}: {result:?}, expected {error:?}"),
            }
            steps += 1;
        }
        sequences += 1;
    }
    assert!(sequences >= 20 && steps >= 60, "{sequences} sequences, {steps} steps");
}
