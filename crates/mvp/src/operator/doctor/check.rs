//! The result of one check: what was looked at, what was found, and how to correct it. Entry:
//! [`Check`].

use serde::Serialize;

/// A finished check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) group: Group,
    /// A stable name, such as `serving certificate names`; for members it starts with their ID.
    pub(crate) name: String,
    pub(crate) result: Outcome,
    /// What was found; for a check that was skipped, why.
    pub(crate) detail: String,
    /// What to do about it; none if there is nothing to do.
    pub(crate) fix: Option<String>,
}

/// The groups of checks, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Group {
    Configuration,
    Certificates,
    LocalServer,
    Rights,
    Etcd,
    Members,
    Gateway,
    Host,
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Ok,
    /// It works, but not as it should, or not for long.
    Warn,
    /// Requests fail, or will.
    Fail,
    /// It could not be checked.
    Skip,
}

impl Group {
    pub(crate) const ALL: [Group; 8] = [
        Group::Configuration,
        Group::Certificates,
        Group::LocalServer,
        Group::Rights,
        Group::Etcd,
        Group::Members,
        Group::Gateway,
        Group::Host,
    ];

    /// Its heading in the report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Group::Configuration => "Configuration",
            Group::Certificates => "Files and certificates",
            Group::LocalServer => "Local server",
            Group::Rights => "Rights of system:apiserver",
            Group::Etcd => "etcd",
            Group::Members => "Members",
            Group::Gateway => "Running gateway",
            Group::Host => "This host",
        }
    }

    pub(crate) fn ok(self, name: impl Into<String>, detail: impl Into<String>) -> Check {
        self.check(name, Outcome::Ok, detail, None)
    }

    pub(crate) fn skip(self, name: impl Into<String>, why: impl Into<String>) -> Check {
        self.check(name, Outcome::Skip, why, None)
    }

    pub(crate) fn warn(
        self,
        name: impl Into<String>,
        detail: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        self.check(name, Outcome::Warn, detail, Some(fix.into()))
    }

    pub(crate) fn fail(
        self,
        name: impl Into<String>,
        detail: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        self.check(name, Outcome::Fail, detail, Some(fix.into()))
    }

    /// A failure in one sentence that ends in its fix, as errors of the configuration do.
    pub(crate) fn mistake(self, name: impl Into<String>, sentence: &str) -> Check {
        let (detail, fix) = split(sentence);
        self.fail(
            name,
            detail,
            fix.unwrap_or_else(|| "correct it; see mvp serve --help".to_owned()),
        )
    }

    fn check(
        self,
        name: impl Into<String>,
        result: Outcome,
        detail: impl Into<String>,
        fix: Option<String>,
    ) -> Check {
        Check { group: self, name: name.into(), result, detail: detail.into(), fix }
    }
}

/// What is wrong, and the fix after the last semicolon.
pub(crate) fn split(sentence: &str) -> (String, Option<String>) {
    match sentence.rsplit_once("; ") {
        Some((what, fix)) => (what.to_owned(), Some(fix.to_owned())),
        None => (sentence.to_owned(), None),
    }
}

impl Outcome {
    /// The word in the report.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Warn => "warn",
            Outcome::Fail => "FAIL",
            Outcome::Skip => "skip",
        }
    }
}
