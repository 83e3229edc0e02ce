//! Whether the machine was quiet during a run. Entry item: [`verdict`].

use crate::others::{OTHERS, STOLEN};
use crate::results::{Results, Sample};
use crate::scenarios::{LATENCY, REQUESTS};

/// The cores that others may use on average.
const MOST_ON_AVERAGE: f64 = 0.05;
/// The cores that others may use during one measurement; more disturbs it.
const MOST_IN_A_SAMPLE: f64 = 0.15;
/// The share of its time that a proxy with a core of its own may wait for that core.
const MOST_WAITED: f64 = 0.10;
/// The share of measurements that may be disturbed: medians of the rounds do not show that many.
const MOST_DISTURBED: f64 = 0.05;

/// The verdict on a run, with the figures that it is based on.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Quiet(String),
    Busy(String),
    /// The results do not have the figures: they are of an older version.
    Unknown,
}

impl Verdict {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        match self {
            Verdict::Quiet(why) => format!("quiet: {why}"),
            Verdict::Busy(why) => format!("busy: {why}"),
            Verdict::Unknown => "not recorded whether the machine was quiet".to_owned(),
        }
    }
}

/// Judges the run by its measurements, not by the load average: that counts the run itself, and the
/// build before it.
pub(crate) fn verdict(results: &Results) -> Verdict {
    let taken: Vec<f64> = results.samples.iter().filter_map(taken).collect();
    if taken.is_empty() {
        return Verdict::Unknown;
    }
    let measurements = figure(taken.len());
    let mean = taken.iter().sum::<f64>() / measurements;
    let disturbed = results.samples.iter().filter(|sample| is_disturbed(sample)).count();
    let why = format!(
        "others used {mean:.2} cores on average (at most {MOST_ON_AVERAGE} is quiet), and disturbed \
         {disturbed} of {} measurements (at most {:.0} %)",
        taken.len(),
        MOST_DISTURBED * 100.0
    );
    match mean <= MOST_ON_AVERAGE && figure(disturbed) <= MOST_DISTURBED * measurements {
        true => Verdict::Quiet(why),
        false => Verdict::Busy(why),
    }
}

/// The cores that others used during a measurement.
fn taken(sample: &Sample) -> Option<f64> {
    let stolen = sample.figures.get(STOLEN).copied().unwrap_or_default();
    Some(sample.figures.get(OTHERS)? + stolen)
}

fn is_disturbed(sample: &Sample) -> bool {
    // Elsewhere, the processes of the bench share cores with each other.
    let has_core = [REQUESTS, LATENCY].contains(&sample.scenario.as_str());
    let waited = sample.figures.get("waited_share").copied().filter(|_| has_core);
    taken(sample).is_some_and(|cores| cores > MOST_IN_A_SAMPLE)
        || waited.is_some_and(|share| share > MOST_WAITED)
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn figure(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;
    use crate::scenarios::KUBE;

    /// A run of forty measurements, of which the first ones have these figures.
    fn run(scenario: &str, first: &[&[(&str, f64)]]) -> Verdict {
        let quiet: &[(&str, f64)] = &[(OTHERS, 0.01), (STOLEN, 0.0), ("waited_share", 0.02)];
        let figures = |round: usize| first.get(round).copied().unwrap_or(quiet);
        let rows: Vec<_> =
            (0..40).map(|round| (scenario, "c", "haproxy", round, figures(round))).collect();
        verdict(&results(&rows))
    }

    #[test]
    fn a_machine_that_others_hardly_use_is_quiet() {
        let Verdict::Quiet(why) = run(REQUESTS, &[]) else { panic!("it was quiet") };
        assert!(why.starts_with("others used 0.01 cores on average"), "{why}");
        assert!(why.contains("0 of 40 measurements"), "{why}");
    }

    #[test]
    fn two_disturbed_measurements_of_forty_are_tolerated_and_three_are_not() {
        let taken: &[(&str, f64)] = &[(OTHERS, 0.2)];
        assert!(matches!(run(REQUESTS, &[taken; 2]), Verdict::Quiet(_)));
        assert!(matches!(run(REQUESTS, &[taken; 3]), Verdict::Busy(_)));
        let stolen: &[(&str, f64)] = &[(OTHERS, 0.0), (STOLEN, 0.2)];
        assert!(matches!(run(REQUESTS, &[stolen; 3]), Verdict::Busy(_)));
    }

    #[test]
    fn a_little_all_the_time_is_busy() {
        let little: &[(&str, f64)] = &[(OTHERS, 0.06)];
        assert!(matches!(run(REQUESTS, &[little; 40]), Verdict::Busy(_)));
    }

    #[test]
    fn a_proxy_that_waits_for_its_own_core_is_disturbed() {
        let waited: &[(&str, f64)] = &[(OTHERS, 0.0), ("waited_share", 0.3)];
        assert!(matches!(run(LATENCY, &[waited; 3]), Verdict::Busy(_)));
        // Real kube-apiservers share all cores with each other.
        assert!(matches!(run(KUBE, &[waited; 40]), Verdict::Quiet(_)));
    }

    #[test]
    fn results_without_the_figures_are_never_called_quiet() {
        let old = results(&[(REQUESTS, "c", "haproxy", 0, &[("waited_share", 0.0)])]);
        assert_eq!(verdict(&old), Verdict::Unknown);
    }
}
