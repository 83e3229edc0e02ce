//! OpenAPI: the index of version 3 and the merged document of version 2, in JSON and in protobuf.

use bytes::Bytes;
use mvp_core::discovery::{Limits, Source};
use mvp_core::openapi::Index;
use mvp_core::openapi::v2::{self, Format};

use super::{merge, seeds};
use crate::input::{Input, joined};
use crate::target::Target;

pub const TARGET: Target = Target { name: "openapi", run, seeds, words: seeds::WORDS };

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let format = if input.byte() & 1 == 0 { Format::Json } else { Format::Protobuf };
    // Protobuf has zero bytes; its parts have lengths.
    let parts: Vec<Bytes> = match format {
        Format::Json => (0..3).map(|_| Bytes::copy_from_slice(input.part())).collect(),
        Format::Protobuf => {
            let (at, rest) = (usize::from(input.byte()), input.rest());
            let (one, other) = rest.split_at(at.min(rest.len()));
            [one, other].map(Bytes::copy_from_slice).to_vec()
        }
    };
    index(&parts);
    let limits = Limits::default();
    let ready: Vec<Bytes> =
        parts.iter().filter_map(|part| v2::prepare(part.clone(), format, &limits).ok()).collect();
    let merged = v2::merge(&ready, format);
    assert_eq!(merged.is_some(), !ready.is_empty());
    let Some(merged) = merged else { return };
    // What we write can be merged again, which changes nothing.
    let again = v2::prepare(merged.clone(), format, &limits).expect("what we wrote");
    assert_eq!(v2::merge(&[again.clone()], format).as_ref(), Some(&merged));
    let with_first = v2::merge(&[again, ready[0].clone()], format);
    assert_eq!(with_first.as_ref(), Some(&merged), "a document is merged already");
}

fn index(parts: &[Bytes]) {
    let parse = |document: &Bytes| {
        let source = Source { server: "apiserver-a", document: "/openapi/v3" };
        Index::parse(source, document.clone(), &Limits::default()).ok()
    };
    let indexes: Vec<Index> = parts.iter().filter_map(parse).collect();
    for index in &indexes {
        for (key, hash) in index.entries() {
            assert_eq!(index.hash(key), hash.map(|hash| &**hash));
            let safe = |byte: u8| byte.is_ascii_graphic() && !b"?#\"\\<>".contains(&byte);
            assert!(key.bytes().all(safe) && !key.is_empty(), "{key:?}");
        }
        for other in &indexes {
            let mut shared = index.clone();
            shared.share(other);
            assert_eq!(&shared, index);
        }
    }
    let Some(apis) = merge::parse(mvp_core::discovery::Part::Apis, seeds::AGGREGATED.as_bytes())
    else {
        return;
    };
    let members = indexes.into_iter().zip(["a", "b", "c"]).map(|(index, id)| {
        let mut member = merge::member(id, &apis);
        member.view.openapi = Some(index.into());
        member
    });
    let members: Vec<_> = members.collect();
    let mut turned = members.clone();
    turned.reverse();
    let of = |members| {
        let snapshot = merge::snapshot(members, None, None);
        snapshot.openapi().index().map(|document| document.json.body.clone())
    };
    assert_eq!(of(members), of(turned), "two orders of members");
}

fn seeds() -> Vec<Vec<u8>> {
    let [one, other] = seeds::SWAGGER.map(str::as_bytes);
    let json = |parts: &[&[u8]]| [&[0][..], &joined(parts)].concat();
    // A version, a path, and definitions.
    let small =
        b"\x0a\x032.0\x42\x09\x12\x07\x0a\x02/a\x12\x01\x00\x4a\x07\x0a\x05\x0a\x01A\x12\x00";
    vec![
        json(&[one, other]),
        json(&[one]),
        json(&[
            seeds::INDEX.as_bytes(),
            br#"{"paths":{"api/v1":{"serverRelativeURL":"/x?hash=1"}}}"#,
        ]),
        [&[1, small.len() as u8][..], small, small].concat(),
    ]
}
