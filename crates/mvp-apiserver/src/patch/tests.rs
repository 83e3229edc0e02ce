//! Patches against the results of Kubernetes' own packages, which `tools/patch-oracle` records.

use serde_json::{Value, json};

use super::*;

const OBJECTS: &str = include_str!("../../tests/fixtures/patches/objects.json");
const PATCHES: &str = include_str!("../../tests/fixtures/patches/patches.jsonl");
const SCHEMAS: &str = include_str!("../../tests/fixtures/patches/schemas.json");

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn schema_of<'a>(schemas: &'a Value, object: &Value) -> Schema<'a> {
    let group = match object["apiVersion"].as_str().unwrap() {
        "v1" => "core.v1".to_owned(),
        version => version.replace('/', "."),
    };
    let name = format!("io.k8s.api.{group}.{}", object["kind"].as_str().unwrap());
    Schema::component(schemas, &name).unwrap()
}

fn execute(kind: &str, patch: &Value, object: &Value, schema: Schema<'_>) -> Result<Value, Misfit> {
    let fields = || patch.as_object().cloned().ok_or(Misfit::BadRequest("no object".to_owned()));
    let patch = match kind {
        "json" => Patch::Json(json::decode(patch.to_string().as_bytes())?),
        "merge" => Patch::Merge(fields()?),
        _ => Patch::Strategic(fields()?),
    };
    patch.apply(object.as_object().unwrap().clone(), Some(schema)).map(Value::Object)
}

#[test]
fn patches_have_the_results_of_kubernetes() {
    let (objects, schemas) = (parse(OBJECTS), parse(SCHEMAS));
    let mut count = 0;
    for case in PATCHES.lines().map(parse) {
        let (name, kind) = (case["name"].as_str().unwrap(), case["type"].as_str().unwrap());
        let object = &objects[case["object"].as_str().unwrap()];
        let actual = execute(kind, &case["patch"], object, schema_of(&schemas, object));
        let expected = match (case["code"].as_u64(), case["error"].as_str()) {
            (None, _) => Ok(case["result"].clone()),
            (Some(422), _) => Err(Misfit::Unprocessable),
            (Some(500), Some(text)) => Err(Misfit::Internal(text.to_owned())),
            (Some(400), Some(text)) if kind == "strategic" => {
                Err(Misfit::BadRequest(text.to_owned()))
            }
            // The handler decodes these patches before, with another text.
            (Some(400), _) => {
                assert!(matches!(actual, Err(Misfit::BadRequest(_))), "{name}: {actual:?}");
                count += 1;
                continue;
            }
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(actual, expected, "{name}");
        count += 1;
    }
    assert!(count >= 130, "{count} cases");
}

#[test]
fn a_json_patch_is_bounded() {
    let decode = |count: usize| {
        let operation = r#"{"op":"test","path":"/a","value":null}"#;
        json::decode(format!("[{}]", vec![operation; count].join(",")).as_bytes()).map(drop)
    };
    assert_eq!(decode(10_000), Ok(()));
    let text = "The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned();
    assert_eq!(decode(10_001), Err(Misfit::TooLarge(text)));

    let apply = |operations: Value| {
        let operations = json::decode(operations.to_string().as_bytes()).unwrap();
        json::apply(&mut json!({ "a": { "text": "x".repeat(1000) } }), &operations)
    };
    let growing = json!({ "op": "copy", "from": "/a", "path": "/a/b" });
    assert_eq!(apply(json!([growing])), Ok(()));
    assert_eq!(apply(json!(vec![growing; 100])), Err(Misfit::Unprocessable));
    let copy = json!({ "op": "copy", "from": "/a", "path": "/b" });
    assert_eq!(apply(json!(vec![copy.clone(); 3000])), Ok(()));
    assert_eq!(apply(json!(vec![copy; 3200])), Err(Misfit::Unprocessable));
    let deep = |levels: usize| json!([{ "op": "add", "path": "/a".repeat(levels), "value": {} }]);
    let deepest: Vec<Value> = (1..200)
        .flat_map(|levels| match deep(levels) {
            Value::Array(list) => list,
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(apply(Value::Array(deepest[..100].to_vec())), Ok(()));
    assert_eq!(apply(Value::Array(deepest)), Err(Misfit::Unprocessable));
}
