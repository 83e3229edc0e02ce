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

/// A few faults are repaired. With this many, the document is rejected.
#[test]
fn many_faults() {
    let nameless = format!("[{},{GOOD}]", many(|_| "{}".to_owned()));
    let version = |i| format!(r#"{{"version":"v1","resources":[{{"resource":"r{i}"}}]}}"#);
    let group = |i| format!(r#"{{"metadata":{{"name":"g"}},"versions":[{{"version":"v{i}"}}]}}"#);
    for document in [
        with_items(&nameless),
        with_group(&format!(r#""versions":[{}]"#, many(version))),
        with_items(&format!("[{}]", many(group))),
    ] {
        let error = parse(document).expect_err("too many faults").to_string();
        assert!(error.contains("apiserver-bad") && error.contains("more than 20"), "{error}");
    }
    check_cluster("many faults", None);
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
