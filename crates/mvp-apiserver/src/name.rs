//! The names of objects. Entry: [`check`].

use crate::route::Target;
use crate::status::{Failure, Fault};

/// The rule for the names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Labels with dots between them.
    Subdomain,
    Label,
    /// A label that does not start with a digit.
    LetterFirst,
    /// Whatever fits into a path.
    PathSegment,
}

/// Checks the name of an object.
pub(crate) fn check(target: &Target<'_>, name: &str) -> Result<(), Failure> {
    let fault = Rule::of(target).fault(name);
    fault.map_or(Ok(()), |why| {
        Err(Failure::invalid_field(target, name, "metadata.name", Fault::Value(name, why)))
    })
}

impl Rule {
    fn of(target: &Target<'_>) -> Rule {
        match (target.group.name.as_str(), target.resource.plural.as_str()) {
            ("", "namespaces") => Rule::Label,
            ("", "services") => Rule::LetterFirst,
            ("rbac.authorization.k8s.io" | "apiregistration.k8s.io", _) => Rule::PathSegment,
            _ => Rule::Subdomain,
        }
    }

    /// What is wrong with a name.
    fn fault(self, name: &str) -> Option<&'static str> {
        let longest = match self {
            Rule::Subdomain | Rule::PathSegment => 253,
            Rule::Label | Rule::LetterFirst => 63,
        };
        let valid = match self {
            Rule::Subdomain => is_subdomain(name),
            Rule::Label => is_label(name),
            Rule::LetterFirst => {
                is_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase())
            }
            Rule::PathSegment => return segment_fault(name),
        };
        match (valid, name.len() <= longest) {
            (false, _) => Some(self.text()),
            (true, false) if longest == 63 => Some("must be no more than 63 characters"),
            (true, false) => Some("must be no more than 253 characters"),
            (true, true) => None,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Rule::Label => {
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
                 '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
                 '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            }
            Rule::LetterFirst => {
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
                 with an alphabetic character, and end with an alphanumeric character (e.g. \
                 'my-name',  or 'abc-123', regex used for validation is \
                 '[a-z]([-a-z0-9]*[a-z0-9])?')"
            }
            Rule::Subdomain | Rule::PathSegment => {
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                 '-' or '.', and must start and end with an alphanumeric character (e.g. \
                 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            }
        }
    }
}

/// Whether a text consists of labels with dots between them.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    label.bytes().all(|byte| edge(byte) || byte == b'-')
        && label.bytes().next().is_some_and(edge)
        && label.bytes().next_back().is_some_and(edge)
}

fn segment_fault(name: &str) -> Option<&'static str> {
    match name {
        "." => Some("may not be '.'"),
        ".." => Some("may not be '..'"),
        _ if name.contains('/') => Some("may not contain '/'"),
        _ if name.contains('%') => Some("may not contain '%'"),
        // Names are kept in memory, and in URLs.
        _ if name.len() > 253 => Some("must be no more than 253 characters"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        let cases = [
            (Rule::Subdomain, "a.b-c.1", true),
            (Rule::Subdomain, "a..b", false),
            (Rule::Subdomain, "A", false),
            (Rule::Subdomain, "", false),
            (Rule::Label, "a-1", true),
            (Rule::Label, "1", true),
            (Rule::Label, "a.b", false),
            (Rule::LetterFirst, "1a", false),
            (Rule::LetterFirst, "a1", true),
            (Rule::PathSegment, "system:node", true),
            (Rule::PathSegment, "a/b", false),
            (Rule::PathSegment, "..", false),
        ];
        for (rule, name, valid) in cases {
            assert_eq!(rule.fault(name).is_none(), valid, "{rule:?} {name}");
        }
        let long = "a".repeat(64);
        assert_eq!(Rule::Label.fault(&long), Some("must be no more than 63 characters"));
        assert_eq!(Rule::Subdomain.fault(&long), None);
    }
}
