//! The cost of processes, as the kernel counts it. Entry item: [`Usage::of`].

use std::fs;
use std::path::Path;

/// CPU time so far and memory now, of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    /// CPU time of the main threads alone: in `mvp`, of the control loop.
    pub(crate) main_seconds: f64,
    /// The time ready to run while the core was used by others.
    pub(crate) waited_seconds: f64,
    pub(crate) resident_bytes: f64,
}

impl Usage {
    /// The usage of these processes. Exited ones count as zero.
    pub(crate) fn of(processes: &[u32]) -> Usage {
        let mut sum = Usage::default();
        for process in processes {
            let folder = format!("/proc/{process}");
            for thread in fs::read_dir(format!("{folder}/task")).into_iter().flatten().flatten() {
                let [ran, waited] = seconds(&thread.path());
                sum.cpu_seconds += ran;
                sum.waited_seconds += waited;
                if thread.file_name().to_str() == Some(process.to_string().as_str()) {
                    sum.main_seconds += ran;
                }
            }
            sum.resident_bytes += bytes_of("VmRSS:", &read(&format!("{folder}/status")));
        }
        sum
    }
}

/// The memory of a process, with its share of what it has in common with others.
pub(crate) fn proportional_bytes(process: u32) -> f64 {
    bytes_of("Pss:", &read(&format!("/proc/{process}/smaps_rollup")))
}

/// The time of a thread on a core and waiting for one, in nanoseconds: `stat` is limited to
/// hundredths of a second.
fn seconds(thread: &Path) -> [f64; 2] {
    let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let mut fields = text.split_whitespace().map(|field| field.parse::<f64>().unwrap_or_default());
    [fields.next(), fields.next()].map(|nanoseconds| nanoseconds.unwrap_or_default() / 1e9)
}

/// The figure of a line of `/proc`.
fn bytes_of(name: &str, text: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
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
    fn memory_is_read_in_bytes() {
        assert_eq!(bytes_of("VmRSS:", "Name:\tx\nVmRSS:\t    12 kB\nThreads:\t1\n"), 12288.0);
        assert_eq!(bytes_of("VmRSS:", "Name:\tx\n"), 0.0);
    }

    #[test]
    fn a_process_that_works_uses_time() {
        let this = [std::process::id()];
        let before = Usage::of(&this);
        let started = std::time::Instant::now();
        // The kernel counts CPU time in hundredths of a second, however long that takes here.
        let mut after = Usage::of(&this);
        while after.cpu_seconds <= before.cpu_seconds {
            assert!(started.elapsed().as_secs() < 60, "{before:?} {after:?}");
            after = Usage::of(&this);
        }
        assert!(after.resident_bytes > 0.0 && proportional_bytes(std::process::id()) > 0.0);
    }
}
