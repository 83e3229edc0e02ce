//! The two text formats of metrics. `prometheus-client` writes OpenMetrics; Prometheus' own tools, and
//! clients that do not accept OpenMetrics, read the older text format. Entry: [`text`].

use std::fmt::Write as _;

/// The media type of OpenMetrics.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of the text format.
pub(super) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether an `Accept` header names OpenMetrics.
pub(super) fn is_open_metrics(accept: &str) -> bool {
    let names = accept.split(',').filter_map(|range| range.split(';').next());
    names.into_iter().any(|name| name.trim().eq_ignore_ascii_case("application/openmetrics-text"))
}

/// OpenMetrics as the text format, where a counter is described under the name of its samples, with
/// `_total`, and there is neither a unit nor an end mark.
pub(super) fn text(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut help = None;
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), described) => {
                help = Some((name, described.unwrap_or_default()));
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                // Writing to a string does not fail.
                if let Some((_, help)) = help.take().filter(|(described, _)| *described == name) {
                    let _ = writeln!(text, "# HELP {name}{suffix} {help}");
                }
                let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            }
            (Some("#"), ..) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_described_under_the_name_of_its_samples() {
        let open = "# HELP requests Requests by code.\n# TYPE requests counter\n\
                    requests_total{code=\"200\"} 7\n# HELP age_seconds Age.\n\
                    # TYPE age_seconds gauge\n# UNIT age_seconds seconds\nage_seconds 0.5\n\
                    # HELP build Build.\n# TYPE build info\nbuild_info{a=\"b c\"} 1\n\
                    # HELP hop Hop.\n# TYPE hop histogram\nhop_sum 0.0\nhop_count 0\n\
                    hop_bucket{le=\"+Inf\"} 0\n# EOF\n";
        let expected = "# HELP requests_total Requests by code.\n# TYPE requests_total counter\n\
                        requests_total{code=\"200\"} 7\n# HELP age_seconds Age.\n\
                        # TYPE age_seconds gauge\nage_seconds 0.5\n\
                        # HELP build_info Build.\n# TYPE build_info gauge\n\
                        build_info{a=\"b c\"} 1\n\
                        # HELP hop Hop.\n# TYPE hop histogram\nhop_sum 0.0\nhop_count 0\n\
                        hop_bucket{le=\"+Inf\"} 0\n";
        assert_eq!(text(open), expected);
    }

    #[test]
    fn accept_headers() {
        for (accept, open) in [
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", true),
            ("text/plain, Application/OpenMetrics-Text", true),
            ("text/plain;version=0.0.4", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(is_open_metrics(accept), open, "{accept}");
        }
    }
}
