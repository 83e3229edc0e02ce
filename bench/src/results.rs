//! The stored measurements of a run: one [`Sample`] for each target, case and round.

use serde::{Deserialize, Serialize};

use crate::load::Figures;
use crate::machine::Machine;

/// The raw data of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) full: bool,
    pub(crate) rounds: usize,
    /// What could not be measured, and why.
    pub(crate) missing: Vec<String>,
    pub(crate) samples: Vec<Sample>,
}

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) scenario: String,
    pub(crate) case: String,
    pub(crate) target: String,
    pub(crate) round: usize,
    pub(crate) figures: Figures,
}

impl Results {
    /// The median of a figure over the rounds.
    pub(crate) fn median(
        &self,
        scenario: &str,
        case: &str,
        target: &str,
        name: &str,
    ) -> Option<f64> {
        median(self.values(scenario, case, target, name))
    }

    /// The median, minimum and maximum of a figure over the rounds.
    pub(crate) fn spread(
        &self,
        scenario: &str,
        case: &str,
        target: &str,
        name: &str,
    ) -> Option<Ratio> {
        let values = self.values(scenario, case, target, name);
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        Some(Ratio { median: median(values)?, least, most })
    }

    /// The ratio of two targets: the median of the ratios of each round, since both were measured
    /// within seconds of each other under the same noise.
    pub(crate) fn ratio(
        &self,
        scenario: &str,
        case: &str,
        [target, to]: [&str; 2],
        name: &str,
    ) -> Option<Ratio> {
        self.ratio_of(scenario, [case, case], [target, to], |figures| figures.get(name).copied())
    }

    /// The ratio of a value computed from the figures of a sample.
    pub(crate) fn ratio_of(
        &self,
        scenario: &str,
        cases: [&str; 2],
        targets: [&str; 2],
        figure: impl Fn(&Figures) -> Option<f64>,
    ) -> Option<Ratio> {
        let [one, other] = [0, 1].map(|side| {
            let case = cases.get(side).copied().unwrap_or_default();
            let target = targets.get(side).copied().unwrap_or_default();
            self.of(scenario, case, target)
        });
        let mut ratios = Vec::new();
        for sample in one {
            let same_round = other.iter().find(|other| other.round == sample.round);
            let values = same_round.and_then(|other| {
                Some((figure(&sample.figures)?, figure(&other.figures).filter(|v| *v > 0.0)?))
            });
            ratios.extend(values.map(|(value, base)| value / base));
        }
        let least = ratios.iter().copied().reduce(f64::min)?;
        let most = ratios.iter().copied().reduce(f64::max)?;
        Some(Ratio { median: median(ratios)?, least, most })
    }

    /// The samples of one target in one case.
    pub(crate) fn of(&self, scenario: &str, case: &str, target: &str) -> Vec<&Sample> {
        let wanted = |sample: &&Sample| {
            sample.scenario == scenario && sample.case == case && sample.target == target
        };
        self.samples.iter().filter(wanted).collect()
    }

    /// The cases of a scenario, in the order of the run.
    pub(crate) fn cases(&self, scenario: &str) -> Vec<&str> {
        self.distinct(scenario, |sample| &sample.case)
    }

    /// The targets of a scenario, in the order of the run.
    pub(crate) fn targets(&self, scenario: &str) -> Vec<&str> {
        self.distinct(scenario, |sample| &sample.target)
    }

    fn distinct(&self, scenario: &str, part: impl Fn(&Sample) -> &String) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for sample in self.samples.iter().filter(|sample| sample.scenario == scenario) {
            if !found.contains(&part(sample).as_str()) {
                found.push(part(sample));
            }
        }
        found
    }

    fn values(&self, scenario: &str, case: &str, target: &str, name: &str) -> Vec<f64> {
        let samples = self.of(scenario, case, target);
        samples.iter().filter_map(|sample| sample.figures.get(name).copied()).collect()
    }
}

/// A ratio over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    match values.len() % 2 {
        1 => Some(upper),
        _ => Some((upper + *values.get(middle - 1)?) / 2.0),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Scenario, case, target, round, figures.
    type Row<'a> = (&'a str, &'a str, &'a str, usize, &'a [(&'a str, f64)]);

    pub(crate) fn results(samples: &[Row<'_>]) -> Results {
        let sample = |(scenario, case, target, round, figures): &Row<'_>| Sample {
            scenario: (*scenario).to_owned(),
            case: (*case).to_owned(),
            target: (*target).to_owned(),
            round: *round,
            figures: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        let samples = samples.iter().map(sample).collect();
        let machine = Machine::default();
        Results { machine, full: true, rounds: 2, missing: Vec::new(), samples }
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn a_ratio_is_that_of_each_round() {
        // The machine was twice as slow in the second round: the ratio is the same.
        let results = results(&[
            ("s", "c", "a", 0, &[("x", 1.0)]),
            ("s", "c", "b", 0, &[("x", 2.0)]),
            ("s", "c", "a", 1, &[("x", 2.0)]),
            ("s", "c", "b", 1, &[("x", 4.0)]),
        ]);
        let ratio = results.ratio("s", "c", ["a", "b"], "x");
        assert_eq!(ratio, Some(Ratio { median: 0.5, least: 0.5, most: 0.5 }));
        assert_eq!(results.ratio("s", "c", ["a", "nobody"], "x"), None);
    }
}
