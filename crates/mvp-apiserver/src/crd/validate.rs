//! Validates a definition, with the texts of Kubernetes. Entries: [`check`], [`check_update`].
//!
//! Not checked: the webhook of a conversion beyond its strategy, selectable fields, and what
//! [`structural`] leaves out.

use serde_json::{Map, Value};

use super::name::{label_fault, subdomain_fault};
use super::pattern::Patterns;
use super::structural;
use crate::field_error::FieldError;
use crate::object;
use crate::storage::Fields;

/// The errors of a new definition.
pub(super) fn check(fields: &Fields) -> Vec<FieldError> {
    let mut errors = check_content(fields);
    errors.extend(approval(fields).err());
    errors
}

fn check_content(fields: &Fields) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = spec_of(fields);
    let (group, plural) = (text(spec, "group"), text(names(spec), "plural"));
    let name = object::metadata_text(fields, "name");
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &name.into(), why));
    }
    match group {
        "" => errors.push(FieldError::required("spec.group", "")),
        group => {
            let dotless = || "should be a domain with at least one dot".to_owned();
            let fault = subdomain_fault(group).or_else(|| (!group.contains('.')).then(dotless));
            errors.extend(fault.map(|why| FieldError::invalid("spec.group", &group.into(), &why)));
        }
    }
    one_of(spec, "scope", "spec.scope", &["Cluster", "Namespaced"], &mut errors);
    let versions = list(spec, "versions");
    for (index, version) in versions.iter().enumerate() {
        check_version(version, &format!("spec.versions[{index}]"), &mut errors);
    }
    check_contents(versions, &mut errors);
    check_versions(spec, versions, &mut errors);
    check_names(names(spec), &mut errors);
    if let Some(conversion) = spec.and_then(|spec| spec.get("conversion")?.as_object()) {
        let strategies = ["None", "Webhook"];
        let field = "spec.conversion.strategy";
        one_of(Some(conversion), "strategy", field, &strategies, &mut errors);
    }
    if spec.and_then(|spec| spec.get("preserveUnknownFields")) == Some(&Value::Bool(true)) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                   spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &true.into(), why));
    }
    stored_versions(fields, versions, &mut errors);
    errors
}

/// The errors of a changed definition.
pub(super) fn check_update(fields: &Fields, old: &Fields) -> Vec<FieldError> {
    let mut errors = check_content(fields);
    // One that was there before stays, whatever it lacks.
    if approval(old).is_ok() {
        errors.extend(approval(fields).err());
    }
    let (spec, before) = (spec_of(fields), spec_of(old));
    let mut immutable = |field: &str, new: &str, old: &str| {
        if new != old {
            errors.push(FieldError::invalid(field, &new.into(), "field is immutable"));
        }
    };
    if super::condition_is_true(old, "Established") {
        immutable("spec.scope", text(spec, "scope"), text(before, "scope"));
        immutable("spec.names.kind", text(names(spec), "kind"), text(names(before), "kind"));
    }
    immutable("spec.group", text(spec, "group"), text(before, "group"));
    immutable("spec.names.plural", text(names(spec), "plural"), text(names(before), "plural"));
    errors
}

/// Where the approval of an API of the Kubernetes project is.
const APPROVED: &str = "api-approved.kubernetes.io";

