//! Regular expressions of schemas, with a limit for their memory. Matching takes linear time. Entry:
//! [`Patterns`].

use std::collections::HashMap;
use std::rc::Rc;

use regex_automata::nfa::thompson::{self, pikevm::PikeVM};

use super::schema::{self, Node};

/// Compiled expressions, for the time of one request: kept with each definition of each server, they
/// would take far more memory than the schemas.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    compiled: HashMap<String, Rc<Pattern>>,
    bytes: usize,
}

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Pattern(PikeVM);

/// The most bytes of a compiled expression.
const MOST_BYTES: usize = 512 << 10;
/// The most bytes of all expressions of a request.
const MOST_BYTES_TOGETHER: usize = 8 << 20;

impl Patterns {
    /// Compiles the expressions of a schema and of all schemas in it. `fault` gets the place of each
    /// one that is not compiled, the expression and the reason.
    pub(super) fn add(
        &mut self,
        node: &Node,
        path: &str,
        fault: &mut impl FnMut(&str, &str, String),
    ) {
        let text = schema::text(node, "pattern");
        if !text.is_empty()
            && let Err(why) = self.get(text)
        {
            fault(path, text, why);
        }
        for keyword in ["items", "additionalProperties", "not"] {
            if let Some(child) = schema::child(node, keyword) {
                self.add(child, &format!("{path}.{keyword}"), fault);
            }
        }
        for keyword in ["anyOf", "allOf", "oneOf"] {
            for (index, child) in schema::alternatives(node, keyword).enumerate() {
                self.add(child, &format!("{path}.{keyword}[{index}]"), fault);
            }
        }
        for (name, child) in schema::properties(node) {
            self.add(child, &format!("{path}.properties[{name}]"), fault);
        }
    }

    /// A compiled expression, or why it cannot be compiled.
    pub(super) fn get(&mut self, text: &str) -> Result<Rc<Pattern>, String> {
        if let Some(known) = self.compiled.get(text) {
            return Ok(Rc::clone(known));
        }
        if self.bytes > MOST_BYTES_TOGETHER {
            let most = MOST_BYTES_TOGETHER >> 20;
            return Err(format!("the patterns of the definition need more than {most} MiB"));
        }
        let pattern = Pattern::new(text)
            .map_err(|error| format!("must be a valid regular expression, but isn't: {error}"))?;
        let pattern = Rc::new(pattern);
        self.bytes += pattern.0.get_nfa().memory_usage() + text.len();
        self.compiled.insert(text.to_owned(), Rc::clone(&pattern));
        Ok(pattern)
    }
}

impl Pattern {
    /// Compiles an expression of Go's syntax. Classes such as `\d` have only ASCII characters, as in Go.
    fn new(text: &str) -> Result<Pattern, String> {
        let builder = thompson::Config::new().nfa_size_limit(Some(MOST_BYTES));
        let compiled = PikeVM::builder().thompson(builder).build(&ascii_classes(text));
        compiled.map(Pattern).map_err(|error| error.to_string())
    }

    /// Whether the expression matches somewhere in a text.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.0.is_match(&mut self.0.create_cache(), text)
    }

    /// The most steps that a match takes.
    pub(super) fn steps(&self, text: &str) -> u64 {
        (self.0.get_nfa().states().len() as u64).saturating_mul(text.len() as u64 + 1)
    }
}

/// Spells out the classes that would have all of Unicode's digits, letters and spaces otherwise.
fn ascii_classes(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            result.push(character);
            continue;
        }
        match characters.next() {
            Some('d') => result.push_str("[0-9]"),
            Some('D') => result.push_str("[^0-9]"),
            Some('w') => result.push_str("[0-9A-Za-z_]"),
            Some('W') => result.push_str("[^0-9A-Za-z_]"),
            Some('s') => result.push_str("[\\t\\n\\x0C\\r ]"),
            Some('S') => result.push_str("[^\\t\\n\\x0C\\r ]"),
            Some('b') => result.push_str("(?-u:\\b)"),
            other => {
                result.push('\\');
                result.extend(other);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_as_in_go() {
        let cases = [
            ("^a+$", "aaa", true),
            ("^a+$", "b", false),
            ("b", "abc", true),
            (r"^\d{3}$", "123", true),
            (r"^\d{3}$", "١٢٣", false),
            (r"^[\w.-]+$", "a.b-c_1", true),
            (r"^.{2}$", "éé", true),
            (r"^\S+$", "a b", false),
            (r"^(v1|v2)?$", "", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Pattern::new(pattern).unwrap().matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn bad_and_huge_expressions_are_errors() {
        for pattern in ["(", "a{1000}{1000}{1000}", "[z-a]", "(?=a)"] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn the_patterns_of_a_definition_have_one_limit() {
        let properties: serde_json::Map<_, _> = (0..1000)
            .map(|number| {
                let pattern = format!("^.{{1,200}}{number}$");
                (format!("p{number}"), serde_json::json!({ "pattern": pattern }))
            })
            .collect();
        let schema = serde_json::json!({ "properties": properties });
        let (mut patterns, mut faults) = (Patterns::default(), Vec::new());
        let mut note = |path: &str, _: &str, why: String| faults.push(format!("{path}: {why}"));
        patterns.add(schema.as_object().unwrap(), "schema", &mut note);
        assert!(patterns.compiled.len() > 10 && !faults.is_empty(), "{}", faults.len());
        assert!(patterns.bytes < MOST_BYTES_TOGETHER + MOST_BYTES);
        assert!(faults[0].starts_with("schema.properties[p"), "{}", faults[0]);
        assert!(faults[0].ends_with("need more than 8 MiB"), "{}", faults[0]);
    }
}
