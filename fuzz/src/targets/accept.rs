//! Content negotiation. Kubernetes' rules do not depend on the other clauses of a header except for the
//! order of preference, so the outcome for a header follows from the outcomes for its single clauses.

use mvp_core::discovery::negotiate::{Encoding, Form, Offer, asks_nopeer, conversions, negotiate};

use crate::target::{Target, lines};

const ENCODINGS: [Encoding; 4] =
    [Encoding::Json, Encoding::Yaml, Encoding::Protobuf, Encoding::Cbor];

pub const TARGET: Target = Target {
    name: "accept",
    run,
    seeds,
    words: &[
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/cbor",
        "*/*",
        "application/*",
        ";q=0.5",
        ";q=NaN",
        ";q=-inf",
        ";g=apidiscovery.k8s.io",
        ";v=v2",
        ";v=v2beta1",
        ";as=APIGroupDiscoveryList",
        ";profile=nopeer",
        ";stream=watch",
        ";sv=1",
        ",",
        ";as=Table;v=v1;g=meta.k8s.io",
        "=",
        " ",
    ],
};

fn run(data: &[u8]) {
    let header = String::from_utf8_lossy(data);
    let all = [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy];
    for (forms, encodings) in [
        (&all[..], &ENCODINGS[..]),
        (&[Form::AggregatedV2, Form::Legacy], &ENCODINGS[..3]),
        (&all[2..], &ENCODINGS[..1]),
        (&[], &[]),
    ] {
        check(&header, Offer { forms, encodings });
    }
    for encoding in ENCODINGS {
        let types = conversions(&header, encoding);
        assert!(types.len() <= 64);
    }
}

fn check(header: &str, offer: Offer<'_>) {
    let outcome = negotiate(header, offer);
    assert_eq!(outcome, negotiate(header, offer));
    if let Ok(chosen) = &outcome {
        assert!(offer.encodings.contains(&chosen.encoding), "{header:?}");
        assert!(offer.forms.contains(&chosen.form) || header.is_empty(), "{header:?}");
        assert!(!chosen.nopeer || asks_nopeer(header), "{header:?}");
    }
    if header.is_empty() {
        return;
    }
    // An empty clause is none, while an empty header accepts anything.
    let clauses = header.split(',').take(64).filter(|clause| !clause.is_empty());
    let single: Vec<_> = clauses.filter_map(|clause| negotiate(clause, offer).ok()).collect();
    let is_aggregated = |form: Form| form != Form::Legacy;
    assert_eq!(outcome.is_ok(), !single.is_empty(), "{header:?}: {outcome:?}, {single:?}");
    if let Ok(chosen) = outcome {
        let any = single.iter().any(|one| is_aggregated(one.form));
        assert_eq!(is_aggregated(chosen.form), any, "{header:?}: an aggregated document wins");
        assert!(single.contains(&chosen), "{header:?}: {chosen:?}, {single:?}");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let all = lines("crates/mvp-core/tests/fixtures/oracle/negotiate.jsonl");
    let accept = |line: &serde_json::Value| line["accept"].as_str().unwrap_or_default().to_owned();
    all.iter().map(accept).map(String::into_bytes).collect()
}
