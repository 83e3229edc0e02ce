//! `--tracing-endpoint` and the flags beside it.

use mvp_proxy::trace::Sampling;

use super::{Files, with};

#[test]
fn traces_are_off_without_an_endpoint() {
    let files = Files::new("untraced");
    assert!(files.check(&with(&[])).unwrap().tracing.is_none());
    assert!(files.check(&with(&["--tracing-sampling-ratio=1"])).unwrap().tracing.is_none());
}

#[test]
fn a_collector_has_the_documented_defaults() {
    let files = Files::new("traced");
    let tracing = |more: &[&'static str]| files.check(&with(more)).unwrap().tracing.unwrap();
    let plain = tracing(&["--tracing-endpoint=http://localhost"]);
    assert_eq!(plain.collector.to_string(), "http://localhost:4317");
    assert_eq!(plain.sampling, Sampling { ratio: 0.01, client_requests_per_second: 10 });
    let secure = tracing(&[
        "--tracing-endpoint=https://otel.example:443",
        "--tracing-ca-file=@/ca.crt",
        "--tracing-sampling-ratio=0.5",
        "--tracing-client-requests-per-second=0",
    ]);
    assert_eq!(secure.collector.to_string(), "https://otel.example:443");
    assert_eq!(secure.sampling, Sampling { ratio: 0.5, client_requests_per_second: 0 });
}

#[test]
fn plain_http_to_another_host_is_warned_of() {
    let files = Files::new("unencrypted");
    let warned = |flag| {
        let warnings = files.check(&with(&[flag])).unwrap().warnings;
        warnings.iter().any(|warning| warning.contains("unencrypted; use https"))
    };
    assert!(warned("--tracing-endpoint=http://otel.example:4317"));
    assert!(warned("--tracing-endpoint=http://[fd00::1]:4317"));
    for local in ["http://localhost", "http://127.0.0.2:1", "http://[::1]:4317"] {
        let flag = format!("--tracing-endpoint={local}");
        assert!(!warned(flag.leak()), "{local}");
    }
}

#[test]
fn mistakes_name_the_flag_and_the_fix() {
    let files = Files::new("mistraced");
    let wrong = |more: &[&'static str]| files.check(&with(more)).unwrap_err().to_string();
    let ca = "--tracing-ca-file=@/ca.crt";
    for (flags, expected) in [
        (&[ca][..], "--tracing-ca-file: given without --tracing-endpoint; "),
        (&["--tracing-endpoint=https://a"], "--tracing-endpoint: https needs --tracing-ca-file; "),
        (&[ca, "--tracing-endpoint=http://a"], "--tracing-endpoint: http does not use --tracing-"),
        (&["--tracing-endpoint=a:4317"], "--tracing-endpoint: \"a:4317\" is not the URL of an"),
        (&["--tracing-sampling-ratio=2"], "--tracing-sampling-ratio: \"2\" is not a ratio; "),
        (
            &["--tracing-client-requests-per-second=x"],
            "--tracing-client-requests-per-second: \"x\" is not a number of requests; ",
        ),
        (&["--tracing-ca-file=@/missing", "--tracing-endpoint=https://a"], "--tracing-ca-file: "),
    ] {
        let error = wrong(flags);
        assert!(error.starts_with(expected), "{error}");
    }
}
