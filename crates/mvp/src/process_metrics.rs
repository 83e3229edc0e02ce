//! Metrics of the process and its build, under the names that Prometheus' own libraries use. Entry:
//! [`ProcessMetrics`].

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::build_info;

/// Clock ticks per second in `/proc`, the same on every architecture that Linux still supports.
const TICKS: f64 = 100.0;

/// Registers the metrics of the process and of its build.
pub(crate) fn register(registry: &mut Registry) {
    let build = Family::<Vec<(&'static str, &'static str)>, Gauge>::default();
    let labels = vec![
        ("version", build_info::VERSION),
        ("commit", build_info::COMMIT),
        ("rustc", build_info::RUSTC),
    ];
    build.get_or_create(&labels).set(1);
    registry.register("mvp_build_info", "Version, commit and compiler of this build", build);
    registry.register_collector(Box::new(ProcessMetrics));
}

/// A collector that reads `/proc` whenever metrics are written. What cannot be read is left out.
#[derive(Debug)]
pub(crate) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stat = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::parse(&text));
        if let Some(seconds) = stat.as_ref().map(|stat| stat.cpu_seconds) {
            let (name, help) = ("process_cpu_seconds", "User and system CPU time.");
            let spent = ConstCounter::new(seconds);
            let metric = encoder.encode_descriptor(name, help, None, spent.metric_type())?;
            spent.encode(metric)?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|text| boot_time(&text));
        let started = stat.and_then(|stat| Some(boot? + stat.started_seconds));
        let limit = rlimit::Resource::NOFILE.get().ok().map(|(soft, _)| number(soft));
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Resident memory size.",
                kibibytes(&status, "VmRSS:"),
            ),
            ("process_virtual_memory_bytes", "Virtual memory size.", kibibytes(&status, "VmSize:")),
            ("process_open_fds", "Open file descriptors.", open_descriptors()),
            ("process_max_fds", "Limit of open file descriptors.", limit),
            ("process_start_time_seconds", "Start of the process, in Unix time.", started),
        ] {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

/// What `/proc/self/stat` tells.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    /// From the boot to the start of the process.
    started_seconds: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The second field is the name of the program in parentheses, which may contain anything.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The first of these is the third field of proc(5).
        let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        Some(Stat {
            cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS,
            started_seconds: ticks(22)? / TICKS,
        })
    }
}

fn boot_time(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The value of a line such as `VmRSS:     1234 kB`, in bytes.
fn kibibytes(status: &str, name: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let value: f64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(value * 1024.0)
}

fn open_descriptors() -> Option<f64> {
    // One of them is open only to list the others.
    let open = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    Some(number(u64::try_from(open).ok()?))
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating point")]
fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_program_name_cannot_shift_the_fields() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 250 150 0 0 20 0 5 0 123456 999 77";
        for name in ["mvp", "a) S 1 (b", "x y"] {
            let text = format!("42 ({name}) {rest}");
            let stat = Stat { cpu_seconds: 4.0, started_seconds: 1234.56 };
            assert_eq!(Stat::parse(&text), Some(stat), "{name}");
        }
        assert_eq!(Stat::parse("42 (mvp) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn memory_and_boot_time() {
        let status = "Name:\tmvp\nVmSize:\t  2048 kB\nVmRSS:\t    3 kB\n";
        assert_eq!(kibibytes(status, "VmSize:"), Some(2_097_152.0));
        assert_eq!(kibibytes(status, "VmRSS:"), Some(3072.0));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nctxt 5\n"), Some(1_700_000_000.0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_described() {
        let (mut registry, mut text) = (Registry::default(), String::new());
        register(&mut registry);
        encode(&mut text, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 1e5);
        assert!(value("process_virtual_memory_bytes ") >= value("process_resident_memory_bytes "));
        assert!((3.0..1e6).contains(&value("process_open_fds ")));
        assert!(value("process_max_fds ") >= value("process_open_fds "));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - value("process_start_time_seconds ");
        // The boot time has whole seconds.
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(value("process_cpu_seconds_total ") >= 0.0);
        let rustc = text.lines().find(|line| line.starts_with("mvp_build_info{")).unwrap();
        assert!(rustc.contains("rustc=\"1.") && rustc.contains("version=\"0."), "{rustc}");
    }
}
