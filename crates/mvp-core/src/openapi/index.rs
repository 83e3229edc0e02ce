//! The index at `/openapi/v3` of one member. Entry item: [`Index`].

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use crate::discovery::json::{self, Object};
use crate::discovery::{DocumentError, Limits, Problem, Source};

/// The keys of a member's documents of version 3, with their hashes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    entries: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// The entity tag from the server, for conditional requests.
    pub etag: Option<Box<str>>,
}

/// The maximum length of a hash. Those of Kubernetes have 128 digits.
const MAX_HASH: usize = 256;

impl Index {
    /// Parses the index. Of each URL only the hash is kept: this proxy makes the URLs for clients.
    pub fn parse(
        source: Source<'_>,
        document: Bytes,
        limits: &Limits,
    ) -> Result<Index, DocumentError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Path {
            #[serde(rename = "serverRelativeURL")]
            url: String,
        }
        let bad = |problem| source.error(Default::default(), problem);
        let document = json::prepare(document, limits).map_err(bad)?;
        let malformed = |error: serde_json::Error| bad(Problem::syntax(&error));
        let whole: Object<'_> = serde_json::from_slice(&document).map_err(malformed)?;
        let paths = Object::parse(whole.get("paths").unwrap_or("null")).map_err(malformed)?;
        let mut entries = Vec::new();
        for (key, path) in paths.fields() {
            let Path { url } = serde_json::from_str(path).map_err(malformed)?;
            if is_key(key) {
                entries.push((Arc::from(key), hash(&url).map(Arc::from)));
            }
        }
        entries.sort();
        entries.dedup_by(|later, first| later.0 == first.0);
        Ok(Index { entries, etag: None })
    }

    /// Shares the keys and hashes that `other` has too with it.
    pub fn share(&mut self, other: &Index) {
        let mut theirs = other.entries.iter().peekable();
        for (key, hash) in &mut self.entries {
            while theirs.next_if(|(their_key, _)| *their_key < *key).is_some() {}
            if let Some((same, their_hash)) = theirs.next_if(|(their_key, _)| *their_key == *key) {
                *key = Arc::clone(same);
                if *hash == *their_hash {
                    hash.clone_from(their_hash);
                }
            }
        }
    }

    /// The hash of the document with this key.
    pub fn hash(&self, key: &str) -> Option<&str> {
        let place = self.entries.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        self.entries.get(place)?.1.as_deref()
    }

    /// The keys and hashes, sorted by key.
    pub fn entries(&self) -> impl Iterator<Item = (&Arc<str>, Option<&Arc<str>>)> {
        self.entries.iter().map(|(key, hash)| (key, hash.as_ref()))
    }
}

/// Whether a key can be used in a path without encoding.
fn is_key(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    !key.is_empty()
        && key.bytes().all(plain)
        && !key.split('/').any(|step| matches!(step, "" | ".."))
}

fn hash(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    let hash = query.split('&').find_map(|pair| pair.strip_prefix("hash="))?;
    let plain = hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (plain && !hash.is_empty() && hash.len() <= MAX_HASH).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source<'_> = Source { server: "a", document: "/openapi/v3" };

    fn parse(text: &str) -> Result<Index, DocumentError> {
        Index::parse(SOURCE, Bytes::copy_from_slice(text.as_bytes()), &Limits::default())
    }

    #[test]
    fn an_index_has_keys_and_hashes() {
        let index = parse(
            r#"{"paths":{"apis/b/v1":{"serverRelativeURL":"/openapi/v3/apis/b/v1?hash=AB12"},
                "api/v1":{"serverRelativeURL":"/openapi/v3/api/v1"},
                ".well-known/openid-configuration":{"serverRelativeURL":"/x?y=z&hash=0"}}}"#,
        )
        .expect("an index");
        let entries: Vec<_> =
            index.entries().map(|(key, hash)| (&**key, hash.map(|h| &**h))).collect();
        let well_known = (".well-known/openid-configuration", Some("0"));
        assert_eq!(entries, [well_known, ("api/v1", None), ("apis/b/v1", Some("AB12"))]);
    }

    #[test]
    fn equal_entries_of_two_members_are_kept_once() {
        let text = |hashes: &[(&str, u8)]| {
            let path = |(key, hash): &(&str, u8)| {
                format!(r#""{key}":{{"serverRelativeURL":"/openapi/v3/{key}?hash={hash}"}}"#)
            };
            let paths: Vec<String> = hashes.iter().map(path).collect();
            format!(r#"{{"paths":{{{}}}}}"#, paths.join(","))
        };
        let one = parse(&text(&[("a", 1), ("b", 1), ("d", 1)])).expect("an index");
        let fresh = parse(&text(&[("b", 2), ("c", 1), ("d", 1)])).expect("an index");
        let mut sharing = fresh.clone();
        sharing.share(&one);
        assert_eq!(sharing, fresh);
        let entry = |index: &Index, key: &str| {
            index.entries.iter().find(|(name, _)| &**name == key).cloned().expect("an entry")
        };
        let same = |key: &str| {
            let ((key, hash), (their_key, their_hash)) = (entry(&sharing, key), entry(&one, key));
            let hashes = hash.zip(their_hash);
            (
                Arc::ptr_eq(&key, &their_key),
                hashes.is_some_and(|(hash, theirs)| Arc::ptr_eq(&hash, &theirs)),
            )
        };
        assert_eq!((same("b"), same("d")), ((true, false), (true, true)));
    }

    #[test]
    fn unsafe_keys_and_hashes_are_ignored() {
        let index = parse(
            r#"{"paths":{"a?b":{"serverRelativeURL":""},"../x":{"serverRelativeURL":""},
                "a//b":{"serverRelativeURL":""},"k\r\n":{"serverRelativeURL":""},"":{"serverRelativeURL":""},
                "apis/b/v1":{"serverRelativeURL":"https://elsewhere/?hash=A\"B"}}}"#,
        )
        .expect("an index");
        let entries: Vec<_> = index.entries().map(|(key, hash)| (&**key, hash.is_some())).collect();
        assert_eq!(entries, [("apis/b/v1", false)]);
    }

    #[test]
    fn a_malformed_index_is_rejected() {
        for text in
            ["", "[]", "{}", r#"{"paths":[]}"#, r#"{"paths":{"a":1}}"#, "404 page not found"]
        {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("\"a\"") && error.contains("/openapi/v3"), "{error}");
        }
    }
}