/// Checks that a definition in a group of the Kubernetes project is approved, or says that it is not.
fn approval(fields: &Fields) -> Result<(), FieldError> {
    let group = text(spec_of(fields), "group");
    let belongs = |project: &str| {
        group.strip_suffix(project).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if !belongs("k8s.io") && !belongs("kubernetes.io") {
        return Ok(());
    }
    let annotations =
        object::metadata_of(fields).and_then(|all| all.get("annotations")?.as_object());
    let approval = text(annotations, APPROVED);
    let url = approval.parse::<http::Uri>();
    let is_url = url.is_ok_and(|url| url.scheme().is_some() && url.host().is_some());
    if approval.starts_with("unapproved") || is_url {
        return Ok(());
    }
    let field = format!("metadata.annotations[{APPROVED}]");
    let must = format!("protected groups must have approval annotation \"{APPROVED}\"");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    Err(match approval {
        "" => FieldError::required(field, &format!("{must}, {see}")),
        _ => {
            let why = "with either a URL or a reason starting with \"unapproved\"";
            FieldError::invalid(field, &approval.into(), &format!("{must} {why}, {see}"))
        }
    })
}

fn check_version(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let map = version.as_object();
    let name = text(map, "name");
    if let Some(why) = label_fault(name) {
        errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), &why));
    }
    if !version.pointer("/schema/openAPIV3Schema").is_some_and(Value::is_object) {
        errors.push(FieldError::required(format!("{path}.schema.openAPIV3Schema"), ""));
    }
    let deprecated = map.and_then(|map| map.get("deprecated")) == Some(&Value::Bool(true));
    if let Some(warning) = map.and_then(|map| map.get("deprecationWarning")?.as_str()) {
        let why = match warning.len() {
            _ if !deprecated => Some("can only be set for deprecated versions"),
            0 => Some("must not be an empty string"),
            257.. => Some("must be <= 256 characters long"),
            _ => None,
        };
        let field = format!("{path}.deprecationWarning");
        errors.extend(why.map(|why| FieldError::invalid(field, &warning.into(), why)));
    }
}

/// The schemas, subresources and columns of all versions. Real servers keep what all versions share in
/// one place, and their errors name that place.
fn check_contents(versions: &[Value], errors: &mut Vec<FieldError>) {
    let places = |key: &str, shared: &str| -> Vec<(String, &Value)> {
        let first = versions.first();
        let value = first.and_then(|first| first.get(key));
        match first.filter(|_| versions.iter().all(|version| version.get(key) == value)) {
            Some(first) => vec![(shared.to_owned(), first)],
            None => {
                let place = |(index, version)| (format!("spec.versions[{index}].{key}"), version);
                versions.iter().enumerate().map(place).collect()
            }
        }
    };
    let mut patterns = Patterns::default();
    for (path, version) in places("schema", "spec.validation") {
        let schema = version.pointer("/schema/openAPIV3Schema").and_then(Value::as_object);
        let path = format!("{path}.openAPIV3Schema");
        let kind = text(schema, "type");
        let has_status = version.pointer("/subresources/status").is_some();
        if has_status && !kind.is_empty() && kind != "object" {
            let why = "only \"object\" is allowed as the type at the root of the schema if the status \
                       subresource is enabled";
            errors.push(FieldError::invalid(format!("{path}.type"), &kind.into(), why));
        }
        errors.extend(
            schema.into_iter().flat_map(|schema| structural::check(schema, &path, &mut patterns)),
        );
    }
    for (path, version) in places("subresources", "spec.subresources") {
        if let Some(scale) = version.pointer("/subresources/scale") {
            check_scale(scale, &path, errors);
        }
    }
    for (path, version) in places("additionalPrinterColumns", "spec.additionalPrinterColumns") {
        let columns = list(version.as_object(), "additionalPrinterColumns").iter().enumerate();
        columns
            .for_each(|(index, column)| check_column(column, &format!("{path}[{index}]"), errors));
    }
}

fn check_scale(scale: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let rules: [(&str, &[&str], bool, &str); 3] = [
        ("specReplicasPath", &[".spec."], true, "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], true, "should be a json path under .status"),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            false,
            "should be a json path under either .spec or .status",
        ),
    ];
    for (name, roots, required, why) in rules {
        let field = format!("{path}.scale.{name}");
        match text(scale.as_object(), name) {
            "" if required => errors.push(FieldError::required(field, "")),
            "" => {}
            value if !value.starts_with('.') => {
                let why = "must be a simple json path starting with .";
                errors.push(FieldError::invalid(field, &value.into(), why));
            }
            value if !roots.iter().any(|root| value.starts_with(root)) => {
                errors.push(FieldError::invalid(field, &value.into(), why));
            }
            _ => {}
        }
    }
}

fn check_column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let column = column.as_object();
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let types = ["boolean", "date", "integer", "number", "string"];
    let why = format!("must be one of {}", types.join(","));
    match text(column, "type") {
        "" => errors.push(FieldError::required(format!("{path}.type"), &why)),
        kind if !types.contains(&kind) => {
            errors.push(FieldError::invalid(format!("{path}.type"), &kind.into(), &why));
        }
        _ => {}
    }
    let field = format!("{path}.JSONPath");
    match text(column, "jsonPath") {
        "" => errors.push(FieldError::required(field, "")),
        value if !value.starts_with('.') => {
            let why = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(field, &value.into(), why));
        }
        _ => {}
    }
}

