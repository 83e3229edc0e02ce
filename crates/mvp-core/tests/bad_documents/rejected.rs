//! Documents that are rejected as a whole. The last good one stays in use.

use bytes::Bytes;
use mvp_core::discovery::Limits;
use mvp_core::discovery::legacy::{self, ApiGroup, ApiGroupList, ApiResourceList, ApiVersions};

use crate::{
    GOOD, SOURCE, check_rejected, check_text, with_group, with_items, with_resource,
    with_subresource,
};

#[test]
fn text_that_is_not_a_document_is_rejected() {
    let good = with_items(&format!("[{GOOD}]"));
    let pretty = good.replace(',', ",\n");
    let status = r#"{"kind":"Status","apiVersion":"v1","items":[]}"#;
    let later = good.replace("/v2", "/v3");
    let cases: [(&str, &str, &str); 16] = [
        ("empty", "", "EOF while parsing a value"),
        ("white space", " \n", "EOF while parsing a value"),
        ("not JSON", "<html>502</html>", "expected value at line 1 column 1"),
        ("not JSON, spaced", "404 page not found\n", "trailing characters at line 1 column 5"),
        ("truncated", &good[..good.len() - 20], "EOF while parsing"),
        ("truncated, spaced", &pretty[..pretty.len() - 20], "EOF while parsing"),
        ("two documents", &format!("{good}\n{good}"), "trailing characters at line 2 column 1"),
        ("byte order mark", &format!("\u{feff}{good}"), "expected value at line 1 column 1"),
        ("NUL first", &format!("\0{good}"), "expected value at line 1 column 1"),
        ("NUL in a name", &good.replace("good.io", "good\0"), "control character"),
        ("a string", "\"text\"", "expected an object"),
        ("an array", "[]", "expected an object"),
        ("null", "null", "expected an object"),
        ("another kind", status, r#"it is kind "Status" of apiVersion "v1", expected"#),
        ("no kind", r#"{"items":[]}"#, r#"it is kind "" of apiVersion """#),
        ("a later version", &later, "apidiscovery.k8s.io/v3"),
    ];
    for (name, document, problem) in cases {
        check_rejected(name, document.to_owned(), "", problem);
    }
    let not_text = [good.as_bytes(), b"\xff"].concat();
    let offset = format!("not UTF-8 from byte {} on", good.len());
    check_rejected("not UTF-8", not_text, "", &offset);
    let wide: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    check_rejected("UTF-16", wide, "", "key must be a string at line 1 column 2");
}

#[test]
fn large_and_deep_documents_are_rejected_unparsed() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let deep = format!("{}0{}", open.repeat(10_000), close.repeat(10_000));
        check_rejected("deep", deep.clone(), "", "nested deeper than 64 levels at byte");
        let unknown = with_group(&format!(r#""future":{deep}"#));
        check_rejected("deep within", unknown, "", "nested deeper than 64 levels at byte");
    }
    // Zero pages that nobody reads take no memory.
    let large = Bytes::from(vec![0; 200 << 20]);
    check_rejected("large", large, "", "it has 209715200 bytes, and the limit is 33554432");
}

#[test]
fn a_field_of_the_wrong_type_is_rejected_with_its_place() {
    let group = |fields: &str| with_items(&format!("[{GOOD},{{{fields}}}]"));
    let version =
        |fields: &str| with_group(&format!(r#""versions":[{{"version":"v1",{fields}}}]"#));
    let cases = [
        ("an item is a number", with_items(&format!("[{GOOD},5]"))),
        ("an item is null", with_items(&format!("[{GOOD},null]"))),
        ("an item is a string", with_items(&format!("[{GOOD},\"apps\"]"))),
        ("metadata", group(r#""metadata":5"#)),
        ("metadata twice", with_group(r#""metadata":{"name":"again"}"#)),
        ("name of a group", group(r#""metadata":{"name":5}"#)),
        ("a huge name of a group", group(r#""metadata":{"name":1e999}"#)),
        ("versions", with_group(r#""versions":{}"#)),
        ("versions twice", with_group(r#""versions":[],"versions":[]"#)),
        ("a version", with_group(r#""versions":["v1"]"#)),
        ("name of a version", with_group(r#""versions":[{"version":1}]"#)),
        ("resources", version(r#""resources":"none""#)),
        ("a resource", version(r#""resources":["pods"]"#)),
        ("freshness", version(r#""freshness":1"#)),
        ("name of a resource", version(r#""resources":[{"resource":{}}]"#)),
        ("verbs", with_resource(r#""verbs":"get""#)),
        ("a verb", with_resource(r#""verbs":["get",5]"#)),
        ("responseKind", with_resource(r#""responseKind":"Pod""#)),
        ("kind", with_resource(r#""responseKind":{"kind":5}"#)),
        ("group of a kind", with_resource(r#""responseKind":{"group":[]}"#)),
        ("version of a kind", with_resource(r#""responseKind":{"version":true}"#)),
        ("scope", with_resource(r#""scope":1"#)),
        ("singularResource", with_resource(r#""singularResource":[]"#)),
        ("shortNames", with_resource(r#""shortNames":"w""#)),
        ("a short name", with_resource(r#""shortNames":[1]"#)),
        ("categories", with_resource(r#""categories":7"#)),
        ("a category", with_resource(r#""categories":[{}]"#)),
        ("subresources", with_resource(r#""subresources":{}"#)),
        ("name of a subresource", with_resource(r#""subresources":[{"subresource":3}]"#)),
        ("verbs of a subresource", with_subresource(r#""verbs":{}"#)),
        ("kind of a subresource", with_subresource(r#""responseKind":5"#)),
        ("acceptedTypes", with_subresource(r#""acceptedTypes":{}"#)),
        ("an accepted type", with_subresource(r#""acceptedTypes":[5]"#)),
    ];
    for (name, document) in cases {
        let problem = if name.ends_with("twice") { "duplicate field" } else { "invalid type" };
        let problem = if name.starts_with("a huge") { "number out of range" } else { problem };
        check_rejected(name, document, "items[1]", problem);
    }
    check_rejected("items", with_items("{}"), "", "invalid type: map, expected a sequence");
    check_rejected("kind", r#"{"kind":5}"#, "", "invalid type: integer `5`");
}

#[test]
fn an_array_is_not_accepted_for_an_object() {
    let cases = [
        ("a group", with_items(&format!(r#"[{GOOD},[{{"name":"good.io"}},[]]]"#))),
        ("metadata", with_items(&format!(r#"[{GOOD},{{"metadata":["good.io"]}}]"#))),
        ("a version", with_group(r#""versions":[["v1"]]"#)),
        ("a resource", with_group(r#""versions":[{"version":"v1","resources":[["pods"]]}]"#)),
        ("a kind", with_resource(r#""responseKind":["apps","v1","Pod"]"#)),
        ("a subresource", with_resource(r#""subresources":[["status"]]"#)),
    ];
    for (name, document) in cases {
        check_rejected(name, document, "items[1]", "");
    }
}

#[test]
fn a_null_verb_is_rejected() {
    check_rejected("a verb", with_resource(r#""verbs":["get",null]"#), "items[1]", "");
}

#[test]
fn bad_legacy_documents_are_rejected() {
    let limits = Limits::default();
    let deep = "[".repeat(10_000);
    let cases: [(&str, &[u8], &str); 10] = [
        ("empty", b"", "EOF while parsing"),
        ("not JSON", b"<html>", "expected value at line 1 column 1"),
        ("not UTF-8", b"{\"kind\":\"\xff\"}", "not UTF-8 from byte 9 on"),
        ("deep", deep.as_bytes(), "nested deeper than 64 levels"),
        ("another kind", br#"{"kind":"Status"}"#, r#"it is kind "Status""#),
        ("no kind", b"{}", r#"it is kind """#),
        ("kind", br#"{"kind":5}"#, "invalid type: integer `5`, expected a string"),
        ("versions", br#"{"kind":"APIVersions","versions":{}}"#, ""),
        ("groups", br#"{"kind":"APIGroupList","groups":[{"name":5}]}"#, ""),
        ("resources", br#"{"kind":"APIResourceList","resources":[{"verbs":"get"}]}"#, ""),
    ];
    for (name, document, problem) in cases {
        let document = Bytes::copy_from_slice(document);
        let errors = [
            legacy::parse::<ApiVersions>(SOURCE, document.clone(), &limits).expect_err(name),
            legacy::parse::<ApiGroupList>(SOURCE, document.clone(), &limits).expect_err(name),
            legacy::parse::<ApiGroup>(SOURCE, document.clone(), &limits).expect_err(name),
            legacy::parse::<ApiResourceList>(SOURCE, document, &limits).expect_err(name),
        ];
        for error in errors {
            check_text(name, &error, "", problem);
        }
    }
    let large = Bytes::from(vec![0; 200 << 20]);
    let error = legacy::parse::<ApiVersions>(SOURCE, large, &limits).expect_err("too large");
    check_text("large", &error, "", "the limit is 33554432");
}
