//! Counting answers.

use std::collections::BTreeMap;

use anyhow::ensure;

use crate::client::{Answer, CUT_OFF};

/// How often each status came, and what else went wrong.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, usize>);

impl Tally {
    pub(crate) fn count(&mut self, outcome: &anyhow::Result<Answer>) {
        let key = match outcome {
            Ok(answer) => answer.status.as_u16().to_string(),
            Err(error) if error.chain().any(|cause| cause.to_string() == CUT_OFF) => {
                Tally::CUT_OFF.to_owned()
            }
            Err(_) => "no answer".to_owned(),
        };
        *self.0.entry(key).or_default() += 1;
    }

    /// An answer that had begun when its server died: its end is missing, and looks so. That cannot be
    /// hidden without holding answers back.
    pub(crate) const CUT_OFF: &str = "cut off";

    /// Fails if anything but 200 came, or but what was half way when a server died: so many at the
    /// most.
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
