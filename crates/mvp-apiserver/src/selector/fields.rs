//! Field selectors: `metadata.name=a,status.phase!=Running`. Entry: [`parse`].

use serde_json::Value;

use crate::route::Target;
use crate::status::Failure;
use crate::storage::{Fields, Object};

/// A condition on a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldTerm {
    field: String,
    value: String,
    equal: bool,
}

impl FieldTerm {
    /// Whether the object fulfils the condition.
    pub(super) fn holds(&self, object: &Object) -> bool {
        (value_of(object, &self.field) == self.value) == self.equal
    }
}

/// The fields that can be selected, besides those of the metadata.
const SELECTABLE: [(&str, &str, &[&str]); 11] = [
    (
        "",
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
            "spec.host",
        ],
    ),
    ("", "nodes", &["spec.unschedulable"]),
    ("", "replicationcontrollers", &["status.replicas"]),
    ("", "events", &EVENT_FIELDS),
    (
        "events.k8s.io",
        "events",
        &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
    ),
    ("", "namespaces", &["status.phase"]),
    ("", "secrets", &["type"]),
    ("", "services", &["spec.clusterIP", "spec.type"]),
    ("batch", "jobs", &["status.successful"]),
    ("certificates.k8s.io", "certificatesigningrequests", &["spec.signerName"]),
    ("resource.k8s.io", "resourceslices", &["spec.nodeName", "spec.driver"]),
];

const EVENT_FIELDS: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// Parses the field selector of a request.
pub(super) fn parse(target: &Target<'_>, selector: &str) -> Result<Vec<FieldTerm>, Failure> {
    let mut terms = Vec::new();
    for text in split(selector).into_iter().filter(|text| !text.is_empty()) {
        let term = parse_term(text).ok_or_else(|| {
            let message = format!("invalid selector: '{selector}'; can't understand '{text}'");
            Failure::bad_request(message)
        })?;
        check(target, &term.field)?;
        terms.push(term);
    }
    Ok(terms)
}

/// Splits a selector at its commas; a backslash takes the meaning from the next character.
fn split(selector: &str) -> Vec<&str> {
    let mut escaped = false;
    let terms = selector.split(|character: char| {
        let separates = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        separates
    });
    terms.collect()
}

fn parse_term(term: &str) -> Option<FieldTerm> {
    let at = term.find(['=', '!'])?;
    let (field, rest) = term.split_at_checked(at)?;
    let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
        (false, value)
    } else {
        (true, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?)
    };
    let mut unescaped = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => unescaped.push(characters.next().filter(|next| "\\,=".contains(*next))?),
            ',' | '=' => return None,
            other => unescaped.push(other),
        }
    }
    Some(FieldTerm { field: field.to_owned(), value: unescaped, equal })
}

/// Checks that a field of this resource can be selected.
fn check(target: &Target<'_>, field: &str) -> Result<(), Failure> {
    let (group, resource) = (target.group.name.as_str(), target.resource.plural.as_str());
    let known = SELECTABLE.iter().find(|entry| (entry.0, entry.1) == (group, resource));
    let more = known.map_or(&[][..], |(_, _, fields)| fields);
    if ["metadata.name", "metadata.namespace"].contains(&field) || more.contains(&field) {
        return Ok(());
    }
    let own = group.contains('.') && !group.ends_with(".k8s.io");
    Err(Failure::bad_request(match (known, group) {
        (Some(_), "batch") => format!("field label \"{field}\" not supported for Job"),
        (Some(_), _) => format!("field label not supported: {field}"),
        // Groups of CRDs say it in other words than those of built-in kinds.
        (None, _) if own => format!("field label not supported: {field}"),
        (None, _) => format!(
            "\"{field}\" is not a known field selector: only \"metadata.name\", \
             \"metadata.namespace\""
        ),
    }))
}

/// The value of a field as text; absent fields have the empty value of their type.
fn value_of(object: &Object, field: &str) -> String {
    let at = |path: &str| text_at(&object.fields, path);
    let or = |value: String, default: &str| {
        if value.is_empty() { default.to_owned() } else { value }
    };
    match field {
        "metadata.name" => object.key.name.clone(),
        "metadata.namespace" => object.key.namespace.clone(),
        "spec.host" => at("spec.nodeName"),
        "spec.hostNetwork" | "spec.unschedulable" => or(at(field), "false"),
        "status.replicas" => or(at(field), "0"),
        "status.successful" => or(at("status.succeeded"), "0"),
        "reportingComponent" | "reportingController" => {
            or(at("reportingComponent"), &at("reportingController"))
        }
        "source" => or(at("source.component"), &at("reportingComponent")),
        // Both versions of events are stored as they were sent.
        _ if field.starts_with("involvedObject.") => {
            or(at(field), &at(&field.replace("involvedObject.", "regarding.")))
        }
        _ if field.starts_with("regarding.") => {
            or(at(field), &at(&field.replace("regarding.", "involvedObject.")))
        }
        _ => at(field),
    }
}

fn text_at(fields: &Fields, path: &str) -> String {
    let mut steps = path.split('.');
    let first = steps.next().and_then(|step| fields.get(step));
    let value = first.and_then(|first| steps.try_fold(first, |value, step| value.get(step)));
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_parsed_as_in_kubernetes() {
        let term = |field: &str, value: &str, equal| {
            Some(FieldTerm { field: field.to_owned(), value: value.to_owned(), equal })
        };
        let cases = [
            ("a.b=c", term("a.b", "c", true)),
            ("a.b==c", term("a.b", "c", true)),
            ("a.b!=c", term("a.b", "c", false)),
            ("a=", term("a", "", true)),
            ("a=b\\,c\\=d\\\\", term("a", "b,c=d\\", true)),
            ("a=b=c", None),
            ("a=\\x", None),
            ("a", None),
            ("!a", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_term(text), expected, "{text}");
        }
        assert_eq!(split("a=b\\,c,d=e"), ["a=b\\,c", "d=e"]);
    }
}
