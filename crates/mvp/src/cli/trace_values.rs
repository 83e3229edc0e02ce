//! Values of the flags of traces. Entries: [`collector`], [`ratio`], [`requests_per_second`].

use http::Uri;

use crate::mistake::Problem;

/// The most requests in a second for which clients may ask to be traced.
const MAX_REQUESTS: u32 = 10_000;

/// Parses the URL of a collector.
pub(super) fn collector(text: &str) -> Result<Uri, Problem> {
    const FORM: &str =
        "write it as http://HOST:4317, or as https://HOST:4317 with --tracing-ca-file";
    // The URL may hold a password, which must not be logged.
    if text.contains('@') {
        return Err(format!("a user in the URL is not supported; {FORM}").into());
    }
    let wrong = || format!("{text:?} is not the URL of an OpenTelemetry collector; {FORM}");
    let uri: Uri = text.trim().parse().map_err(|_| wrong())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    if !known || uri.host().is_none_or(str::is_empty) {
        return Err(wrong().into());
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        let sentence = format!(
            "{text:?} has a path, as collectors have it for OTLP over HTTP; mvp uses OTLP over gRPC, \
             mostly at port 4317: {FORM}"
        );
        return Err(sentence.into());
    }
    Ok(uri)
}

/// Parses the fraction of requests that are traced.
pub(super) fn ratio(text: &str) -> Result<f64, Problem> {
    text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(|| {
        format!("{text:?} is not a ratio; give a fraction from 0 (none) to 1 (all), such as 0.01")
            .into()
    })
}

/// Parses the number of requests for which clients may ask to be traced.
pub(super) fn requests_per_second(text: &str) -> Result<u32, Problem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && *number <= MAX_REQUESTS);
    number.ok_or_else(|| {
        let fix = "give a number from 0 (none) to 10000, such as 10";
        format!("{text:?} is not a number of requests; {fix}").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_collectors() {
        for text in ["http://localhost:4317", "https://otel.example", "http://[::1]:1/"] {
            assert!(collector(text).is_ok(), "{text}");
        }
        for (text, part) in [
            ("localhost:4317", "not the URL of an OpenTelemetry collector"),
            ("", "write it as http://HOST:4317"),
            ("grpc://host:4317", "not the URL of an OpenTelemetry collector"),
            ("http://user:secret@host:4317", "a user in the URL is not supported"),
            ("http://host:4318/v1/traces", "has a path, as collectors have it for OTLP over HTTP"),
            ("http://host?x", "mostly at port 4317"),
        ] {
            let error = collector(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn ratios_and_numbers() {
        assert_eq!(ratio("0"), Ok(0.0));
        assert_eq!(ratio("1"), Ok(1.0));
        assert_eq!(ratio(".25"), Ok(0.25));
        for text in ["", "-0.1", "1.1", "NaN", "1%", "inf"] {
            let error = ratio(text).unwrap_err().to_string();
            assert!(error.contains("give a fraction from 0 (none) to 1 (all)"), "{error}");
        }
        assert_eq!(requests_per_second("0"), Ok(0));
        assert_eq!(requests_per_second("10000"), Ok(10_000));
        for text in ["", "-1", "+1", "10001", "1.5", "many"] {
            let error = requests_per_second(text).unwrap_err().to_string();
            assert!(error.contains("give a number from 0 (none) to 10000"), "{error}");
        }
    }
}
