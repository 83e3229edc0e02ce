//! Properties of lists and watches, for any sequence of changes.

use std::collections::BTreeMap;

use http::Method;
use mvp_apiserver::ApiServer;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Lines, WIDGETS, call, get, server, version_of};

#[derive(Debug, Clone)]
enum Step {
    /// Creates a widget, or changes it.
    Put {
        name: u8,
        label: Option<bool>,
        size: u8,
    },
    Delete {
        name: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u8, any::<Option<bool>>(), 0..3_u8)
            .prop_map(|(name, label, size)| Step::Put { name, label, size }),
        1 => (0..6_u8).prop_map(|name| Step::Delete { name }),
    ]
}

async fn take(server: &ApiServer, step: &Step) {
    match step {
        Step::Put { name, label, size } => {
            let label = label.map(|label| if label { "x" } else { "y" });
            let name = format!("w{name}");
            let body = json!({
                "metadata": { "name": name, "labels": { "l": label } },
                "spec": { "size": size },
            });
            let path = format!("{WIDGETS}/{name}");
            if call(server, Method::PATCH, &path, body.clone()).await.0 == 404 {
                let mut body = body;
                if label.is_none() {
                    body["metadata"]["labels"] = json!({});
                }
                assert_eq!(call(server, Method::POST, WIDGETS, body).await.0, 201);
            }
        }
        Step::Delete { name } => {
            call(server, Method::DELETE, &format!("{WIDGETS}/w{name}"), Value::Null).await;
        }
    }
}

/// Objects by name.
type Objects = BTreeMap<String, Value>;

fn by_name(list: &Value) -> Objects {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item.clone()))
        .collect()
}

/// The objects to which the events of a watch lead. Each event must fit what was there before.
async fn follow(server: &ApiServer, start: Objects, query: &str) -> Objects {
    let path = format!("{WIDGETS}?watch=true&timeoutSeconds=1&{query}");
    let (mut watch, mut objects, mut last) = (Lines::open(server, &path).await, start, 0);
    while let Some(event) = watch.next().await {
        let object = &event["object"];
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(version_of(object) > last, "{event}");
        last = version_of(object);
        let before = match event["type"].as_str().unwrap() {
            "DELETED" => objects.remove(&name).is_some(),
            "ADDED" => objects.insert(name, object.clone()).is_none(),
            "MODIFIED" => objects.insert(name, object.clone()).is_some(),
            other => panic!("{other}"),
        };
        assert!(before, "{event}");
    }
    objects
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_watch_leads_from_any_list_to_the_current_one(
        steps in prop::collection::vec(step(), 0..25),
        middle in 0..25_usize,
    ) {
        // The clock moves only when nothing is left to do, which ends the watches.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let server = server();
            let selectors = ["", "labelSelector=l%3Dx", "labelSelector=l+notin+(x)",
                "labelSelector=!l", "fieldSelector=metadata.name!=w3"];
            let (before, after) = steps.split_at(middle.min(steps.len()));
            for step in before {
                take(&server, step).await;
            }
            let mut starts = Vec::new();
            for selector in selectors {
                starts.push(get(&server, &format!("{WIDGETS}?{selector}")).await.1);
            }
            for step in after {
                take(&server, step).await;
            }
            for (selector, start) in selectors.into_iter().zip(starts) {
                let (_, list) = get(&server, &format!("{WIDGETS}?{selector}")).await;
                let now = by_name(&list);
                // From nothing, before the first change.
                let query = format!("{selector}&resourceVersion=1");
                assert_eq!(without_type(follow(&server, Objects::new(), &query).await), without_type(now.clone()));
                // From the list in the middle.
                let query = format!("{selector}&resourceVersion={}", version_of(&start));
                let reached = follow(&server, by_name(&start), &query).await;
                assert_eq!(without_type(reached), without_type(now));
            }
        });
    }
}

/// Items of lists of some kinds lack the type that events have.
fn without_type(mut objects: Objects) -> Objects {
    for object in objects.values_mut().filter_map(Value::as_object_mut) {
        object.remove("kind");
        object.remove("apiVersion");
    }
    objects
}
