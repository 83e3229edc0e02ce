//! Documents with faults that are repaired and reported: the faulty entries are ignored or merged, and
//! the rest counts.

use crate::{GOOD, check_cluster, check_text, parse, with_group, with_items};

/// A document with one fault, and the versions of `bad.io` that must be left of it.
struct Case {
    name: &'static str,
    document: String,
    place: &'static str,
    problem: &'static str,
    left: &'static str,
}

#[test]
fn entries_without_a_name_are_ignored() {
    check([
        Case {
            name: "a group without a name",
            document: with_items(&format!(r#"[{{"versions":[]}},{GOOD}]"#)),
            place: "items[0]",
            problem: "the group has no name; the entry is ignored",
            left: "[]",
        },
        Case {
            name: "a version without a name",
            document: one(r#""versions":[{"version":"v1"},{"resources":[]}]"#),
            place: "items[0].versions[1]",
            problem: "the version has no name; the entry is ignored",
            left: r#"[{"version":"v1","resources":[]}]"#,
        },
        Case {
            name: "a resource without a name",
            document: version(
                r#""resources":[{"verbs":["get"]},{"resource":"a","verbs":["get"],"x":1}]"#,
            ),
            place: "items[0].versions[0].resources[0]",
            problem: "the resource has no name; the entry is ignored",
            left: r#"[{"version":"v1","resources":[{"resource":"a","verbs":["get"],"x":1}]}]"#,
        },
        Case {
            name: "a subresource without a name",
            document: resource(r#""subresources":[{"subresource":"a"},{"subresource":null}]"#),
            place: "items[0].versions[0].resources[0].subresources[1]",
            problem: "the subresource has no name; the entry is ignored",
            left: r#"[{"version":"v1","resources":[{"resource":"bads","subresources":[{"subresource":"a"}]}]}]"#,
        },
    ]);
}

#[test]
fn duplicate_entries_are_merged() {
    check([
        Case {
            name: "a group twice",
            document: with_items(&format!(
                r#"[{{"metadata":{{"name":"bad.io"}},"versions":[{{"version":"v1"}}]}},{GOOD},{{"metadata":{{"name":"bad.io"}},"versions":[{{"version":"v2"}}]}}]"#
            )),
            place: "items[2]",
            problem: r#"the group "bad.io" is listed twice; the entries are merged"#,
            left: r#"[{"version":"v1"},{"version":"v2"}]"#,
        },
        Case {
            name: "a version twice",
            document: one(
                r#""versions":[{"version":"v1","resources":[{"resource":"a"}]},{"version":"v1","resources":[{"resource":"b"}]}]"#,
            ),
            place: "items[0].versions[1]",
            problem: r#"the version "v1" is listed twice; the entries are merged"#,
            left: r#"[{"version":"v1","resources":[{"resource":"a"},{"resource":"b"}]}]"#,
        },
        Case {
            name: "a resource twice",
            document: version(
                r#""resources":[{"resource":"a","verbs":["get"],"x":1},{"resource":"a","verbs":["list"],"y":2}]"#,
            ),
            place: "items[0].versions[0].resources[1]",
            problem: r#"the resource "a" is listed twice; the entries are merged"#,
            left: r#"[{"version":"v1","resources":[{"resource":"a","verbs":["get","list"],"x":1,"y":2}]}]"#,
        },
        Case {
            name: "a subresource twice",
            document: resource(
                r#""subresources":[{"subresource":"a","verbs":["get"]},{"subresource":"a","verbs":["patch"]}]"#,
            ),
            place: "items[0].versions[0].resources[0].subresources[1]",
            problem: r#"the subresource "a" is listed twice; the entries are merged"#,
            left: r#"[{"version":"v1","resources":[{"resource":"bads","subresources":[{"subresource":"a","verbs":["get","patch"]}]}]}]"#,
        },
    ]);
}

/// A document whose first group, `bad.io`, has these fields.
fn one(fields: &str) -> String {
    with_items(&format!(r#"[{{"metadata":{{"name":"bad.io"}},{fields}}},{GOOD}]"#))
}

/// As [`one`], with one version that has these fields.
fn version(fields: &str) -> String {
    one(&format!(r#""versions":[{{"version":"v1",{fields}}}]"#))
}

/// As [`version`], with one resource that has these fields.
fn resource(fields: &str) -> String {
    version(&format!(r#""resources":[{{"resource":"bads",{fields}}}]"#))
}

fn check<const N: usize>(cases: [Case; N]) {
    for Case { name, document, place, problem, left } in cases {
        let parsed = parse(document).expect(name);
        assert_eq!(parsed.complaints.len(), 1, "{name}: {:?}", parsed.complaints);
        check_text(name, &parsed.complaints[0], place, problem);
        let left: serde_json::Value = serde_json::from_str(left).unwrap();
        let found = parsed.value.group("bad.io").map_or(serde_json::json!([]), |group| {
            serde_json::from_slice::<serde_json::Value>(&group.raw).unwrap()["versions"].clone()
        });
        assert_eq!(found, left, "{name}");
        let good = parsed.value.group("good.io").expect(name);
        assert_eq!(good.raw, GOOD, "{name}: the rest is intact");
        check_cluster(name, Some(parsed.value));
    }
}

#[test]
fn unknown_fields_are_kept_unparsed() {
    let big = "1".repeat(400);
    let unknown = format!(r#""versions":[],"x":1e999,"y":-{big},"z":1,"z":2,"w":"\ud800\u0000""#);
    let parsed = parse(with_group(&unknown)).expect("unknown fields are not parsed");
    let document = parsed.value.to_aggregated_json("v2");
    assert!(String::from_utf8_lossy(&document).contains(&unknown));
    assert!(parsed.complaints.is_empty());
}
