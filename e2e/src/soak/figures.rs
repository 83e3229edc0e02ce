//! Memory, descriptors and threads of a process, as the kernel counts them, and a task that samples
//! the gateways. Entry item: [`Sampler`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// One sample of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Figures {
    /// Resident memory in MB.
    pub(super) memory: f64,
    pub(super) descriptors: f64,
    pub(super) threads: f64,
}

impl Figures {
    pub(super) const NAMES: [&str; 3] = ["memory in MB", "descriptors", "threads"];

    /// In the order of the names.
    pub(super) fn each(self) -> [f64; 3] {
        [self.memory, self.descriptors, self.threads]
    }

    /// The figures of a running process.
    fn of(process: u32) -> anyhow::Result<Figures> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse::<f64>().ok()).context("no such field")
        };
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"))?.count() as f64;
        let memory = field("VmRSS:")? * 1024.0 / 1e6;
        Ok(Figures { memory, descriptors, threads: field("Threads:")? })
    }
}

/// The samples of one process, with the time since the start of the run.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) gateway: &'static str,
    pub(super) process: u32,
    pub(super) samples: Vec<(Duration, Figures)>,
}

/// Samples the gateways until it is dropped.
pub(super) struct Sampler {
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    processes: BTreeMap<&'static str, u32>,
    lines: Vec<Line>,
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The time between samples.
const EVERY: Duration = Duration::from_secs(5);

impl Sampler {
    pub(super) fn start() -> Sampler {
        let shared = Arc::<Mutex<Shared>>::default();
        let (started, sampled) = (Instant::now(), Arc::clone(&shared));
        let task = tokio::spawn(async move {
            let mut pace = interval(EVERY);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                pace.tick().await;
                lock(&sampled).sample(started.elapsed());
            }
        });
        Sampler { shared, task }
    }

    /// Samples this process as that gateway from now on.
    pub(super) fn follow(&self, gateway: &'static str, process: u32) {
        lock(&self.shared).processes.insert(gateway, process);
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        lock(&self.shared).lines.clone()
    }

    /// The last sample of each gateway.
    pub(super) fn last(&self) -> String {
        let shared = lock(&self.shared);
        let of = |(gateway, process): (&&str, &u32)| {
            let line = shared.lines.iter().find(|line| line.process == *process)?;
            let (_, Figures { memory, descriptors, threads }) = line.samples.last()?;
            Some(format!("{gateway} {memory:.1} MB, {descriptors} descriptors, {threads} threads"))
        };
        let all: Vec<String> = shared.processes.iter().filter_map(of).collect();
        all.join("; ")
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// A process that ends in this moment has no sample.
    fn sample(&mut self, at: Duration) {
        for (gateway, process) in &self.processes {
            let Ok(figures) = Figures::of(*process) else { continue };
            match self.lines.iter_mut().find(|line| line.process == *process) {
                Some(line) => line.samples.push((at, figures)),
                None => {
                    let (gateway, process) = (*gateway, *process);
                    self.lines.push(Line { gateway, process, samples: vec![(at, figures)] });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_this_process_are_those_of_a_process() {
        let before = Figures::of(std::process::id()).expect("it runs");
        let held: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null")).collect();
        let after = Figures::of(std::process::id()).expect("it runs");
        assert!(after.descriptors >= before.descriptors + 40.0, "{before:?} {after:?}");
        assert!(after.memory > 0.5 && after.threads >= 1.0, "{after:?}");
        drop(held);
        assert!(Figures::of(u32::MAX).is_err());
    }
}
