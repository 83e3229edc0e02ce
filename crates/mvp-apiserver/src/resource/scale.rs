//! The subresource `scale`: the replicas of an object as a `Scale` of `autoscaling/v1`. Entries:
//! [`Call::get_scale`], [`Call::change_scale`].

use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::Call;
use super::change::{check_same_name, updated};
use crate::crd::ScalePaths;
use crate::object;
use crate::respond::{self, Body};
use crate::route::Target;
use crate::status::{Failure, OptionFault};
use crate::storage::{Fields, Object};

impl Call<'_> {
    pub(super) fn get_scale(self) -> Result<Response<Body>, Failure> {
        let found = self.storage.get(&self.target.collection(), &self.target.key());
        let object = found.ok_or_else(|| Failure::not_found(self.target, &self.target.name))?;
        Ok(respond::json(StatusCode::OK, &scale_of(&object.fields, self.scale_paths())))
    }

    /// Where the replicas of a custom resource are.
    fn scale_paths(&self) -> Option<&ScalePaths> {
        self.custom.and_then(|custom| custom.version.scale.as_ref())
    }

    /// Changes the replicas of an object. `change` gets the current `Scale` and returns the new one.
    pub(super) fn change_scale(
        self,
        change: impl FnOnce(Fields) -> Result<Fields, Failure>,
    ) -> Result<Response<Body>, Failure> {
        let dry_run = self.query.dry_run()?;
        let (collection, key) = (self.target.collection(), self.target.key());
        // The change is one of the whole object, not of a field `scale`.
        let whole = Target {
            subresource: None,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            ..*self.target
        };
        let object = self.storage.transact(&collection, &key, !dry_run, |current| {
            let missing = || Failure::not_found(self.target, &key.name);
            let current = current.ok_or_else(missing)?;
            let wanted = change(scale_of(&current.fields, self.scale_paths()))?;
            let paths = self.scale_paths();
            let change = updated(&whole, current, scaled(&whole, current, &wanted, paths)?)?;
            Ok::<_, Failure>(self.owned(Some(current), self.accepted(change, Some(current))?))
        })?;
        Ok(respond::json(StatusCode::OK, &scale_of(&object.fields, self.scale_paths())))
    }
}

/// The object with the replicas of a `Scale`, and its preconditions.
fn scaled(
    target: &Target<'_>,
    current: &Object,
    scale: &Fields,
    paths: Option<&ScalePaths>,
) -> Result<Fields, Failure> {
    let kind = scale.get("kind").and_then(Value::as_str).unwrap_or("Scale");
    if kind != "Scale" {
        let message = format!("{kind} in version \"v1\" cannot be handled as a Scale");
        return Err(Failure::bad_request(message));
    }
    match object::metadata_text(scale, "name") {
        "" => {}
        name => check_same_name(target, name)?,
    }
    let replicas = match scale.get("spec").and_then(|spec| spec.get("replicas")) {
        None | Some(Value::Null) => 0,
        Some(value) => {
            value.as_i64().filter(|count| i32::try_from(*count).is_ok()).ok_or_else(|| {
                Failure::bad_request(
                    "json: cannot unmarshal Scale.spec.replicas: it must be an int32",
                )
            })?
        }
    };
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        let fault = OptionFault::invalid("spec.replicas", &replicas.to_string(), why);
        return Err(Failure::invalid_of("Scale", "autoscaling", &current.key.name, vec![fault]));
    }
    let mut fields = current.fields.clone();
    match paths {
        Some(paths) => put(&mut fields, &paths.spec, replicas.into()),
        None => put(&mut fields, &["spec", "replicas"], replicas.into()),
    }
    for key in ["resourceVersion", "uid"] {
        object::set_metadata(&mut fields, key, object::metadata_text(scale, key));
    }
    Ok(fields)
}

/// The `Scale` of an object. Custom resources say where their replicas are.
fn scale_of(fields: &Fields, paths: Option<&ScalePaths>) -> Fields {
    let own = object::metadata_of(fields);
    let keys = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: Map<String, Value> =
        keys.into_iter().filter_map(|key| Some((key.to_owned(), own?.get(key)?.clone()))).collect();
    let number = |part: &str| {
        let value = match paths {
            Some(paths) if part == "spec" => at(fields, &paths.spec),
            Some(paths) => at(fields, &paths.status),
            None => at(fields, &[part, "replicas"]),
        };
        value.and_then(Value::as_i64).unwrap_or_default()
    };
    let mut spec = Map::new();
    if number("spec") != 0 {
        spec.insert("replicas".to_owned(), number("spec").into());
    }
    let mut status = Map::new();
    status.insert("replicas".to_owned(), number("status").into());
    let selector = match paths {
        Some(paths) => {
            at(fields, &paths.selector).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        None => selector_text(fields.get("spec").and_then(|spec| spec.get("selector"))),
    };
    if !selector.is_empty() {
        status.insert("selector".to_owned(), selector.into());
    }
    let mut scale = Map::new();
    scale.insert("kind".to_owned(), "Scale".into());
    scale.insert("apiVersion".to_owned(), "autoscaling/v1".into());
    scale.insert("metadata".to_owned(), metadata.into());
    scale.insert("spec".to_owned(), spec.into());
    scale.insert("status".to_owned(), status.into());
    scale
}

/// The value at a path.
fn at<'f>(fields: &'f Fields, path: &[impl AsRef<str>]) -> Option<&'f Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(fields.get(first.as_ref())?, |value, name| value.get(name.as_ref()))
}

/// Sets the value at a path.
fn put(fields: &mut Fields, path: &[impl AsRef<str>], value: Value) {
    let Some((last, path)) = path.split_last() else {
        return;
    };
    let mut map = fields;
    for name in path {
        match map.entry(name.as_ref()).or_insert_with(|| json!({})) {
            Value::Object(inner) => map = inner,
            _ => return,
        }
    }
    map.insert(last.as_ref().to_owned(), value);
}

/// A label selector as text. That of a `ReplicationController` is a map of labels.
fn selector_text(selector: Option<&Value>) -> String {
    let Some(Value::Object(selector)) = selector else {
        return String::new();
    };
    let is_map = selector.values().all(Value::is_string);
    let labels = if is_map {
        Some(selector)
    } else {
        selector.get("matchLabels").and_then(Value::as_object)
    };
    let mut terms: Vec<(String, String)> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), format!("{key}={}", value.as_str()?))))
        .collect();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    terms.extend(expressions.into_iter().flatten().filter_map(expression_text));
    terms.sort();
    let terms: Vec<_> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

fn expression_text(expression: &Value) -> Option<(String, String)> {
    let key = expression.get("key")?.as_str()?;
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let mut values: Vec<_> = values.filter_map(Value::as_str).collect();
    values.sort_unstable();
    let values = values.join(",");
    let text = match expression.get("operator")?.as_str()? {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        _ => return None,
    };
    Some((key.to_owned(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_have_the_text_of_kubernetes() {
        let selector = json!({
            "matchLabels": { "b": "2", "a": "1" },
            "matchExpressions": [
                { "key": "c", "operator": "In", "values": ["y", "x"] },
                { "key": "d", "operator": "Exists" },
                { "key": "e", "operator": "DoesNotExist" },
            ],
        });
        assert_eq!(selector_text(Some(&selector)), "a=1,b=2,c in (x,y),d,!e");
        assert_eq!(selector_text(Some(&json!({ "app": "x" }))), "app=x");
        assert_eq!(selector_text(None), "");
    }
}
