//! What steering of connections will need of the kernel. It does not exist yet, so this is never more
//! than information. Entry: [`check`].

use std::fs;

use super::GROUP;
use crate::operator::doctor::check::Check;

/// The capabilities by their numbers in `linux/capability.h`.
const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

/// The first release of the kernel with BPF programs of the type `sk_lookup`.
const FIRST: (u32, u32) = (5, 9);

/// Looks at the kernel's release and at the capabilities of this process.
pub(super) fn check() -> Check {
    let name = "steering";
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match described(release.trim(), &status) {
        Some(text) => GROUP.ok(name, text),
        None => GROUP.skip(name, "the kernel and the capabilities cannot be read"),
    }
}

fn described(release: &str, status: &str) -> Option<String> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let version: (u32, u32) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(line.trim(), 16).ok()?;
    let has = |capability: u32| held & (1 << capability) != 0;
    let kernel = if version >= FIRST { "has" } else { "lacks" };
    let rights = match (has(BPF) || has(SYS_ADMIN)) && has(NET_ADMIN) {
        true => "has",
        false => "lacks",
    };
    Some(format!(
        "mvp does not steer connections yet; kernel {release} {kernel} sk_lookup (5.9), and this \
         process {rights} CAP_BPF and CAP_NET_ADMIN"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_and_capabilities_are_told() {
        let all = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        let text = described("6.8.0-45-generic", all).unwrap();
        assert!(text.contains("6.8.0-45-generic has sk_lookup"), "{text}");
        assert!(text.ends_with("has CAP_BPF and CAP_NET_ADMIN"), "{text}");
        let text = described("5.8.1", "CapEff:\t0000000000000000\n").unwrap();
        assert!(text.contains("5.8.1 lacks sk_lookup") && text.contains("process lacks"), "{text}");
        assert_eq!(described("", all), None);
        assert_eq!(described("6.1.0", ""), None);
    }
}
