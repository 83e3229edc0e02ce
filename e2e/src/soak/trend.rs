//! Whether a figure of a process grows. Entry item: [`judge`].
//!
//! The first half of the time is warm-up. The second half is cut into blocks of equal length. The
//! lower quartile of each leaves out what a restart or an upgrade of a neighbour adds for a while;
//! what a process does not give back stays in it. A line is fitted to these by least squares. Its
//! margin is the confidence interval of 99 %.

use std::time::Duration;

/// What was found of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trend {
    /// The mean of the lower quartiles.
    pub(super) level: f64,
    /// Of all samples in the second half.
    pub(super) highest: f64,
    /// The slope in 24 hours.
    pub(super) a_day: f64,
    /// How far the slope may be off, in either direction.
    pub(super) margin: f64,
    pub(super) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It does not grow, or too little to matter.
    Flat,
    /// It grows beyond doubt, by more than half of its size in a day.
    Grows,
    /// It moves so much that growth by a tenth within the second half could hide in it.
    Undecided,
    /// The run was too short for a verdict.
    TooShort,
}

/// A run below this has no verdict.
const SHORTEST: Duration = Duration::from_secs(15 * 60);
const BLOCKS: usize = 12;
/// Student's t for 99 % on both sides, with two degrees of freedom less than blocks.
const T: f64 = 3.169;
const DAY: f64 = 24.0 * 3600.0;
/// Growth in a day that matters, as a share of the level.
const MATTERS: f64 = 0.5;
/// Growth within the second half that must not hide, as a share of the level.
const HIDES: f64 = 0.1;

/// Judges samples, which have the time since the start of the process's line. None without samples
/// in every block.
pub(super) fn judge(samples: &[(Duration, f64)]) -> Option<Trend> {
    let (first, last) = (samples.first()?.0, samples.last()?.0);
    let half = (last - first) / 2;
    let (start, length) = (first + half, half.as_secs_f64());
    let late = || samples.iter().filter(|(at, _)| *at >= start);
    let mut blocks = [const { Vec::new() }; BLOCKS];
    for (at, value) in late() {
        let place = (*at - start).as_secs_f64() / length * BLOCKS as f64;
        blocks.get_mut((place as usize).min(BLOCKS - 1))?.push(*value);
    }
    let mut quartiles = Vec::new();
    for block in &mut blocks {
        block.sort_by(f64::total_cmp);
        quartiles.push(*block.get(block.len() / 4)?);
    }
    let level = quartiles.iter().sum::<f64>() / BLOCKS as f64;
    // Block numbers, from their middle.
    let offset = |block: usize| block as f64 - (BLOCKS - 1) as f64 / 2.0;
    let spread: f64 = (0..BLOCKS).map(|block| offset(block).powi(2)).sum();
    let each = || quartiles.iter().enumerate();
    let slope = each().map(|(block, value)| offset(block) * value).sum::<f64>() / spread;
    let off = |(block, value): (usize, &f64)| value - level - slope * offset(block);
    let left: f64 = each().map(|one| off(one).powi(2)).sum();
    let error = (left / (BLOCKS - 2) as f64 / spread).sqrt();
    let blocks_a_day = DAY / length * BLOCKS as f64;
    let (a_day, margin) = (slope * blocks_a_day, T * error * blocks_a_day);
    let could_hide = (a_day + margin) * length / DAY;
    let verdict = if last - first < SHORTEST {
        Verdict::TooShort
    } else if a_day - margin > 0.0 && a_day > MATTERS * level {
        Verdict::Grows
    } else if could_hide > HIDES * level {
        Verdict::Undecided
    } else {
        Verdict::Flat
    };
    let highest = late().map(|(_, value)| *value).fold(0.0, f64::max);
    Some(Trend { level, highest, a_day, margin, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample every 5 s of an hour.
    fn hour(value: impl Fn(f64, f64) -> f64) -> Trend {
        minutes(60, value)
    }

    fn minutes(minutes: u64, value: impl Fn(f64, f64) -> f64) -> Trend {
        let mut state = 1_u64;
        let samples: Vec<(Duration, f64)> = (0..minutes * 12)
            .map(|number| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let noise = (state >> 33) as f64 / f64::from(1_u32 << 30) - 1.0;
                let at = Duration::from_secs(5 * number);
                (at, value(at.as_secs_f64() / 60.0, noise))
            })
            .collect();
        judge(&samples).expect("samples in every block")
    }

    #[test]
    fn a_constant_is_flat() {
        let trend = hour(|_, _| 7.0);
        assert_eq!((trend.verdict, trend.level, trend.a_day), (Verdict::Flat, 7.0, 0.0));
    }

    #[test]
    fn noise_and_the_waves_of_restarts_are_flat() {
        assert_eq!(hour(|_, noise| 100.0 + 3.0 * noise).verdict, Verdict::Flat);
        let waves = hour(|minute, noise| 100.0 + 10.0 * (minute / 1.5).fract() + noise);
        assert_eq!(waves.verdict, Verdict::Flat, "{waves:?}");
        // Descriptors, as a neighbour restarts and its watches are elsewhere for a third of the time.
        let burst = |minute: f64| if (minute / 0.9).fract() < 0.3 { 120.0 } else { 0.0 };
        let bursts = hour(|minute, noise| 150.0 + burst(minute) * (1.0 + noise) + 2.0 * noise);
        assert_eq!(bursts.verdict, Verdict::Flat, "{bursts:?}");
        let leak = hour(|minute, noise| 150.0 + burst(minute) * (1.0 + noise) + minute / 2.0);
        assert_eq!(leak.verdict, Verdict::Grows, "{leak:?}");
    }

    #[test]
    fn growth_while_it_warms_up_does_not_count() {
        let warm = hour(|minute, noise| 100.0 + 5.0 * minute.min(28.0) + noise);
        assert_eq!(warm.verdict, Verdict::Flat, "{warm:?}");
    }

    #[test]
    fn a_leak_grows_also_in_noise_and_waves() {
        // A fifth of a percent of the start in a minute.
        let leak = hour(|minute, noise| 100.0 + 0.2 * minute + noise);
        assert_eq!(leak.verdict, Verdict::Grows, "{leak:?}");
        assert!((leak.a_day - 288.0).abs() < leak.margin, "{leak:?}");
        let waves = |minute: f64, noise: f64| 100.0 + 10.0 * (minute / 1.5).fract() + noise;
        let leak = hour(|minute, noise| waves(minute, noise) + 0.4 * minute);
        assert_eq!(leak.verdict, Verdict::Grows, "{leak:?}");
        // One descriptor of 700 at each upgrade, every two minutes.
        let leak = hour(|minute, _| 700.0 + (minute / 2.0).floor());
        assert_eq!(leak.verdict, Verdict::Grows, "{leak:?}");
    }

    #[test]
    fn what_shrinks_is_flat() {
        assert_eq!(hour(|minute, noise| 100.0 - 0.2 * minute + noise).verdict, Verdict::Flat);
    }

    #[test]
    fn wild_figures_are_undecided() {
        let wild = hour(|minute, noise| 100.0 + 60.0 * (minute / 2.0).sin() + 40.0 * noise);
        assert_eq!(wild.verdict, Verdict::Undecided, "{wild:?}");
    }

    #[test]
    fn a_short_run_has_no_verdict() {
        assert_eq!(minutes(10, |minute, _| 100.0 + minute).verdict, Verdict::TooShort);
        assert_eq!(judge(&[]), None);
        let gap = [(Duration::ZERO, 1.0), (Duration::from_secs(3600), 1.0)];
        assert_eq!(judge(&gap), None, "no samples in between");
    }
}
