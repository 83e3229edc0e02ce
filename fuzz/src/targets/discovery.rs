//! Discovery documents of servers: aggregated, legacy, and their conversion in both directions.

use bytes::Bytes;
use mvp_core::discovery::convert::{api_versions, from_legacy, group, group_list, resource_list};
use mvp_core::discovery::legacy::{
    self, ApiGroup, ApiGroupList, ApiResourceList, ApiVersions, LegacyDocument,
};
use mvp_core::discovery::negotiate::Encoding;
use mvp_core::discovery::{GroupList, Limits, Listed, Part, Source};
use serde_json::Value;

use super::seeds;
use crate::input::{Input, joined};
use crate::target::Target;

pub const TARGET: Target = Target { name: "discovery", run, seeds, words: seeds::WORDS };

const SOURCE: Source<'static> = Source { server: "apiserver-a", document: "/apis" };

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let first = Bytes::copy_from_slice(input.part());
    let second = Bytes::copy_from_slice(input.part());
    for part in Part::ALL {
        aggregated(part, &first, &second);
    }
    older(&first, &second);
    let limits = Limits { max_bytes: 64, max_depth: 3 };
    let _ = GroupList::parse(SOURCE, Part::Apis, first, &limits);
}

/// Parses a document alone and with one that is already known: the result is the same.
fn aggregated(part: Part, first: &Bytes, second: &Bytes) {
    let limits = Limits::default();
    let alone = GroupList::parse(SOURCE, part, first.clone(), &limits);
    let Ok(alone) = alone else { return };
    assert!(alone.complaints.len() <= 101, "{}", alone.complaints.len());
    let _: Vec<String> = alone.complaints.iter().map(ToString::to_string).collect();
    let list = alone.value;
    if let Ok(known) = GroupList::parse(SOURCE, part, second.clone(), &limits) {
        let known = known.value;
        let changed = GroupList::parse_changed(SOURCE, part, first.clone(), &limits, Some(&known));
        assert_eq!(changed.expect("it parses alone").value, list);
        let mut shared = list.clone();
        shared.share(&known);
        assert_eq!(shared, list);
    }
    // What is written is read again, and means the same.
    for version in ["v2", "v2beta1"] {
        let text = list.to_aggregated_json(version);
        let again = GroupList::parse(SOURCE, part, text.clone(), &limits)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text)));
        assert_eq!(again.value.groups, list.groups);
        assert!(again.complaints.is_empty(), "{:?}", again.complaints);
    }
    for one in &list.groups {
        assert_eq!(list.group(&one.name), Some(one));
        for version in &one.versions {
            let legacy = resource_list(one, &version.name).expect("the version is there");
            let text = Bytes::from(serde_json::to_vec(&legacy).expect("JSON"));
            let listed = Listed::parse(text, Encoding::Json);
            assert!(
                listed.is_some_and(|listed| legacy.resources.iter().all(|r| listed.has(&r.name)))
            );
        }
        let _ = group(one);
    }
    let _ = (api_versions(&list), group_list(&list));
}

/// Reads legacy documents, and writes them again.
fn older(first: &Bytes, second: &Bytes) {
    again::<ApiVersions>(first);
    again::<ApiGroup>(first);
    let groups = again::<ApiGroupList>(first).map(|list| list.groups).unwrap_or_default();
    let resources: Vec<ApiResourceList> =
        [again(first), again(second)].into_iter().flatten().collect();
    if let Ok(parsed) = from_legacy(SOURCE, &groups, &resources) {
        let text = parsed.value.to_aggregated_json("v2");
        let read = GroupList::parse(SOURCE, Part::Apis, text, &Limits::default());
        let names = |list: &GroupList| -> Vec<_> {
            list.groups.iter().map(|group| group.name.clone()).filter(|n| !n.is_empty()).collect()
        };
        assert_eq!(names(&read.expect("what we wrote").value), names(&parsed.value));
    }
    for encoding in [Encoding::Json, Encoding::Protobuf, Encoding::Yaml, Encoding::Cbor] {
        let _ = Listed::parse(first.clone(), encoding);
    }
}

/// A document that parses is the same after it was written.
fn again<D: LegacyDocument + PartialEq + std::fmt::Debug + serde::Serialize>(
    document: &Bytes,
) -> Option<D> {
    let limits = Limits::default();
    let parsed: D = legacy::parse(SOURCE, document.clone(), &limits).ok()?;
    let text = serde_json::to_string(&parsed).expect("JSON");
    let read = legacy::parse::<D>(SOURCE, text.clone().into(), &limits);
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert!(value.is_object());
    assert_eq!(read.as_ref(), Ok(&parsed), "{text}");
    Some(parsed)
}

fn seeds() -> Vec<Vec<u8>> {
    let mut all = seeds::documents();
    let [_, groups, _, resources] = seeds::LEGACY;
    all.push(joined(&[groups.as_bytes(), resources.as_bytes()]));
    all.push(joined(&[seeds::AGGREGATED.as_bytes(), seeds::OTHER.as_bytes()]));
    all
}
