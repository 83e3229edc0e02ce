//! Cells of the tables of built-in kinds. Entry: [`Column`].

use serde_json::{Map, Value};

use super::age;
use crate::object;
use crate::storage::Fields;

/// A column of a built-in kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) format: &'static str,
    pub(super) priority: u8,
    pub(super) cell: Cell,
}

/// Where the value of a cell comes from. Paths have dots between the names of fields.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell {
    /// The name of the object.
    Name,
    /// The time since its creation.
    Age,
    /// The time of its creation.
    Created,
    /// A string, or another text if it is absent or empty.
    Text(&'static str, &'static str),
    /// A number, or another one if it is absent.
    Integer(&'static str, i64),
    /// The number of elements of a list or entries of a map.
    Count(&'static str),
    /// A boolean, or another one if it is absent.
    Boolean(&'static str, bool),
    /// The names of a list of containers.
    Names(&'static str),
    /// The images of a list of containers.
    Images(&'static str),
    /// A map of labels.
    Labels(&'static str),
    /// A label selector.
    Selector(&'static str),
    /// Anything else.
    Computed(fn(&View<'_>) -> Value),
}

/// An object and the time at which it is printed.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) fields: &'a Fields,
    pub(super) now: i64,
}

/// The column `Name`.
pub(super) const NAME: Column = Column { format: "name", ..text("Name", Cell::Name) };
/// The column `Age`.
pub(super) const AGE: Column = text("Age", Cell::Age);

/// A column of texts. Some columns of Kubernetes have this type and print numbers.
pub(super) const fn text(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", format: "", priority: 0, cell }
}

/// A column of numbers.
pub(super) const fn integer(name: &'static str, cell: Cell) -> Column {
    Column { kind: "integer", ..text(name, cell) }
}

/// A column of booleans.
pub(super) const fn boolean(name: &'static str, cell: Cell) -> Column {
    Column { kind: "boolean", ..text(name, cell) }
}

impl Column {
    /// The same column, with the type of dates.
    pub(super) const fn date(self) -> Column {
        Column { kind: "date", ..self }
    }

    /// The same column, shown only by `-o wide`.
    pub(super) const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    /// The cell of an object.
    pub(super) fn print(&self, view: &View<'_>) -> Value {
        match self.cell {
            Cell::Name => view.name().into(),
            Cell::Age => view.since("metadata.creationTimestamp").into(),
            Cell::Created => match view.text("metadata.creationTimestamp") {
                "" => "0001-01-01T00:00:00Z".into(),
                time => time.into(),
            },
            Cell::Text(path, absent) => view.text_or(path, absent).into(),
            Cell::Integer(path, absent) => view.integer_or(path, absent).into(),
            Cell::Count(path) => view.count(path).into(),
            Cell::Boolean(path, absent) => {
                view.at(path).and_then(Value::as_bool).unwrap_or(absent).into()
            }
            Cell::Names(path) => view.joined(path, "name").into(),
            Cell::Images(path) => view.joined(path, "image").into(),
            Cell::Labels(path) => match labels(view.at(path)) {
                text if text.is_empty() => "<none>".into(),
                text => text.into(),
            },
            Cell::Selector(path) => match selector(view.at(path)) {
                text if text.is_empty() => "<none>".into(),
                text => text.into(),
            },
            Cell::Computed(compute) => compute(view),
        }
    }
}

impl<'a> View<'a> {
    pub(super) fn name(&self) -> &'a str {
        object::metadata_text(self.fields, "name")
    }

    /// The value of a path.
    pub(super) fn at(&self, path: &str) -> Option<&'a Value> {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        at(self.fields.get(first), rest)
    }

    /// A string; empty if it is absent.
    pub(super) fn text(&self, path: &str) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// A string, or another one if it is absent or empty.
    pub(super) fn text_or(&self, path: &str, absent: &'a str) -> &'a str {
        match self.text(path) {
            "" => absent,
            text => text,
        }
    }

    /// A number; 0 if it is absent.
    pub(super) fn integer(&self, path: &str) -> i64 {
        self.integer_or(path, 0)
    }

    pub(super) fn integer_or(&self, path: &str, absent: i64) -> i64 {
        self.at(path).and_then(Value::as_i64).unwrap_or(absent)
    }

    /// The elements of a list.
    pub(super) fn list(&self, path: &str) -> &'a [Value] {
        list(self.at(path))
    }

    /// The entries of a map.
    pub(super) fn map(&self, path: &str) -> Option<&'a Map<String, Value>> {
        self.at(path).and_then(Value::as_object)
    }

    pub(super) fn count(&self, path: &str) -> usize {
        match self.at(path) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// The time since the timestamp at a path.
    pub(super) fn since(&self, path: &str) -> String {
        age::since(self.at(path).and_then(Value::as_str), self.now)
    }

    /// Whether the object is being deleted.
    pub(super) fn is_deleting(&self) -> bool {
        !self.text("metadata.deletionTimestamp").is_empty()
    }

    /// Whether an annotation is `true`.
    pub(super) fn annotated(&self, key: &str) -> bool {
        let annotations = self.map("metadata.annotations");
        annotations.and_then(|map| map.get(key)).is_some_and(|value| value == "true")
    }

    /// The status of the first condition of a type.
    pub(super) fn condition(&self, kind: &str) -> Option<&'a Value> {
        let mut conditions = self.list("status.conditions").iter();
        conditions.find(|condition| text_of(condition, "type") == kind)
    }

    /// Whether the first condition of a type is true.
    pub(super) fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| text_of(condition, "status") == "True")
    }

    /// A string of each element of a list.
    fn joined(&self, path: &str, field: &str) -> String {
        let texts: Vec<_> = self.list(path).iter().map(|item| text_of(item, field)).collect();
        texts.join(",")
    }
}

/// The value of a path inside a value; an empty path is the value itself.
pub(super) fn at<'v>(value: Option<&'v Value>, path: &str) -> Option<&'v Value> {
    let names = path.split('.').filter(|name| !name.is_empty());
    names.fold(value, |value, name| value?.get(name)).filter(|value| !value.is_null())
}

/// A string inside a value; empty if it is absent.
pub(super) fn text_of<'v>(value: &'v Value, path: &str) -> &'v str {
    at(Some(value), path).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of a list.
pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The first elements, and the number of the others: `a,b,c + 2 more...`.
pub(super) fn first(shown: &[String], total: usize, separator: &str) -> String {
    let text = shown.join(separator);
    match total.saturating_sub(shown.len()) {
        0 => text,
        more => format!("{text} + {more} more..."),
    }
}

/// A number or a string as text.
pub(super) fn plain(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A map of labels: `a=b,c=d`.
fn labels(value: Option<&Value>) -> String {
    let map = value.and_then(Value::as_object);
    let mut pairs: Vec<_> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    pairs.join(",")
}

/// A label selector: `a=b,c in (d,e),!f`.
pub(super) fn selector(value: Option<&Value>) -> String {
    let matched = at(value, "matchLabels").and_then(Value::as_object);
    let mut terms: Vec<(&str, String)> = matched
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in list(at(value, "matchExpressions")) {
        let key = text_of(expression, "key");
        let mut values: Vec<_> =
            list(expression.get("values")).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push(match text_of(expression, "operator") {
            "In" => (key, format!("{key} in ({values})")),
            "NotIn" => (key, format!("{key} notin ({values})")),
            "Exists" => (key, key.to_owned()),
            "DoesNotExist" => (key, format!("!{key}")),
            _ => return "<error>".to_owned(),
        });
    }
    terms.sort();
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}
