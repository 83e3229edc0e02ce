//! Counts responses and failures.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::ensure;
use serde_json::Value;

use crate::client::{Answer, CUT_OFF};

/// The number of responses by status, and of other failures.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally(BTreeMap<String, usize>);

impl Tally {
    pub(crate) fn count(&mut self, outcome: &anyhow::Result<Answer>) {
        self.one(Tally::key(outcome));
    }

    /// Counts an outcome.
    pub(crate) fn key(outcome: &anyhow::Result<Answer>) -> String {
        match outcome {
            Ok(answer) => answer.status.as_u16().to_string(),
            Err(error) if is_cut_off(error) => Tally::CUT_OFF.to_owned(),
            Err(_) => Tally::NO_ANSWER.to_owned(),
        }
    }

    pub(crate) fn one(&mut self, key: String) {
        *self.0.entry(key).or_default() += 1;
    }

    /// The number of responses that broke off when their server died. This cannot be hidden without
    /// buffering responses.
    pub(crate) const CUT_OFF: &str = "cut off";

    pub(crate) const NO_ANSWER: &str = "no answer";

    /// Fails unless every response is 200. At most this many may have broken off when a server
    /// died.
    pub(crate) fn all_well_but_cut_off(&self, most: usize) -> anyhow::Result<()> {
        self.only(&["200", Tally::CUT_OFF])?;
        let cut_off = self.of(Tally::CUT_OFF);
        ensure!(cut_off <= most, "{cut_off} answers were cut off, {most} can have been: {self}");
        Ok(())
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        for (key, count) in &other.0 {
            *self.0.entry(key.clone()).or_default() += count;
        }
    }

    pub(crate) fn of(&self, key: &str) -> usize {
        self.0.get(key).copied().unwrap_or_default()
    }

    pub(crate) fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Fails unless every response has one of these statuses.
    pub(crate) fn only(&self, allowed: &[&str]) -> anyhow::Result<()> {
        let others = self.0.keys().any(|key| !allowed.contains(&key.as_str()));
        ensure!(!others, "only {} may come, but there were {self}", allowed.join(", "));
        Ok(())
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts: Vec<String> = self.0.iter().map(|(key, n)| format!("{n} × {key}")).collect();
        f.write_str(&counts.join(", "))
    }
}

/// Failures by kind and by second since a moment.
#[derive(Debug, Clone)]
pub(crate) struct Failures {
    since: Instant,
    seconds: BTreeMap<u64, Tally>,
}

impl Failures {
    pub(crate) fn since(moment: Instant) -> Failures {
        Failures { since: moment, seconds: BTreeMap::new() }
    }

    /// Counts an outcome that is not a success, under the name of the operation.
    pub(crate) fn count(&mut self, what: &str, outcome: &anyhow::Result<Answer>) {
        if let Some(kind) = failure(outcome) {
            let second = self.since.elapsed().as_secs();
            self.seconds.entry(second).or_default().one(format!("{what} {kind}"));
        }
    }

    pub(crate) fn add(&mut self, other: &Failures) {
        for (second, tally) in &other.seconds {
            self.seconds.entry(*second).or_default().add(tally);
        }
    }

    /// Failures by kind.
    pub(crate) fn kinds(&self) -> Tally {
        let mut all = Tally::default();
        self.seconds.values().for_each(|tally| all.add(tally));
        all
    }

    /// The number of failures whose kind contains this text.
    pub(crate) fn that_say(&self, words: &str) -> usize {
        let kinds = self.kinds();
        kinds.0.iter().filter(|(kind, _)| kind.contains(words)).map(|(_, count)| count).sum()
    }
}

/// One line for each second in which something failed.
impl std::fmt::Display for Failures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (second, tally) in &self.seconds {
            writeln!(f, "      second {second:3}: {tally}")?;
        }
        Ok(())
    }
}

/// A short description of a failure; none for a success.
fn failure(outcome: &anyhow::Result<Answer>) -> Option<String> {
    let answer = match outcome {
        Ok(answer) if answer.status.is_success() => return None,
        Ok(answer) => answer,
        Err(error) if is_cut_off(error) => return Some(Tally::CUT_OFF.to_owned()),
        Err(error) => return Some(format!("{}: {}", Tally::NO_ANSWER, error.root_cause())),
    };
    let status = answer.json();
    let text = String::from_utf8_lossy(&answer.body);
    let said = status.pointer("/message").and_then(Value::as_str).unwrap_or(&text);
    // For a refusal of `mvp`, its reason.
    let said = said.split_once("cannot be served now: ").map_or(said, |(_, reason)| reason);
    let said = said.split(" (").next().unwrap_or_default().trim();
    let said: String = said.chars().take(60).collect();
    Some(format!("{} {said}", answer.status.as_u16()))
}

fn is_cut_off(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.to_string() == CUT_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &'static str) -> anyhow::Result<Answer> {
        let status = http::StatusCode::from_u16(status)?;
        Ok(Answer { status, headers: http::HeaderMap::new(), body: body.into() })
    }

    #[test]
    fn failures_are_counted_by_kind_and_successes_not_at_all() {
        let refusal = r#"{"kind":"Status","message":"jobs.v1.batch cannot be served now: the local server is down (tried b)"}"#;
        let mut failures = Failures::since(Instant::now());
        failures.count("read", &answer(200, "{}"));
        failures.count("write", &answer(503, refusal));
        failures.count("write", &answer(503, refusal));
        failures.count("read", &answer(404, "404 page not found\n"));
        failures.count("read", &Err(anyhow::anyhow!("refused").context("GET /")));
        let kinds = failures.kinds();
        assert_eq!(kinds.of("write 503 the local server is down"), 2);
        assert_eq!(kinds.of("read 404 404 page not found"), 1);
        assert_eq!(kinds.of("read no answer: refused"), 1);
        assert_eq!((kinds.total(), failures.that_say("server is down")), (4, 2));
    }
}
