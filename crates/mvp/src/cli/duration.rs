//! Parsers of times: Go's durations, within the bounds of each flag.

use std::time::Duration;

use crate::mistake::Problem;

/// Parses the time for which a member that left is remembered.
pub(super) fn forget_after(text: &str) -> Result<Duration, Problem> {
    within(text, Duration::ZERO, Duration::from_hours(24), "0s to 24h, such as 10m")
}

/// Parses the time from SIGTERM to the drain.
pub(super) fn shutdown_delay(text: &str) -> Result<Duration, Problem> {
    within(text, Duration::ZERO, Duration::from_mins(10), "0s to 10m, such as 5s")
}

/// Parses the longest time of a drain.
pub(super) fn shutdown_grace(text: &str) -> Result<Duration, Problem> {
    within(text, Duration::ZERO, Duration::from_hours(1), "0s to 1h, such as 30s")
}

/// Parses the interval of discovery.
pub(super) fn refresh_interval(text: &str) -> Result<Duration, Problem> {
    within(text, Duration::from_millis(100), Duration::from_mins(1), "100ms to 1m, such as 1s")
}

/// Parses the time without data after which a connection is at rest.
pub(super) fn idle(text: &str) -> Result<Duration, Problem> {
    within(text, Duration::from_millis(100), Duration::from_hours(1), "100ms to 1h, such as 1s")
}

/// Parses the time without a request after which the connection of a client is closed.
pub(super) fn client_idle(text: &str) -> Result<Duration, Problem> {
    within(text, Duration::from_secs(10), Duration::from_hours(24), "10s to 24h, such as 90s")
}

/// Parses the time for which `mvp adopt` waits for busy connections.
pub(super) fn adopt_timeout(text: &str) -> Result<Duration, Problem> {
    within(text, Duration::from_secs(1), Duration::from_hours(24), "1s to 24h, such as 5m")
}

fn within(text: &str, min: Duration, max: Duration, bounds: &str) -> Result<Duration, Problem> {
    let wrong = |what: &str| format!("{text:?} is {what}; give a time from {bounds}").into();
    match go_duration(text) {
        None => Err(wrong("not a time with a unit")),
        Some(duration) if duration < min || duration > max => Err(wrong("out of bounds")),
        Some(duration) => Ok(duration),
    }
}

/// Parses a duration of Go, as in every Kubernetes flag: `1h30m`, `1.5s`, `100ms`.
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanoseconds = 0_u128;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (number, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() > 18 || fraction.len() > 18 || whole.len() + fraction.len() == 0 {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().ok()? };
        nanoseconds = nanoseconds.checked_add(whole.checked_mul(unit)?)?;
        if !fraction.is_empty() {
            let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
            nanoseconds += fraction.parse::<u128>().ok()?.checked_mul(unit)? / scale;
        }
        rest = after;
    }
    if text.is_empty() {
        return None;
    }
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("1s", Some(1_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("100ms", Some(100_000_000)),
            ("1m0.5s", Some(60_500_000_000)),
            ("7µs", Some(7_000)),
            ("7us", Some(7_000)),
            ("", None),
            ("10", None),
            ("s", None),
            (".s", None),
            ("-1s", None),
            ("1 s", None),
            ("1d", None),
            ("1.2.3s", None),
            ("99999999999999999999h", None),
            ("999999999999999999h", None),
        ] {
            assert_eq!(go_duration(text), expected.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn times_have_bounds() {
        assert_eq!(forget_after("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(refresh_interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(
            refresh_interval("1ms").unwrap_err().to_string(),
            "\"1ms\" is out of bounds; give a time from 100ms to 1m, such as 1s"
        );
        assert!(forget_after("25h").unwrap_err().to_string().contains("out of bounds"));
        assert!(forget_after("soon").unwrap_err().to_string().contains("is not a time"));
    }
}
