//! What processes cost, as the kernel counts it. Entry item: [`Usage::of`].

use std::fs;
use std::path::Path;

/// CPU time so far and memory now, of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: f64,
}

impl Usage {
    /// Those that have ended count nothing.
    pub(crate) fn of(processes: &[u32]) -> Usage {
        let mut sum = Usage::default();
        for process in processes {
            let folder = format!("/proc/{process}");
            sum.cpu_seconds += cpu_seconds(Path::new(&folder));
            sum.resident_bytes += resident_bytes(&read(&format!("{folder}/status")));
        }
        sum
    }
}

/// The time on a core of every thread, in nanoseconds: `stat` has it in hundredths of a second.
fn cpu_seconds(process: &Path) -> f64 {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}

fn resident_bytes(status: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() * 1024.0
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    12 kB\nThreads:\t1\n"), 12288.0);
        assert_eq!(resident_bytes("Name:\tx\n"), 0.0);
    }

    #[test]
    fn a_process_that_works_uses_time() {
        let this = [std::process::id()];
        let before = Usage::of(&this);
        let started = std::time::Instant::now();
        while started.elapsed().as_millis() < 30 {
            std::hint::black_box(started.elapsed());
        }
        let after = Usage::of(&this);
        assert!(after.cpu_seconds > before.cpu_seconds, "{before:?} {after:?}");
        assert!(after.resident_bytes > 0.0);
    }
}
