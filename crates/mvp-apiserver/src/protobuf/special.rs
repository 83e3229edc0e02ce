//! Types whose JSON is not the JSON of their message: times, quantities, `IntOrString`, raw JSON.
//! Entry: [`decode`].

use serde_json::Value;

use super::Fault;
use super::message::Decoded;
use super::table::Kind;
use super::wire::{self, Fields, Raw};
use crate::stamp;

/// Decodes a message of a special type.
pub(super) fn decode(kind: Kind, bytes: &[u8]) -> Result<Decoded, Fault> {
    match kind {
        Kind::Time => time(bytes, false),
        Kind::MicroTime => time(bytes, true),
        Kind::Duration => {
            let nanoseconds = Numbers::read(bytes)?.first;
            Ok(Decoded::new(duration(nanoseconds), nanoseconds == 0))
        }
        Kind::Quantity => quantity(bytes),
        Kind::IntOrString => int_or_string(bytes),
        _ => json(bytes),
    }
}

/// The first two fields, if they are numbers.
#[derive(Default)]
struct Numbers {
    first: i64,
    second: i64,
}

impl Numbers {
    fn read(bytes: &[u8]) -> Result<Numbers, Fault> {
        let mut numbers = Numbers::default();
        for field in Fields(bytes) {
            match field? {
                (1, Raw::Varint(number)) => numbers.first = number.cast_signed(),
                (2, Raw::Varint(number)) => numbers.second = number.cast_signed(),
                _ => {}
            }
        }
        Ok(numbers)
    }
}

/// The start of the year 1, which is Go's zero time, and the end of the year 9999.
const YEARS: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;

/// RFC 3339, to the second or to the microsecond. No content is the zero time.
fn time(bytes: &[u8], micro: bool) -> Result<Decoded, Fault> {
    let Numbers { first: seconds, second: nanoseconds } = Numbers::read(bytes)?;
    let microseconds = if micro { nanoseconds / 1_000 } else { 0 };
    if bytes.is_empty() || (seconds == YEARS.start && microseconds == 0) {
        return Ok(Decoded::new(Value::Null, true));
    }
    if !YEARS.contains(&seconds) || !(0..1_000_000).contains(&microseconds) {
        return Err(Fault::new("the time is not between the years 1 and 9999"));
    }
    let mut text = stamp::format_time(seconds);
    if micro {
        text = format!("{}.{microseconds:06}Z", text.trim_end_matches('Z'));
    }
    Ok(Decoded::new(text, false))
}

/// A duration as Go writes it: `1h30m0s`, `1.5s`, `2.5ms`.
fn duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    let (unit, size) = match total {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let (whole, rest) = (total / size, total % size);
    let width = size.ilog10() as usize;
    let fraction = match rest {
        0 => String::new(),
        rest => format!(".{rest:0width$}").trim_end_matches('0').to_owned(),
    };
    let (hours, minutes, seconds) = (whole / 3_600, whole / 60 % 60, whole % 60);
    match (unit, whole) {
        ("s", 3_600..) => format!("{sign}{hours}h{minutes}m{seconds}{fraction}s"),
        ("s", 60..) => format!("{sign}{minutes}m{seconds}{fraction}s"),
        _ => format!("{sign}{whole}{fraction}{unit}"),
    }
}

/// A quantity is text that its writer has already brought to the canonical form.
fn quantity(bytes: &[u8]) -> Result<Decoded, Fault> {
    let mut text = String::from("0");
    for field in Fields(bytes) {
        if let (1, Raw::Bytes(written)) = field? {
            text = wire::text(written);
        }
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    if text.is_empty() || !text.chars().all(allowed) {
        return Err(Fault::new(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ));
    }
    let zero = text == "0";
    Ok(Decoded::new(text, zero))
}

fn int_or_string(bytes: &[u8]) -> Result<Decoded, Fault> {
    let Numbers { first: kind, second: number } = Numbers::read(bytes)?;
    let mut text = String::new();
    for field in Fields(bytes) {
        if let (3, Raw::Bytes(written)) = field? {
            text = wire::text(written);
        }
    }
    match kind {
        // Go keeps the low half, too.
        0 => Ok(Decoded::new(number as i32, number as i32 == 0 && text.is_empty())),
        1 => Ok(Decoded::new(text, false)),
        _ => Err(Fault::new("impossible IntOrString.Type")),
    }
}

/// JSON as bytes; none is null.
fn json(bytes: &[u8]) -> Result<Decoded, Fault> {
    let mut raw: &[u8] = &[];
    for field in Fields(bytes) {
        if let (1, Raw::Bytes(written)) = field? {
            raw = written;
        }
    }
    if raw.is_empty() {
        return Ok(Decoded::new(Value::Null, true));
    }
    let value: Value = serde_json::from_slice(raw)
        .map_err(|error| Fault::new(format!("the raw JSON is malformed: {error}")))?;
    Ok(Decoded::new(value, false))
}
