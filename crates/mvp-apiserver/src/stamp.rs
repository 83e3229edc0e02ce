//! Creation time, UID and generated name of new objects.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// The current time in the format of Kubernetes: RFC 3339, in UTC, to the second.
pub(crate) fn now() -> String {
    after(0)
}

/// The current time in seconds since 1970.
pub(crate) fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
}

/// The time in this many seconds.
pub(crate) fn after(seconds: u64) -> String {
    format_time(now_seconds().saturating_add_unsigned(seconds.min(LONGEST)))
}

/// A century, so that years keep four digits.
const LONGEST: u64 = 100 * 366 * 86_400;

/// The current time to the microsecond, as `MicroTime`.
pub(crate) fn now_micro() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = format_time(since.as_secs().cast_signed());
    format!("{}.{:06}Z", seconds.trim_end_matches('Z'), since.subsec_micros())
}

/// A random UUID (version 4).
pub(crate) fn unique_id() -> String {
    let (high, low) = (random(), random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

/// Kubernetes' alphabet for generated names: no vowels, so that no words appear.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest prefix that fits a label together with its suffix.
const LONGEST_PREFIX: usize = 58;

/// A generated name with this prefix.
pub(crate) fn generated_name(prefix: &str) -> String {
    let mut name: String = prefix.chars().take(LONGEST_PREFIX).collect();
    let mut rest = random();
    for _ in 0..5 {
        let place = usize::try_from(rest % 27).unwrap_or_default();
        name.extend(ALPHABET.get(place).copied().map(char::from));
        rest /= 27;
    }
    name
}

/// Random numbers for names, from the seeds that the operating system gives to hash maps.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Seconds since 1970, not before the year 1, in the format of Kubernetes.
pub(crate) fn format_time(seconds: i64) -> String {
    let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days are counted in eras of 400 years from 0000-03-01, so that leap days come last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_calendar() {
        let cases = [
            (-62_135_596_800, "0001-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(format_time(seconds), text);
        }
    }

    #[test]
    fn uids_are_uuids_and_differ() {
        let (one, other) = (unique_id(), unique_id());
        assert_ne!(one, other);
        let lengths: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]));
    }

    #[test]
    fn generated_names_fit_a_label() {
        let name = generated_name(&"x".repeat(100));
        assert_eq!(name.len(), 63);
        assert!(generated_name("a-").starts_with("a-"));
    }
}
