//! Times as text: parsed from objects, and printed as ages. Entries: [`since`], [`parse`].

/// The time since a timestamp of an object, as `kubectl get` shows it.
pub(crate) fn since(timestamp: Option<&str>, now: i64) -> String {
    match timestamp {
        None | Some("") => "<unknown>".to_owned(),
        Some(text) => match parse(text) {
            Some(then) => human(now.saturating_sub(then)),
            None => "<invalid>".to_owned(),
        },
    }
}

/// Seconds since 1970 of an RFC 3339 time; fractions are cut off. `None` if the text is no such time.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't'])?;
    let mut parts = date.splitn(3, '-').zip([4, 2, 2]).map(|(part, digits)| number(part, digits));
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let (clock, offset) = split_offset(rest)?;
    let clock = clock.split_once('.').map_or(clock, |(whole, _)| whole);
    let mut parts = clock.splitn(3, ':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let in_range = (1..=12).contains(&month)
        && (1..=month_length(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    in_range.then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

/// Two to three significant figures of a duration in seconds, by the rules of Kubernetes.
pub(crate) fn human(seconds: i64) -> String {
    let pair = |whole: i64, unit: &str, part: i64, smaller: &str| match part {
        0 => format!("{whole}{unit}"),
        part => format!("{whole}{unit}{part}{smaller}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let days = hours / 24;
    match seconds {
        // Clocks may differ by a second.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// The time of day, and the offset from UTC in seconds.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let place = text.rfind(['+', '-'])?;
    let (clock, offset) = text.split_at_checked(place)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let seconds = number(hours, 2)? * 3_600 + number(minutes, 2)? * 60;
    Some((clock, if offset.starts_with('-') { -seconds } else { seconds }))
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

/// The days of a month.
fn month_length(year: i64, month: i64) -> i64 {
    match month {
        12 => 31,
        _ => days(year, month + 1, 1) - days(year, month, 1),
    }
}

/// Days from 1970-01-01 to a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years start in March, so that leap days come last.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_by_the_calendar() {
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T00:00:00Z", Some(951_782_400)),
            ("2023-12-31T23:59:59.999999Z", Some(1_704_067_199)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400)),
            ("1970-01-01T02:00:00+02:00", Some(0)),
            ("1970-01-01T00:00:00-00:30", Some(1_800)),
            ("0001-01-01T00:00:00Z", Some(-62_135_596_800)),
            ("1970-13-01T00:00:00Z", None),
            ("1970-12-31T00:00:00Z", Some(31_449_600)),
            ("1970-12-32T00:00:00Z", None),
            ("1970-04-31T00:00:00Z", None),
            ("2023-02-29T00:00:00Z", None),
            ("2100-02-29T00:00:00Z", None),
            ("1970-01-00T00:00:00Z", None),
            ("1970-01-01", None),
            ("70-01-01T00:00:00Z", None),
            ("T", None),
            ("1970-01-01T00:00:00+é", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    /// The cases of Kubernetes' own test of `HumanDuration`.
    #[test]
    fn durations_are_those_of_kubernetes() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (70, "70s"),
            (190, "3m10s"),
            (70 * MINUTE, "70m"),
            (47 * HOUR, "47h"),
            (49 * HOUR, "2d1h"),
            (8 * DAY + 2 * HOUR, "8d"),
            (367 * DAY, "367d"),
            (2 * YEAR + 25 * HOUR, "2y1d"),
            (8 * YEAR + 2 * HOUR, "8y"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 59, "3h"),
            (4 * HOUR + 5 * MINUTE, "4h5m"),
            (2 * DAY, "2d"),
            (2 * YEAR, "2y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
        assert_eq!(human(i64::MAX), format!("{}y", i64::MAX / YEAR));
        assert_eq!(human(i64::MIN), "<invalid>");
    }
}
