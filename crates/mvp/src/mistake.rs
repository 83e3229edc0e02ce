//! Errors of the command line and the configuration, as one sentence for the operator.
//!
//! [`Mistake`] is the only error of the command line, the config file and the checks of
//! [`crate::config`]. Its sentence names the flag (or the key, the file and the line), then what is
//! wrong, then what to do. [`Problem`] is the same without the name of the flag.

use std::fmt;
use std::process::ExitCode;

/// An error that ends `mvp` with one sentence and an exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mistake {
    /// A wrong flag, value, key or combination of them. Exit code 2.
    #[error("{}", OneLine(.0))]
    Usage(String),
    /// The flags are correct, but what they name cannot be used: a file, a host name. Exit code 1.
    #[error("{}", OneLine(.0))]
    Trouble(String),
}

impl Mistake {
    /// A usage error of one setting.
    pub(crate) fn usage(setting: impl fmt::Display, sentence: impl fmt::Display) -> Self {
        Self::Usage(format!("{setting}: {sentence}"))
    }

    /// An error of what one setting names.
    pub(crate) fn trouble(setting: impl fmt::Display, sentence: impl fmt::Display) -> Self {
        Self::Trouble(format!("{setting}: {sentence}"))
    }

    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Trouble(_) => ExitCode::from(1),
        }
    }
}

/// What is wrong with one value or file, and what to do. The caller knows the flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Problem(String);

impl From<String> for Problem {
    fn from(sentence: String) -> Self {
        Self(sentence)
    }
}

impl From<&str> for Problem {
    fn from(sentence: &str) -> Self {
        Self(sentence.to_owned())
    }
}

/// Text on one line of a terminal: paths and values come from outside and may hold control
/// characters.
pub(crate) struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if character.is_control() || is_invisible(character) {
                write!(out, "{}", character.escape_default())?;
            } else {
                write!(out, "{character}")?;
            }
        }
        Ok(())
    }
}

/// Whether a terminal shows the text around it in another order, or nothing for it.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

/// An error about a document without the texts that it quotes: the wrong file may be a key.
pub(crate) fn without_texts(error: &str) -> String {
    let mut kept = String::new();
    let (mut quoted, mut escaped) = (false, false);
    for character in error.chars() {
        match (quoted, character) {
            (false, '"') => {
                quoted = true;
                kept.push_str("\"…");
            }
            (false, _) => kept.push(character),
            (true, _) if escaped => escaped = false,
            (true, '\\') => escaped = true,
            (true, '"') => {
                quoted = false;
                kept.push('"');
            }
            (true, _) => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_errors_are_left_out() {
        let error = r#"invalid type: string "a \"key\" \\", expected struct `X`, not "b""#;
        let expected = r#"invalid type: string "…", expected struct `X`, not "…""#;
        assert_eq!(without_texts(error), expected);
        assert_eq!(without_texts(r#"cut "off"#), r#"cut "…"#);
    }

    #[test]
    fn control_characters_in_a_path_are_escaped() {
        let mistake = Mistake::trouble("--config", "a\nb\u{1b}[31m does not exist");
        assert_eq!(mistake.to_string(), "--config: a\\nb\\u{1b}[31m does not exist");
        let mistake = Mistake::trouble("--config", "a\u{202e}b\u{2028}ö");
        assert_eq!(mistake.to_string(), "--config: a\\u{202e}b\\u{2028}ö");
    }
}
