//! What went wrong before anything was served, as one sentence for the operator.
//!
//! [`Mistake`] is the only error of the command line, the config file and the checks of
//! [`crate::config`]. Its sentence names the flag (or the key, the file and the line), then what is
//! wrong, then what to do.

use std::fmt;
use std::process::ExitCode;

/// A mistake, its sentence and its exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mistake {
    /// What was asked for is wrong: a flag, a value, a key, or a combination. Exit code 2.
    #[error("{}", OneLine(.0))]
    Usage(String),
    /// What was asked for is right, but cannot be had: a file, a host name. Exit code 1.
    #[error("{}", OneLine(.0))]
    Trouble(String),
}

impl Mistake {
    /// A usage mistake about one setting.
    pub(crate) fn usage(setting: impl fmt::Display, sentence: impl fmt::Display) -> Self {
        Self::Usage(format!("{setting}: {sentence}"))
    }

    /// Trouble with what one setting names.
    pub(crate) fn trouble(setting: impl fmt::Display, sentence: impl fmt::Display) -> Self {
        Self::Trouble(format!("{setting}: {sentence}"))
    }

    /// The code that the process ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Trouble(_) => ExitCode::from(1),
        }
    }
}

/// Keeps text on one line of a terminal: paths and values come from outside and may hold anything.
pub(crate) struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if character.is_control() {
                write!(out, "{}", character.escape_default())?;
            } else {
                write!(out, "{character}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_path_stays_on_one_line() {
        let mistake = Mistake::trouble("--config", "a\nb\u{1b}[31m does not exist");
        assert_eq!(mistake.to_string(), "--config: a\\nb\\u{1b}[31m does not exist");
    }
}
