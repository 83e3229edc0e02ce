//! Compares counts with the recorded ones.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;

use crate::count::{SCENARIOS, instructions};

/// A larger increase fails; a larger decrease is worth recording.
const PERCENT: f64 = 5.0;

type Counts = BTreeMap<String, u64>;

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
}

/// Returns whether no count has increased too much.
pub(crate) fn check() -> anyhow::Result<bool> {
    let file = file();
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file:?}"))?;
    let recorded: Counts =
        serde_json::from_str(&text).with_context(|| format!("cannot parse {file:?}"))?;
    let now = count()?;
    println!("{:>10} {:>10} {:>8}  instructions of", "recorded", "now", "change");
    let (mut dearer, mut cheaper) = (Vec::new(), false);
    for (scenario, count) in &now {
        let Some(before) = recorded.get(scenario) else {
            println!("{:>10} {count:>10} {:>8}  {scenario}", "-", "new");
            dearer.push(format!("`{scenario}` is not recorded"));
            continue;
        };
        let change = percent(*before, *count);
        println!("{before:>10} {count:>10} {change:>+7.1}%  {scenario}");
        if change > PERCENT {
            dearer.push(format!("`{scenario}` costs {change:.1} % more"));
        }
        cheaper |= change < -PERCENT;
    }
    let accept =
        "`cargo run --release -p guard -- accept`, and commit tools/guard/instructions.json";
    if !dearer.is_empty() {
        println!("{}. If the cost is justified: {accept} with the reason.", dearer.join(", "));
    } else if cheaper {
        println!("Cheaper than recorded. To keep it: {accept}.");
    }
    Ok(dearer.is_empty())
}

/// Records the current counts.
pub(crate) fn accept() -> anyhow::Result<()> {
    let now = count()?;
    let file = file();
    std::fs::write(&file, format!("{}\n", serde_json::to_string_pretty(&now)?))
        .with_context(|| format!("cannot write {file:?}"))?;
    for (scenario, count) in &now {
        println!("{count:>10}  {scenario}");
    }
    Ok(())
}

fn count() -> anyhow::Result<Counts> {
    let count = |(scenario, times): (&str, usize)| {
        eprintln!("counting {scenario}");
        Ok((scenario.to_owned(), instructions(scenario, times)?))
    };
    SCENARIOS.into_iter().map(count).collect()
}

fn percent(before: u64, now: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let (before, now) = (before as f64, now as f64);
    (now - before) / before * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_change_is_relative_to_what_is_recorded() {
        assert!((percent(200, 210) - 5.0).abs() < 1e-9);
        assert!((percent(200, 190) + 5.0).abs() < 1e-9);
    }

    #[test]
    fn every_scenario_is_recorded() {
        let text = std::fs::read_to_string(file()).expect("it is committed");
        let recorded: Counts = serde_json::from_str(&text).expect("counts");
        for (scenario, _) in SCENARIOS {
            assert!(recorded.get(scenario).is_some_and(|count| *count > 0), "{scenario}");
        }
        assert_eq!(recorded.len(), SCENARIOS.len());
    }
}
