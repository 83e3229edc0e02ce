//! The `paths` of an OpenAPI document: which kind and action each path and method has. Entry: [`of`].
//!
//! kubectl finds the kind of a resource here, and whether its patches know `fieldValidation`.

use mvp_core::Verb;
use serde_json::{Map, Value, json};

use crate::spec::{GroupSpec, ResourceSpec, ResponseKind, VersionSpec};

/// The paths of all resources of a version.
pub(super) fn of(group: &GroupSpec, version: &VersionSpec) -> Map<String, Value> {
    let root = match group.name.as_str() {
        "" => format!("/api/{}", version.version),
        group => format!("/apis/{group}/{}", version.version),
    };
    let mut paths = Map::new();
    for resource in &version.resources {
        add_resource(&mut paths, &root, &group.name, &version.version, resource);
    }
    paths
}

fn add_resource(
    paths: &mut Map<String, Value>,
    root: &str,
    group: &str,
    version: &str,
    resource: &ResourceSpec,
) {
    let place = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{root}{place}/{}", resource.plural);
    let one = format!("{collection}/{{name}}");
    let own = |kind: &str| json!({ "group": group, "kind": kind, "version": version });
    let kind = own(&resource.kind);
    let mut add = |path: &str, verb: Verb, on_collection: bool, kind: &Value| {
        let Some((method, action)) = method(verb, on_collection) else { return };
        let path = paths.entry(path).or_insert_with(|| parameters(path));
        if let Value::Object(path) = path {
            path.insert(method.to_owned(), operation(verb, action, kind));
        }
    };
    for verb in &resource.verbs {
        let on_collection = matches!(verb, Verb::Create | Verb::List | Verb::DeleteCollection);
        let path = if on_collection { &collection } else { &one };
        add(path, *verb, on_collection, &kind);
        if *verb == Verb::List && resource.namespaced {
            add(&format!("{root}/{}", resource.plural), *verb, true, &kind);
        }
    }
    for subresource in &resource.subresources {
        let kind = match &subresource.kind {
            None => kind.clone(),
            Some(ResponseKind { group, version, kind }) if !version.is_empty() => {
                json!({ "group": group, "kind": kind, "version": version })
            }
            Some(ResponseKind { kind, .. }) => own(kind),
        };
        for verb in &subresource.verbs {
            add(&format!("{one}/{}", subresource.name), *verb, false, &kind);
        }
    }
}

/// The method and the action of a verb.
fn method(verb: Verb, on_collection: bool) -> Option<(&'static str, &'static str)> {
    Some(match verb {
        Verb::Create => ("post", "post"),
        Verb::Get => ("get", "get"),
        Verb::List => ("get", "list"),
        Verb::Update => ("put", "put"),
        Verb::Patch => ("patch", "patch"),
        Verb::Delete => ("delete", "delete"),
        Verb::DeleteCollection if on_collection => ("delete", "deletecollection"),
        Verb::DeleteCollection | Verb::Watch | Verb::Proxy | Verb::Other => return None,
    })
}

fn operation(verb: Verb, action: &str, kind: &Value) -> Value {
    let names: &[&str] = match verb {
        Verb::Create | Verb::Update => &["dryRun", "fieldManager", "fieldValidation"],
        Verb::Patch => &["dryRun", "fieldManager", "fieldValidation", "force"],
        _ => &[],
    };
    let mut operation = json!({
        "responses": { "200": { "description": "OK" } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
    });
    if let Value::Object(operation) = &mut operation
        && !names.is_empty()
    {
        let parameter = |name: &&str| {
            let kind = if *name == "force" { "boolean" } else { "string" };
            json!({ "in": "query", "name": name, "schema": { "type": kind } })
        };
        let parameters: Vec<_> = names.iter().map(parameter).collect();
        operation.insert("parameters".to_owned(), parameters.into());
    }
    operation
}

/// The variable parts of a path.
fn parameters(path: &str) -> Value {
    let names = ["name", "namespace"].iter().filter(|name| path.contains(&format!("{{{name}}}")));
    let parameter = |name: &&str| json!({ "in": "path", "name": name, "required": true, "schema": { "type": "string" } });
    match names.map(parameter).collect::<Vec<_>>() {
        names if names.is_empty() => json!({}),
        names => json!({ "parameters": names }),
    }
}
