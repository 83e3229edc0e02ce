//! Selection of objects by label, field, namespace and name. Entry: [`Selector`].

use crate::object;
use crate::query::Query;
use crate::route::Target;
use crate::status::Failure;
use crate::storage::Object;

/// The selection of objects in a collection.
#[derive(Debug)]
pub(crate) struct Selector {
    namespace: String,
    name: String,
    labels: Vec<Term>,
    fields: Vec<Term>,
}

/// A condition on a label or a field.
#[derive(Debug, PartialEq, Eq)]
struct Term {
    key: String,
    test: Test,
}

#[derive(Debug, PartialEq, Eq)]
enum Test {
    Equals(String),
    Differs(String),
    Present,
    Absent,
}

impl Selector {
    /// Parses the selectors of a request.
    pub(crate) fn new(target: &Target<'_>, query: &Query<'_>) -> Result<Selector, Failure> {
        let labels = parse(query.get("labelSelector")).map_err(|term| {
            let message = format!("unable to parse requirement: \"{term}\" is not supported");
            Failure::bad_request(message)
        })?;
        let text = query.get("fieldSelector");
        let fields = parse(text).map_err(|term| {
            let message = format!("invalid selector: '{text}'; can't understand '{term}'");
            Failure::bad_request(message)
        })?;
        for Term { key, test } in &fields {
            let bare = matches!(test, Test::Present | Test::Absent);
            if bare || (key != "metadata.name" && key != "metadata.namespace") {
                return Err(Failure::bad_request(format!(
                    "Unable to find \"{}, Resource={}\" that match label selector \"{}\", field \
                     selector \"{text}\": field label not supported: {key}",
                    target.api_version(),
                    target.resource.plural,
                    query.get("labelSelector"),
                )));
            }
        }
        // The name of a request for a collection may come from the selector; then it adds nothing.
        Ok(Selector {
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            labels,
            fields,
        })
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        let key = &object.key;
        let here = (self.namespace.is_empty() || self.namespace == key.namespace)
            && (self.name.is_empty() || self.name == key.name);
        let labels = object::metadata_of(&object.fields)
            .and_then(|metadata| metadata.get("labels").and_then(serde_json::Value::as_object));
        let label = |key: &str| labels?.get(key)?.as_str();
        let field = |field: &str| match field {
            "metadata.name" => Some(key.name.as_str()),
            _ => Some(key.namespace.as_str()),
        };
        here && self.labels.iter().all(|term| term.test.holds(label(&term.key)))
            && self.fields.iter().all(|term| term.test.holds(field(&term.key)))
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Test::Equals(wanted) => value == Some(wanted),
            Test::Differs(unwanted) => value != Some(unwanted),
            Test::Present => value.is_some(),
            Test::Absent => value.is_none(),
        }
    }
}

/// Parses a selector; the error is the invalid term.
fn parse(selector: &str) -> Result<Vec<Term>, &str> {
    let terms = selector.split(',').map(str::trim).filter(|term| !term.is_empty());
    terms.map(|term| parse_term(term).ok_or(term)).collect()
}

fn parse_term(term: &str) -> Option<Term> {
    let (key, test) = if let Some((key, value)) = term.split_once("!=") {
        (key, Test::Differs(value.trim().to_owned()))
    } else if let Some((key, value)) = term.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        (key, Test::Equals(value.trim().to_owned()))
    } else if let Some(key) = term.strip_prefix('!') {
        (key, Test::Absent)
    } else {
        (term, Test::Present)
    };
    let key = key.trim();
    let value = match &test {
        Test::Equals(value) | Test::Differs(value) => value,
        Test::Present | Test::Absent => "",
    };
    // Sets (`a in (b)`) are not supported, and refused.
    let plain = |text: &str| !text.contains(['(', ')', ' ', '=', '!', '<', '>']);
    (!key.is_empty() && plain(key) && plain(value)).then(|| Term { key: key.to_owned(), test })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_parsed_as_in_kubernetes() {
        let term = |key: &str, test| Some(Term { key: key.to_owned(), test });
        let cases = [
            ("a=b", term("a", Test::Equals("b".into()))),
            ("a==b", term("a", Test::Equals("b".into()))),
            ("a = b", term("a", Test::Equals("b".into()))),
            ("a=", term("a", Test::Equals(String::new()))),
            ("a!=b", term("a", Test::Differs("b".into()))),
            ("example.com/a", term("example.com/a", Test::Present)),
            ("!a", term("a", Test::Absent)),
            ("a in (b)", None),
            ("a=b=c", None),
            ("=b", None),
            ("a>1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_term(text), expected, "{text}");
        }
    }

    #[test]
    fn an_absent_label_differs_from_every_value() {
        assert!(Test::Differs("b".into()).holds(None));
        assert!(!Test::Equals(String::new()).holds(None));
    }
}
