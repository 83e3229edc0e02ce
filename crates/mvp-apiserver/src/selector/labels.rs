//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`. Entry: [`parse`].

use crate::metadata;

/// A condition on a label.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LabelTerm {
    pub(super) key: String,
    test: Test,
}

#[derive(Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Present,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelTerm {
    /// Whether the value of the label fulfils the condition.
    pub(super) fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let is_in =
            |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        match &self.test {
            Test::In(wanted) => is_in(wanted),
            Test::NotIn(unwanted) => !is_in(unwanted),
            Test::Present => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Greater(bound) => number().is_some_and(|number| number > *bound),
            Test::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Parses a label selector; the error says what is wrong.
pub(super) fn parse(selector: &str) -> Result<Vec<LabelTerm>, String> {
    let mut tokens = Tokens { rest: selector };
    let mut terms = Vec::new();
    if tokens.peek() == "" {
        return Ok(terms);
    }
    loop {
        terms.push(tokens.term()?);
        match tokens.next() {
            "" => return Ok(terms),
            "," if !["", ","].contains(&tokens.peek()) => {}
            "," => {
                return Err(format!("found '{}', expected: identifier after ','", tokens.peek()));
            }
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

/// The words and signs of a selector.
struct Tokens<'a> {
    rest: &'a str,
}

const SIGNS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", "<", ">"];

impl<'a> Tokens<'a> {
    /// The next token; empty at the end.
    fn next(&mut self) -> &'a str {
        let rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
        let is_special =
            |character: char| matches!(character, '=' | '!' | '(' | ')' | ',' | '<' | '>');
        let length = match sign {
            Some(sign) => sign.len(),
            None => rest
                .find(|character: char| is_special(character) || character.is_ascii_whitespace())
                .unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at_checked(length).unwrap_or((rest, ""));
        self.rest = rest;
        token
    }

    fn peek(&self) -> &'a str {
        Tokens { rest: self.rest }.next()
    }

    fn term(&mut self) -> Result<LabelTerm, String> {
        let absent = self.peek() == "!";
        if absent {
            self.next();
        }
        let key = self.word()?;
        check_key(key)?;
        let test = match self.peek() {
            "" | "," => return Ok(LabelTerm { key: key.to_owned(), test: present(absent) }),
            _ if absent => Test::Absent,
            _ => self.test()?,
        };
        Ok(LabelTerm { key: key.to_owned(), test })
    }

    fn test(&mut self) -> Result<Test, String> {
        match self.next() {
            "=" | "==" => Ok(Test::In(vec![self.value()?])),
            "!=" => Ok(Test::NotIn(vec![self.value()?])),
            "in" => Ok(Test::In(self.values()?)),
            "notin" => Ok(Test::NotIn(self.values()?)),
            ">" => Ok(Test::Greater(number(&self.value()?)?)),
            "<" => Ok(Test::Less(number(&self.value()?)?)),
            other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn word(&mut self) -> Result<&'a str, String> {
        match self.next() {
            token if token.is_empty() || SIGNS.contains(&token) => {
                Err(format!("found '{token}', expected: identifier"))
            }
            token => Ok(token),
        }
    }

    /// The value after an operator; it may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            "" | "," => Ok(String::new()),
            _ => check_value(self.word()?),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            "(" => {}
            other => return Err(format!("found '{other}' expected: '('")),
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                "," | ")" => values.push(String::new()),
                _ => values.push(check_value(self.word()?)?),
            }
            match self.next() {
                "," => {}
                ")" => return Ok(values),
                other => return Err(format!("found '{other}', expected: ',' or ')'")),
            }
        }
    }
}

fn present(absent: bool) -> Test {
    if absent { Test::Absent } else { Test::Present }
}

fn number(text: &str) -> Result<i64, String> {
    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
    text.parse().map_err(|_| format!("values[0][]: Invalid value: \"{text}\": {why}"))
}

fn check_key(key: &str) -> Result<(), String> {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    match is_label_text(name) && !name.is_empty() && key.split('/').count() <= 2 {
        true => Ok(()),
        false => Err(format!("key: Invalid value: \"{key}\": it is not a qualified name")),
    }
}

fn check_value(value: &str) -> Result<String, String> {
    match is_label_text(value) {
        true => Ok(value.to_owned()),
        false => Err(format!("values[0]: Invalid value: \"{value}\": it is not a label value")),
    }
}

/// Whether a text can be a label value.
fn is_label_text(text: &str) -> bool {
    text.len() <= 63 && metadata::is_label_text(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_parsed_as_in_kubernetes() {
        let texts = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let cases = [
            ("a=b", "a", Test::In(texts(&["b"]))),
            ("a==b", "a", Test::In(texts(&["b"]))),
            (" a = b ", "a", Test::In(texts(&["b"]))),
            ("a=", "a", Test::In(texts(&[""]))),
            ("a!=b", "a", Test::NotIn(texts(&["b"]))),
            ("a in (b)", "a", Test::In(texts(&["b"]))),
            ("a in (b, c,)", "a", Test::In(texts(&["b", "c", ""]))),
            ("a notin (b,c)", "a", Test::NotIn(texts(&["b", "c"]))),
            ("example.com/a", "example.com/a", Test::Present),
            ("!a", "a", Test::Absent),
            ("a>1", "a", Test::Greater(1)),
            ("a<10", "a", Test::Less(10)),
            ("in in (in)", "in", Test::In(texts(&["in"]))),
        ];
        for (text, key, test) in cases {
            assert_eq!(parse(text), Ok(vec![LabelTerm { key: key.to_owned(), test }]), "{text}");
        }
        assert_eq!(parse("a=b,c in (d,e),!f").map(|terms| terms.len()), Ok(3));
        assert_eq!(parse(" "), Ok(Vec::new()));
    }

    #[test]
    fn malformed_selectors_are_refused() {
        let cases = [
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("=b", "found '=', expected: identifier"),
            ("a,", "found '', expected: identifier after ','"),
            ("a,,b", "found ',', expected: identifier after ','"),
            ("a in b", "found 'b' expected: '('"),
            ("a in (b", "found '', expected: ',' or ')'"),
            ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ];
        for (text, why) in cases {
            assert_eq!(parse(text), Err(why.to_owned()), "{text}");
        }
        for text in ["a>x", "a=-", "a/b/c", "ä=1", "a=ö"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_absent_label_differs_from_every_value() {
        let holds = |text: &str, value| parse(text).unwrap().iter().all(|term| term.holds(value));
        assert!(holds("a!=b", None));
        assert!(holds("a notin (b)", None));
        assert!(!holds("a=", None));
        assert!(holds("a>1", Some("2")));
        assert!(!holds("a>1", None));
        assert!(!holds("a<1", Some("x")));
    }
}