fn check_versions(spec: Option<&Fields>, versions: &[Value], errors: &mut Vec<FieldError>) {
    let shown = spec.and_then(|spec| spec.get("versions")).unwrap_or(&Value::Null);
    let names: Vec<_> = versions.iter().map(|version| text(version.as_object(), "name")).collect();
    let unique = |(index, name): (usize, &&str)| !names.iter().take(index).any(|n| n == name);
    if !names.iter().enumerate().all(unique) {
        let why = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", shown, why));
    }
    let is = |version: &&Value, flag: &str| version.get(flag) == Some(&Value::Bool(true));
    if versions.iter().filter(|version| is(version, "storage")).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", shown, why));
    }
}

fn check_names(names: Option<&Map<String, Value>>, errors: &mut Vec<FieldError>) {
    let field = |name: &str| format!("spec.names.{name}");
    for name in ["plural", "singular", "kind", "listKind"] {
        let value = text(names, name);
        let mixed = name.ends_with("ind");
        match (value, label_fault(&value.to_lowercase())) {
            ("", _) => errors.push(FieldError::required(field(name), "")),
            (value, Some(why)) if mixed => {
                let why = format!("may have mixed case, but should otherwise match: {why}");
                errors.push(FieldError::invalid(field(name), &value.into(), &why));
            }
            (value, _) if !mixed => {
                let fault = label_fault(value);
                errors
                    .extend(fault.map(|why| FieldError::invalid(field(name), &value.into(), &why)));
            }
            _ => {}
        }
    }
    for name in ["shortNames", "categories"] {
        for (index, value) in list(names, name).iter().enumerate() {
            if let Some(why) = label_fault(value.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(format!("{}[{index}]", field(name)), value, &why));
            }
        }
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(field("listKind"), &list_kind.into(), why));
    }
}

fn stored_versions(fields: &Fields, versions: &[Value], errors: &mut Vec<FieldError>) {
    let status = fields.get("status").and_then(Value::as_object);
    if list(status, "storedVersions").is_empty() {
        let why = "must have at least one stored version";
        errors.push(FieldError::invalid("status.storedVersions", &Value::Null, why));
    }
    for (index, stored) in list(status, "storedVersions").iter().enumerate() {
        let stored = stored.as_str().unwrap_or_default();
        if !versions.iter().any(|version| text(version.as_object(), "name") == stored) {
            let why = format!(
                "missing from spec.versions; {stored} was previously a storage version, and must \
                 remain in spec.versions until a storage migration ensures no data remains \
                 persisted in {stored} and removes {stored} from status.storedVersions"
            );
            let field = format!("status.storedVersions[{index}]");
            errors.push(FieldError::invalid(field, &stored.into(), &why));
        }
    }
}

fn one_of(
    map: Option<&Fields>,
    key: &str,
    field: &str,
    known: &[&str],
    errors: &mut Vec<FieldError>,
) {
    match text(map, key) {
        "" => errors.push(FieldError::required(field, "")),
        value if !known.contains(&value) => {
            let known = known.iter().map(|value| (*value).to_owned());
            errors.push(FieldError::not_supported(field, &value.into(), known));
        }
        _ => {}
    }
}

fn spec_of(fields: &Fields) -> Option<&Fields> {
    fields.get("spec")?.as_object()
}

fn names(spec: Option<&Fields>) -> Option<&Map<String, Value>> {
    spec?.get("names")?.as_object()
}

/// A string; empty if it is absent.
pub(super) fn text<'v>(map: Option<&'v Map<String, Value>>, key: &str) -> &'v str {
    map.and_then(|map| map.get(key)?.as_str()).unwrap_or_default()
}

/// The elements of a list.
pub(super) fn list<'v>(map: Option<&'v Map<String, Value>>, key: &str) -> &'v [Value] {
    map.and_then(|map| map.get(key)?.as_array()).map_or(&[], Vec::as_slice)
}
