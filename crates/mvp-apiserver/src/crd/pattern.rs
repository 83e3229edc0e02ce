//! Regular expressions of schemas. Matching takes linear time. Entry: [`Pattern`].

use regex_automata::nfa::thompson::{self, pikevm::PikeVM};

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Pattern(PikeVM);

/// The most bytes of a compiled expression.
const SIZE_LIMIT: usize = 1 << 20;

impl Pattern {
    /// Compiles an expression of Go's syntax. Classes such as `\d` have only ASCII characters, as in Go.
    pub(super) fn new(text: &str) -> Result<Pattern, String> {
        let builder = thompson::Config::new().nfa_size_limit(Some(SIZE_LIMIT));
        let compiled = PikeVM::builder().thompson(builder).build(&ascii_classes(text));
        compiled.map(Pattern).map_err(|error| error.to_string())
    }

    /// Whether the expression matches somewhere in a text.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.0.is_match(&mut self.0.create_cache(), text)
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
}
