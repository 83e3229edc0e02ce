//! What `--steer` needs of the kernel and of this process. Entry: [`check`].

use std::fs;

use super::GROUP;
use crate::operator::doctor::check::Check;

/// The capabilities by their numbers in `linux/capability.h`.
const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

/// The first release of the kernel with BPF programs of the type `sk_lookup`.
const FIRST: (u32, u32) = (5, 9);

/// Looks at the kernel's release and at the capabilities of this process, which stand for those of
/// `mvp serve`. Without `--steer` it only informs.
pub(super) fn check(asked: bool) -> Check {
    let name = "steering";
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match described(release.trim(), &status) {
        None => GROUP.skip(name, "the kernel and the capabilities cannot be read"),
        Some(found) if asked && !found.kernel => {
            GROUP.fail(name, found.text, "use a node with Linux 5.9 or newer, or remove --steer")
        }
        Some(found) if asked && !found.rights => GROUP.warn(
            name,
            found.text,
            "give mvp serve CAP_BPF and CAP_NET_ADMIN, and run mvp doctor with the same rights",
        ),
        Some(found) => GROUP.ok(name, found.text),
    }
}

/// What was found.
struct Found {
    kernel: bool,
    rights: bool,
    text: String,
}

fn described(release: &str, status: &str) -> Option<Found> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let version: (u32, u32) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(line.trim(), 16).ok()?;
    let has = |capability: u32| held & (1 << capability) != 0;
    let kernel = version >= FIRST;
    let rights = (has(BPF) || has(SYS_ADMIN)) && has(NET_ADMIN);
    let word = |has| if has { "has" } else { "lacks" };
    let text = format!(
        "kernel {release} {} sk_lookup (5.9), and this process {} CAP_BPF and CAP_NET_ADMIN",
        word(kernel),
        word(rights)
    );
    Some(Found { kernel, rights, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_and_capabilities_are_told() {
        let all = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        let text = described("6.8.0-45-generic", all).unwrap().text;
        assert!(text.contains("6.8.0-45-generic has sk_lookup"), "{text}");
        assert!(text.ends_with("has CAP_BPF and CAP_NET_ADMIN"), "{text}");
        let text = described("5.8.1", "CapEff:\t0000000000000000\n").unwrap().text;
        assert!(text.contains("5.8.1 lacks sk_lookup") && text.contains("process lacks"), "{text}");
        assert!(described("", all).is_none());
        assert!(described("6.1.0", "").is_none());
    }
}
