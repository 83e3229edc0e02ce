//! A definition as a server uses it. Entry: [`CustomResource::parse`].

use std::sync::Arc;

use mvp_core::Verb;
use serde_json::{Map, Value, json};

use super::column::CustomColumn;
use super::validate::{list, text};
use super::{check, shape};
use crate::field_error::FieldError;
use crate::object;
use crate::spec::{ResourceSpec, ResponseKind, SubresourceSpec};
use crate::storage::Fields;

/// A custom resource.
#[derive(Debug)]
pub(crate) struct CustomResource {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    /// Whether the definition is being deleted: nothing can be created.
    pub(crate) terminating: bool,
    /// The served versions.
    pub(crate) versions: Vec<Arc<CustomVersion>>,
    singular: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    namespaced: bool,
}

/// A served version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    pub(crate) name: String,
    pub(crate) schema: Value,
    pub(crate) columns: Arc<[CustomColumn]>,
    pub(crate) scale: Option<ScalePaths>,
    /// The warning for callers of a deprecated version.
    pub(crate) deprecation: Option<String>,
    status: bool,
}

/// Where the replicas of a custom resource are.
#[derive(Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec: Vec<String>,
    pub(crate) status: Vec<String>,
    pub(crate) selector: Vec<String>,
}

impl CustomResource {
    /// Reads a definition whose names have been accepted.
    pub(super) fn parse(fields: &Fields) -> Option<CustomResource> {
        let spec = fields.get("spec")?.as_object()?;
        let names = fields.get("status")?.get("acceptedNames")?.as_object();
        let owned = |key: &str| text(names, key).to_owned();
        let texts = |key: &str| {
            list(names, key).iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        let (group, kind) = (text(Some(spec), "group").to_owned(), owned("kind"));
        let versions = list(Some(spec), "versions").iter().filter_map(Value::as_object);
        let served = versions.filter(|version| version.get("served") == Some(&Value::Bool(true)));
        let versions = served.map(|version| CustomVersion::parse(version, &group, &kind));
        let versions = versions.map(Arc::new).collect();
        Some(CustomResource {
            plural: owned("plural"),
            list_kind: owned("listKind"),
            terminating: !object::metadata_text(fields, "deletionTimestamp").is_empty(),
            versions,
            singular: owned("singular"),
            short_names: texts("shortNames"),
            categories: texts("categories"),
            namespaced: text(Some(spec), "scope") == "Namespaced",
            group,
            kind,
        })
    }

    /// The resource as discovery has it.
    pub(super) fn spec(&self, version: &CustomVersion) -> ResourceSpec {
        let mut spec = ResourceSpec::cluster(&self.plural, &self.kind);
        spec.singular.clone_from(&self.singular);
        spec.namespaced = self.namespaced;
        spec.short_names.clone_from(&self.short_names);
        spec.categories.clone_from(&self.categories);
        if version.status {
            spec = spec.with_status();
        }
        if version.scale.is_some() {
            let kind = ResponseKind {
                group: "autoscaling".to_owned(),
                version: "v1".to_owned(),
                kind: "Scale".to_owned(),
            };
            spec.subresources.push(SubresourceSpec {
                name: "scale".to_owned(),
                verbs: vec![Verb::Get, Verb::Patch, Verb::Update],
                kind: Some(kind),
            });
        }
        spec
    }

    /// The schemas of the kind and of its list, with their names in OpenAPI documents.
    pub(super) fn components(&self, version: &CustomVersion) -> Map<String, Value> {
        let mut parts: Vec<_> = self.group.split('.').collect();
        parts.reverse();
        let base = format!("{}.{}", parts.join("."), version.name);
        let meta = |kind: &str| {
            let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
            json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }] })
        };
        let gvk =
            |kind: &str| json!([{ "group": self.group, "version": version.name, "kind": kind }]);
        let mut own = version.schema.as_object().cloned().unwrap_or_default();
        let properties = own.entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(properties) = properties {
            properties.insert("apiVersion".to_owned(), json!({ "type": "string" }));
            properties.insert("kind".to_owned(), json!({ "type": "string" }));
            properties.insert("metadata".to_owned(), meta("ObjectMeta"));
        }
        own.insert("x-kubernetes-group-version-kind".to_owned(), gvk(&self.kind));
        let items = json!({ "$ref": format!("#/components/schemas/{base}.{}", self.kind) });
        let list = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": { "type": "string" },
                "kind": { "type": "string" },
                "metadata": meta("ListMeta"),
                "items": { "type": "array", "items": items },
            },
            "x-kubernetes-group-version-kind": gvk(&self.list_kind),
        });
        let mut components = Map::new();
        components.insert(format!("{base}.{}", self.kind), own.into());
        components.insert(format!("{base}.{}", self.list_kind), list);
        components
    }
}

impl CustomVersion {
    fn parse(version: &Fields, group: &str, kind: &str) -> CustomVersion {
        let schema = version.get("schema").and_then(|schema| schema.get("openAPIV3Schema"));
        let schema = schema.cloned().unwrap_or_else(|| json!({}));
        let subresources = version.get("subresources");
        let name = text(Some(version), "name").to_owned();
        let deprecated = version.get("deprecated") == Some(&Value::Bool(true));
        let deprecation = deprecated.then(|| match text(Some(version), "deprecationWarning") {
            "" => format!("{group}/{name} {kind} is deprecated"),
            own => own.to_owned(),
        });
        let scale = subresources.and_then(|value| value.get("scale")?.as_object());
        CustomVersion {
            columns: CustomColumn::of_version(version).into(),
            scale: scale.map(|scale| ScalePaths {
                spec: steps(text(Some(scale), "specReplicasPath")),
                status: steps(text(Some(scale), "statusReplicasPath")),
                selector: steps(text(Some(scale), "labelSelectorPath")),
            }),
            deprecation,
            status: subresources.is_some_and(|value| value.get("status").is_some()),
            schema,
            name,
        }
    }

    /// Prunes unknown fields and sets defaults, as far as they fit. Returns the paths of pruned fields.
    pub(crate) fn shape(&self, fields: &mut Fields) -> (Vec<String>, Result<(), shape::TooLarge>) {
        let Value::Object(schema) = &self.schema else {
            return (Vec::new(), Ok(()));
        };
        let pruned = shape::prune(fields, schema);
        (pruned, shape::set_defaults(fields, schema))
    }

    /// The errors of an object.
    pub(crate) fn check(&self, fields: &Fields) -> Vec<FieldError> {
        match &self.schema {
            Value::Object(schema) => check::check(fields, schema),
            _ => Vec::new(),
        }
    }
}

/// The names of a path such as `.spec.replicas`.
fn steps(path: &str) -> Vec<String> {
    path.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
