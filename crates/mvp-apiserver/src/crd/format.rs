//! The formats of strings. Entry: [`is_valid`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::table::age;

/// Whether a text has a format. Formats that are not known here are not checked.
pub(super) fn is_valid(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => age::parse(text).is_some(),
        "date" => text.len() == 10 && age::parse(&format!("{text}T00:00:00Z")).is_some(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "byte" => is_base64(text),
        "duration" => is_duration(text),
        "email" => {
            text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && is_hostname(host))
        }
        "hostname" => is_hostname(text),
        "uri" => text.split_once(':').is_some_and(|(scheme, rest)| {
            !rest.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
        }),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|n| n <= most)
}

fn is_uuid(text: &str) -> bool {
    let digits = text.bytes().filter(|byte| *byte != b'-');
    digits.clone().count() == 32 && digits.clone().all(|byte| byte.is_ascii_hexdigit())
}

fn is_base64(text: &str) -> bool {
    let data = text.trim_end_matches('=');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    text.len().is_multiple_of(4) && text.len() - data.len() <= 2 && data.bytes().all(plain)
}

/// A duration of Go: numbers with units, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let Some((number, tail)) = rest.split_at_checked(digits) else {
            return false;
        };
        let units = ["ns", "us", "µs", "ms", "s", "m", "h"];
        let unit = units.iter().filter_map(|unit| tail.strip_prefix(unit)).min_by_key(|t| t.len());
        match unit {
            Some(tail) if number.parse::<f64>().is_ok() => rest = tail,
            _ => return false,
        }
    }
    !text.is_empty()
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_checked() {
        let cases = [
            ("date-time", "2026-01-02T03:04:05.678+01:00", true),
            ("date-time", "2026-01-02", false),
            ("date", "2026-01-02", true),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "10.0.0.256", false),
            ("ipv6", "::1", true),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid", "123e4567", false),
            ("byte", "aGVsbG8=", true),
            ("byte", "aGVsbG8", false),
            ("duration", "1h30m0.5s", true),
            ("duration", "1 hour", false),
            ("email", "a@example.com", true),
            ("email", "example.com", false),
            ("made-up", "anything", true),
        ];
        for (format, text, expected) in cases {
            assert_eq!(is_valid(format, text), expected, "{format} {text}");
        }
    }
}
