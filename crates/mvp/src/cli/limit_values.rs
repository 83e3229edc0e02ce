//! Parsers of limits: whole numbers within the bounds of each flag. Entries: one function for each flag.

use super::values::number;
use crate::mistake::Problem;

/// Parses the most bytes of a response that are buffered for a client.
pub(super) fn response_buffer(text: &str) -> Result<usize, Problem> {
    within(text, 16 << 10, 16 << 20, "bytes from 16384 to 16777216, such as 65536 (64 KiB)")
}

/// Parses the largest size of a member's document.
pub(super) fn document_bytes(text: &str) -> Result<usize, Problem> {
    let bounds = "bytes from 1048576 to 1073741824, such as 33554432 (32 MiB)";
    within(text, 1 << 20, 1 << 30, bounds)
}

/// Parses the greatest depth of a member's document. The parser of JSON has a limit of 128 of its own.
pub(super) fn document_depth(text: &str) -> Result<usize, Problem> {
    within(text, 16, 100, "a depth from 16 to 100, such as 64")
}

/// Parses how often a second requests may make a member be asked.
pub(super) fn refreshes(text: &str) -> Result<u32, Problem> {
    let rate = within(text, 1, 1000, "a number from 1 to 1000, such as 20")?;
    u32::try_from(rate).map_err(|_| Problem::from("too large"))
}

fn within(text: &str, min: usize, max: usize, bounds: &str) -> Result<usize, Problem> {
    let fits = |value: &usize| (min..=max).contains(value);
    number(text)
        .filter(fits)
        .ok_or_else(|| format!("{text:?} is not within bounds; give {bounds}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_bounds() {
        assert_eq!(response_buffer("16384"), Ok(16_384));
        assert_eq!(document_bytes("33554432"), Ok(33_554_432));
        assert_eq!(document_depth("100"), Ok(100));
        assert_eq!(refreshes("1"), Ok(1));
        for text in ["", "-1", "16383", "16777217", "64Ki"] {
            let error = response_buffer(text).unwrap_err().to_string();
            assert!(error.contains("give bytes from 16384 to 16777216"), "{error}");
        }
        assert!(document_bytes("1048575").is_err() && document_bytes("1073741825").is_err());
        assert!(document_depth("15").is_err() && document_depth("101").is_err());
        assert!(refreshes("0").is_err() && refreshes("1001").is_err());
    }
}
