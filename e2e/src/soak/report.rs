//! The report of a soak, as Markdown. Entry item: [`Report`].

use std::fmt;
use std::time::Duration;

use super::Plan;
use super::churn::Counts;
use super::figures::{Figures, Line};
use super::trend::{Trend, Verdict, judge};
use crate::history::Judged;
use crate::report::date;

#[derive(Debug)]
pub(super) struct Report {
    took: Duration,
    programs: String,
    command: String,
    counts: Counts,
    judged: Judged,
    /// The figures of the watches, or what was wrong.
    faults: anyhow::Result<String>,
    /// Of the gateways that ran all the time.
    trends: Vec<(&'static str, &'static str, Option<Trend>)>,
    /// The gateways that restarted: how often, and the highest figures.
    restarted: Vec<(&'static str, usize, Figures)>,
}

impl Report {
    pub(super) fn new(
        took: Duration,
        programs: String,
        plan: &Plan,
        counts: Counts,
        judged: Judged,
        faults: anyhow::Result<String>,
        lines: &[Line],
    ) -> Report {
        let Plan { minutes, watches, .. } = plan;
        let command = format!("cargo run -p e2e -- soak --minutes {minutes} --watches {watches}");
        let (mut trends, mut restarted) = (Vec::new(), Vec::new());
        let mut gateways: Vec<&'static str> = lines.iter().map(|line| line.gateway).collect();
        gateways.sort_unstable();
        gateways.dedup();
        for gateway in gateways {
            let lives: Vec<&Line> = lines.iter().filter(|line| line.gateway == gateway).collect();
            if let [line] = lives.as_slice() {
                for (place, what) in Figures::NAMES.into_iter().enumerate() {
                    let of = |(at, figures): &(Duration, Figures)| {
                        Some((*at, figures.each().get(place).copied()?))
                    };
                    let samples: Vec<_> = line.samples.iter().filter_map(of).collect();
                    trends.push((gateway, what, judge(&samples)));
                }
            } else {
                let all = lives.iter().flat_map(|line| &line.samples);
                let highest = all.fold(Figures::default(), |highest, (_, one)| Figures {
                    memory: highest.memory.max(one.memory),
                    descriptors: highest.descriptors.max(one.descriptors),
                    threads: highest.threads.max(one.threads),
                });
                restarted.push((gateway, lives.len() - 1, highest));
            }
        }
        Report { took, programs, command, counts, judged, faults, trends, restarted }
    }

    /// Whether nothing was wrong and nothing grew. What is undecided has not passed; a run that is
    /// too short for a verdict can.
    pub(super) fn passed(&self) -> bool {
        let is_flat = |trend: &Option<Trend>| {
            trend.is_none_or(|trend| matches!(trend.verdict, Verdict::Flat | Verdict::TooShort))
        };
        self.faults.is_ok() && self.trends.iter().all(|(_, _, trend)| is_flat(trend))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.took.as_secs_f64() / 60.0;
        writeln!(f, "# Soak\n\nWritten by `{}`; the rules are in docs/proof.md.\n", self.command)?;
        writeln!(f, "{}, {}\n", date(), self.programs)?;
        let short = |trend: &Trend| trend.verdict == Verdict::TooShort;
        let short = self.trends.iter().all(|(_, _, trend)| trend.as_ref().is_none_or(short));
        let verdict = match (self.passed(), &self.faults) {
            (true, _) if short => "nothing wrong; too short to tell whether something grows".into(),
            (true, _) => "nothing wrong, nothing grows".to_owned(),
            (false, Ok(_)) => "not every figure is flat".to_owned(),
            (false, Err(fault)) => format!("wrong: {fault:#}"),
        };
        writeln!(f, "**{minutes:.0} minutes: {verdict}.**\n")?;
        let Counts { rounds, upgrades, kills, hangs, rotations } = self.counts;
        writeln!(
            f,
            "- {rounds} rounds: {upgrades} upgrades and downgrades, {kills} kills, {hangs} hangs, \
             {rotations} times new certificates"
        )?;
        writeln!(f, "- {}", self.judged)?;
        if let Ok(watches) = &self.faults {
            writeln!(f, "- {watches}")?;
        }
        writeln!(f, "\n| gateway | figure | level | highest | change in 24 h | verdict |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- |")?;
        for (gateway, what, trend) in &self.trends {
            match trend {
                None => writeln!(f, "| {gateway} | {what} | | | | too few samples |")?,
                Some(Trend { level, highest, a_day, margin, verdict }) => {
                    let verdict = match verdict {
                        Verdict::Flat => "flat",
                        Verdict::Grows => "grows",
                        Verdict::Undecided => "undecided",
                        Verdict::TooShort => "too short for a verdict",
                    };
                    writeln!(
                        f,
                        "| {gateway} | {what} | {level:.1} | {highest:.1} | {a_day:+.1} ± \
                         {margin:.1} | {verdict} |"
                    )?;
                }
            }
        }
        for (gateway, restarts, highest) in &self.restarted {
            let Figures { memory, descriptors, threads } = highest;
            writeln!(
                f,
                "\nThe gateway of {gateway} restarted {restarts} times; at most {memory:.1} MB, \
                 {descriptors} descriptors, {threads} threads."
            )?;
        }
        Ok(())
    }
}
