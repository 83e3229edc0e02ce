//! The work of other processes on the machine during a measurement. Entry item: [`Others::now`].

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use crate::load::Figures;

/// The cores that processes outside of the bench used during a measurement.
pub(crate) const OTHERS: &str = "others_cores";
/// The cores that the hypervisor gave to other machines.
pub(crate) const STOLEN: &str = "stolen_cores";

/// The kernel counts in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;
/// The process of which every kernel thread is a child. What those do, the bench causes itself.
const KERNEL: u32 = 2;

/// The time that others have used so far.
#[derive(Debug)]
pub(crate) struct Others {
    at: Instant,
    processes_seconds: f64,
    stolen_seconds: f64,
}

impl Others {
    pub(crate) fn now() -> Others {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = processes.filter_map(|entry| {
            entry.file_name().to_str()?.parse::<u32>().ok()?;
            Stat::parse(&fs::read_to_string(entry.path().join("stat")).ok()?)
        });
        let all: BTreeMap<u32, Stat> = stats.map(|stat| (stat.process, stat)).collect();
        Others {
            at: Instant::now(),
            processes_seconds: ticks_outside(&all, std::process::id()) / TICKS_PER_SECOND,
            stolen_seconds: stolen_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default())
                / TICKS_PER_SECOND,
        }
    }

    /// What they used since then.
    pub(crate) fn figures(&self) -> Figures {
        let now = Others::now();
        let seconds = (now.at - self.at).as_secs_f64().max(f64::MIN_POSITIVE);
        // A process that ends between two reads is missing in one of them.
        let cores = |before: f64, after: f64| ((after - before) / seconds).max(0.0);
        Figures::from([
            (OTHERS.to_owned(), cores(self.processes_seconds, now.processes_seconds)),
            (STOLEN.to_owned(), cores(self.stolen_seconds, now.stolen_seconds)),
        ])
    }
}

/// A process in `/proc/PID/stat`.
#[derive(Debug, PartialEq)]
struct Stat {
    process: u32,
    parent: u32,
    /// The time of the process, and of those of its children that have ended: it does not get less when a
    /// child ends.
    ticks: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        let process = text.split(' ').next()?.parse().ok()?;
        // The name is in parentheses, and may have any character.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let parent = fields.get(1)?.parse().ok()?;
        let times = fields.get(11..15)?.iter().map(|field| field.parse::<f64>());
        Some(Stat { process, parent, ticks: times.sum::<Result<f64, _>>().ok()? })
    }
}

/// The ticks of all processes but the kernel's threads, this one, and those that it started.
fn ticks_outside(all: &BTreeMap<u32, Stat>, this: u32) -> f64 {
    let is_outside = |stat: &&Stat| {
        let mut process = stat.process;
        // A chain of parents is never longer than the list, unless it was read while it changed.
        for _ in 0..all.len() {
            if process == this || process == KERNEL {
                return false;
            }
            match all.get(&process) {
                Some(stat) => process = stat.parent,
                None => break,
            }
        }
        true
    };
    all.values().filter(is_outside).map(|stat| stat.ticks).sum()
}

/// The stolen time in `/proc/stat`: the eighth figure.
fn stolen_ticks(text: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let figure = line.and_then(|line| line.split_whitespace().nth(7)?.parse().ok());
    figure.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_includes_that_of_ended_children() {
        let text = "7 (a ) b) S 3 7 7 0 -1 4194304 1 2 3 4 100 20 3000 4 20 0 1 0 5 6 7";
        let stat = Stat { process: 7, parent: 3, ticks: 3124.0 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("7 (a) S"), None);
    }

    #[test]
    fn the_bench_and_the_kernel_are_not_others() {
        let stat = |process, parent, ticks| (process, Stat { process, parent, ticks });
        let all = BTreeMap::from([
            stat(1, 0, 1.0),
            stat(2, 0, 10.0),
            stat(3, 2, 100.0),
            // The bench, its proxy, and a child of that.
            stat(20, 1, 1e3),
            stat(21, 20, 1e4),
            stat(22, 21, 1e5),
            stat(30, 1, 2.0),
        ]);
        assert_eq!(ticks_outside(&all, 20), 3.0);
    }

    #[test]
    fn stolen_time_is_the_eighth_figure() {
        assert_eq!(stolen_ticks("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 2 3 4 5 6 7 44 9 10\n"), 88.0);
        assert_eq!(stolen_ticks(""), 0.0);
    }

    #[test]
    fn a_measurement_has_figures_of_others() {
        let figures = Others::now().figures();
        assert!(figures.contains_key(OTHERS) && figures.contains_key(STOLEN));
    }
}
