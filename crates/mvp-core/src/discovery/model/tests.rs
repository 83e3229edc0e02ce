//! Groups that are shared between documents.

use super::*;

const SOURCE: Source<'_> = Source { server: "a", document: "/apis" };

fn group(name: &str, verb: &str) -> String {
    let resource =
        format!(r#"{{"resource":"things","scope":"Namespaced","verbs":["{verb}"],"extra":1}}"#);
    let version = format!(r#"{{"version":"v1","resources":[{resource}]}}"#);
    format!(r#"{{"metadata":{{"name":"{name}"}},"versions":[{version}]}}"#)
}

fn document(groups: &[String]) -> Bytes {
    let items = groups.join(",");
    let text = format!(
        r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{items}]}}"#
    );
    text.into()
}

fn parse(document: &Bytes, known: Option<&GroupList>) -> Parsed<GroupList> {
    let document = document.clone();
    GroupList::parse_changed(SOURCE, Part::Apis, document, &Limits::default(), known)
        .expect("a document")
}

fn is_shared(one: &GroupList, other: &GroupList, name: &str) -> bool {
    let pair = one.group(name).zip(other.group(name));
    pair.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
}

/// Whether the text of a group is kept by the whole document.
fn is_slice_of(document: &Bytes, list: &GroupList, name: &str) -> bool {
    let range = document.as_ptr_range();
    list.group(name).is_some_and(|group| range.contains(&group.raw.as_ptr()))
}

#[test]
fn only_changed_groups_are_parsed_again() {
    let first = parse(&document(&[group("a", "get"), group("b", "get"), group("c", "get")]), None);
    let changed = document(&[group("c", "get"), group("b", "list"), group("d", "get")]);
    let (again, fresh) = (parse(&changed, Some(&first.value)), parse(&changed, None));
    assert_eq!(again.value, fresh.value);
    assert!(is_shared(&again.value, &first.value, "c"));
    assert!(!is_shared(&again.value, &first.value, "b"));
    assert!(is_slice_of(&changed, &fresh.value, "b"));
    for name in ["b", "c", "d"] {
        assert!(!is_slice_of(&changed, &again.value, name), "{name} keeps the whole document");
    }
}

#[test]
fn faults_are_reported_again() {
    let nameless = r#"{"metadata":{"name":"b"},"versions":[{"version":""}]}"#.to_owned();
    let twice = [group("a", "get"), nameless, group("a", "list"), group("a", "get")];
    let document = document(&twice);
    let first = parse(&document, None);
    let again = parse(&document, Some(&first.value));
    assert_eq!(again.value, first.value);
    assert_eq!(again.complaints, first.complaints);
    assert_eq!(first.complaints.len(), 3);
}

#[test]
fn equal_groups_of_two_servers_are_kept_once() {
    let one = parse(&document(&[group("a", "get"), group("b", "get")]), None).value;
    let text = document(&[group("b", "get"), group("a", "list")]);
    let mut sharing = parse(&text, None).value;
    sharing.share(&one);
    assert_eq!(sharing, parse(&text, None).value);
    assert!(is_shared(&sharing, &one, "b") && !is_shared(&sharing, &one, "a"));
    assert!(!is_slice_of(&text, &sharing, "a"));

    let mut apart = parse(&text, None).value;
    apart.share(&GroupList::default());
    assert!(is_slice_of(&text, &apart, "a"), "nothing is copied where nothing is shared");
}

#[test]
fn a_group_is_found_by_name_in_long_lists_and_in_their_copies() {
    let groups: Vec<String> = (0..100).map(|index| group(&format!("g{index}"), "get")).collect();
    let mut list = parse(&document(&groups), None).value;
    let name = |list: &GroupList, name: &str| list.group(name).map(|group| group.name.to_string());
    assert_eq!(name(&list, "g99").as_deref(), Some("g99"));
    assert_eq!(name(&list, "g100"), None);
    let mut copy = list.clone();
    copy.groups.reverse();
    assert_eq!(name(&copy, "g99").as_deref(), Some("g99"));
    assert_eq!(name(&copy, "g0").as_deref(), Some("g0"));
    list.groups.truncate(50);
    assert_eq!(name(&list, "g99"), None, "never another group");
}
