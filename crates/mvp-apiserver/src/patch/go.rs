//! Values as Go prints them: the texts of some errors have them. Entries: [`Kind`], [`print`].

use std::fmt::Write;

use serde_json::Value;

/// The Go type of a decoded JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Integer,
    Float,
    String,
    List,
    Map,
}

impl Kind {
    pub(super) fn of(value: &Value) -> Kind {
        match value {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Number(number) if number.is_f64() => Kind::Float,
            Value::Number(_) => Kind::Integer,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::List,
            Value::Object(_) => Kind::Map,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Null => "%!s(<nil>)",
            Kind::Bool => "bool",
            Kind::Integer => "int64",
            Kind::Float => "float64",
            Kind::String => "string",
            Kind::List => "[]interface {}",
            Kind::Map => "map[string]interface {}",
        }
    }
}

/// The `%v` of a value.
pub(super) fn print(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value);
    text
}

/// The `%v` of a list.
pub(super) fn print_list(list: &[Value]) -> String {
    let mut text = String::new();
    write_list(&mut text, list);
    text
}

fn write(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::String(value) => text.push_str(value),
        Value::Array(list) => write_list(text, list),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            text.push_str("map[");
            for (place, (key, value)) in fields.into_iter().enumerate() {
                let space = if place > 0 { " " } else { "" };
                let _ = write!(text, "{space}{key}:");
                write(text, value);
            }
            text.push(']');
        }
        scalar => {
            let _ = write!(text, "{scalar}");
        }
    }
}

fn write_list(text: &mut String, list: &[Value]) {
    text.push('[');
    for (place, value) in list.iter().enumerate() {
        if place > 0 {
            text.push(' ');
        }
        write(text, value);
    }
    text.push(']');
}
