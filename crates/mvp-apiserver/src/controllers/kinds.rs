//! What a server says it serves, as the controllers see it. Entry: [`Kinds::discover`].

use std::collections::HashSet;

use serde_json::Value;

use super::api::{Api, Client, Problem};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The kinds that one server listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kinds(Vec<Kind>);

/// A resource in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    verbs: Vec<String>,
    /// Whether no earlier version of its group has the resource.
    preferred: bool,
}

impl Kinds {
    /// Asks a server what it serves.
    pub(super) async fn discover<C: Client>(api: &Api<C>) -> Result<Kinds, Problem> {
        let mut kinds = Vec::new();
        for root in ["/api", "/apis"] {
            let document = api.accept(root, AGGREGATED).await?;
            if text(&document, "kind") != "APIGroupDiscoveryList" {
                return Err(Problem::new(format!("{root} is no aggregated discovery")));
            }
            for group in each(&document, "items") {
                read_group(group, &mut kinds);
            }
        }
        Ok(Kinds(kinds))
    }

    /// The resources whose objects can be deleted, each once, in its preferred version.
    pub(super) fn deletable(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter().filter(|kind| kind.preferred && kind.has("delete") && kind.has("list"))
    }

    /// The resource of a kind that an owner reference names.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.0.iter().find(|known| known.api_version == api_version && known.kind == kind)
    }
}

impl Kind {
    pub(super) fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// The path of a collection. An empty namespace means all of them.
    pub(super) fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        match (self.namespaced, namespace) {
            (false, _) | (true, "") => format!("{root}/{}/{}", self.api_version, self.plural),
            (true, namespace) => {
                format!("{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
            }
        }
    }

    /// The path of an object.
    pub(super) fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

fn read_group(group: &Value, kinds: &mut Vec<Kind>) {
    let name = group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let mut seen = HashSet::new();
    for version in each(group, "versions") {
        let version_name = text(version, "version");
        let api_version = match name {
            "" => version_name.to_owned(),
            name => format!("{name}/{version_name}"),
        };
        for resource in each(version, "resources") {
            let plural = text(resource, "resource");
            let verbs = each(resource, "verbs").filter_map(Value::as_str).map(str::to_owned);
            kinds.push(Kind {
                api_version: api_version.clone(),
                kind: kind_of(resource).to_owned(),
                group: name.to_owned(),
                plural: plural.to_owned(),
                namespaced: text(resource, "scope") == "Namespaced",
                verbs: verbs.collect(),
                preferred: seen.insert(plural),
            });
        }
    }
}

fn kind_of(resource: &Value) -> &str {
    resource.pointer("/responseKind/kind").and_then(Value::as_str).unwrap_or_default()
}

fn each<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
