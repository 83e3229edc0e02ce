//! `MergePreservingRelativeOrder`.

use mvp_core::discovery::order::merge_order;

use crate::fixture;

#[test]
fn orders_merge_as_in_kubernetes() {
    for line in fixture("order.jsonl", 200) {
        let lists: Vec<Vec<String>> =
            serde_json::from_value(line["lists"].clone()).expect("lists of names");
        let merged: Vec<String> =
            serde_json::from_value(line["merged"].clone()).expect("a list of names");
        let borrowed: Vec<Vec<&str>> =
            lists.iter().map(|list| list.iter().map(String::as_str).collect()).collect();
        assert_eq!(merge_order(&borrowed), merged, "lists {lists:?}");
    }
}
