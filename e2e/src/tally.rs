//! Counting answers.

use std::collections::BTreeMap;

use anyhow::ensure;

use crate::client::Answer;

/// How often each status came, and what else went wrong.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, usize>);

impl Tally {
    pub(crate) fn count(&mut self, outcome: &anyhow::Result<Answer>) {
        let key = match outcome {
            Ok(answer) => answer.status.as_u16().to_string(),
            Err(_) => "no answer".to_owned(),
        };
        *self.0.entry(key).or_default() += 1;
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

    /// Fails if anything but these came.
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
