//! Documents within the limits that are made to cost as much as possible. No test asserts a time: a
//! quadratic algorithm would not finish.

use mvp_core::discovery::GroupList;
use mvp_core::discovery::merge::merge;

use crate::{GOOD, check_cluster, parse, with_group, with_items, with_resource};

const MANY: usize = 50_000;

fn many(entry: impl Fn(usize) -> String) -> String {
    (0..MANY).map(entry).collect::<Vec<_>>().join(",")
}

/// The merge of two servers' documents that differ in every entry.
fn merged(document: impl Fn(&str) -> String) -> GroupList {
    let [first, second] = ["first", "second"].map(|server| {
        let parsed = parse(document(server)).expect("within the limits");
        assert!(parsed.complaints.is_empty());
        parsed.value
    });
    let merged = merge([&first, &second]);
    check_cluster("a merge", Some(first));
    merged
}

#[test]
fn many_subresources_that_differ() {
    let merged = merged(|server| {
        let entry = |i| format!(r#"{{"subresource":"s{i}","verbs":["{server}","get"]}}"#);
        with_resource(&format!(r#""verbs":["get"],"subresources":[{}]"#, many(entry)))
    });
    let resource = &merged.group("bad.io").unwrap().versions[0].resources[0];
    assert_eq!(resource.subresources.len(), MANY);
}

#[test]
fn many_resources_that_overlap() {
    let merged = merged(|server| {
        let shift = if server == "first" { 0 } else { MANY / 2 };
        let entry = |i| format!(r#"{{"resource":"r{}","verbs":["{server}"]}}"#, i + shift);
        with_group(&format!(r#""versions":[{{"version":"v1","resources":[{}]}}]"#, many(entry)))
    });
    let version = &merged.group("bad.io").unwrap().versions[0];
    assert_eq!(version.resources.len(), MANY + MANY / 2);
}

#[test]
fn many_groups_in_contrary_orders() {
    let merged = merged(|server| {
        let number = |i| if server == "first" { i } else { MANY - i };
        let entry = |i| format!(r#"{{"metadata":{{"name":"g{}"}}}}"#, number(i));
        with_items(&format!("[{},{GOOD}]", many(entry)))
    });
    assert_eq!(merged.groups.len(), MANY + 2);
}

#[test]
fn many_unknown_fields_that_differ() {
    let merged = merged(|server| with_resource(&many(|i| format!(r#""{server}{i}":{i}"#))));
    let group = String::from_utf8_lossy(&merged.group("bad.io").unwrap().raw).into_owned();
    assert!(group.contains(r#""first49999":49999"#) && group.contains(r#""second49999":49999"#));
}

#[test]
fn many_verbs_that_differ() {
    let merged = merged(|server| {
        with_resource(&format!(r#""verbs":[{}]"#, many(|i| format!("\"{server}{i}\""))))
    });
    let group = String::from_utf8_lossy(&merged.group("bad.io").unwrap().raw).into_owned();
    assert!(group.contains("\"first49999\"") && group.contains("\"second49999\""));
}

/// The faults of one group do not hide the others, and are reported once, with its name.
#[test]
fn many_faults_of_a_group() {
    let resource = |i| format!(r#"{{"resource":"r{}","verbs":["get"]}}"#, i / 2);
    let twice = format!(r#""versions":[{{"version":"v1","resources":[{}]}}]"#, many(resource));
    let version = |i| format!(r#"{{"version":"v1","resources":[{{"resource":"r{i}"}}]}}"#);
    for (fields, resources) in [
        // Identical duplicates are one, however many there are.
        (twice, MANY / 2),
        // Of those that differ, the first 20 are merged.
        (format!(r#""versions":[{}]"#, many(version)), 21),
    ] {
        let parsed = parse(with_group(&fields)).expect("the rest is used");
        let text = parsed.complaints.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text.len(), 1, "{text:?}");
        assert!(text[0].contains(r#"the group "bad.io" lists more than 20"#), "{text:?}");
        let bad = parsed.value.group("bad.io").expect("the group itself");
        assert_eq!(bad.versions[0].resources.len(), resources);
        assert_eq!(parsed.value.group("good.io").expect("the rest").raw, GOOD);
        check_cluster("many faults of a group", Some(parsed.value));
    }
}

#[test]
fn many_faulty_groups() {
    let nameless = format!("[{},{GOOD}]", many(|_| "{}".to_owned()));
    let group = |i| format!(r#"{{"metadata":{{"name":"g"}},"versions":[{{"version":"v{i}"}}]}}"#);
    let same = format!("[{},{GOOD}]", many(group));
    let twice = |i| {
        let version = r#"{"version":"v1"}"#;
        format!(r#"{{"metadata":{{"name":"g{i}"}},"versions":[{version},{version}]}}"#)
    };
    let each = format!("[{},{GOOD}]", many(twice));
    for (items, groups) in [(nameless, 1), (same, 2), (each, MANY + 1)] {
        let parsed = parse(with_items(&items)).expect("the rest is used");
        assert_eq!(parsed.complaints.len(), 100, "the limit of what is reported");
        assert_eq!(parsed.value.groups.len(), groups);
        check_cluster("many faulty groups", Some(parsed.value));
    }
}

#[test]
fn many_unknown_fields_of_the_list() {
    let merged = merged(|server| {
        let fields = many(|i| format!(r#""{server}{i}":{i}"#));
        with_items("[]").replace("\"items\"", &format!("{fields},\"items\""))
    });
    assert!(merged.groups.is_empty());
}

#[test]
fn many_verbs_of_a_subresource_in_contrary_orders() {
    merged(|server| {
        let number = |i| if server == "first" { i } else { MANY - i };
        let verbs = many(|i| format!("\"v{}\"", number(i)));
        with_resource(&format!(r#""subresources":[{{"subresource":"s","verbs":[{verbs}]}}]"#))
    });
}
