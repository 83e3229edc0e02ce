//! The component schemas of a release, from an asset that has each schema once. Entry: [`Schemas`].
//!
//! A line of the asset is `RELEASES⇥NAME⇥SCHEMA`. Schemas refer to each other by name; a document of
//! one group and version has those that its kinds reach.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use flate2::read::GzDecoder;
use serde_json::Value;

use super::Release;
use crate::schema::Schema;
use crate::spec::ResponseKind;

/// The schemas of a release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schemas {
    release: Release,
}

/// The schema of one kind, with all schemas that it reaches.
#[derive(Debug, Clone)]
pub(crate) struct SchemaOf(Arc<Closure>);

#[derive(Debug)]
struct Closure {
    name: String,
    components: Value,
}

impl SchemaOf {
    /// The schema itself.
    pub(crate) fn schema(&self) -> Option<Schema<'_>> {
        Schema::component(&self.0.components, &self.0.name)
    }
}

/// How many kinds are kept parsed. That of a pod takes about a megabyte, most others far less.
const MAX_PARSED: usize = 12;

/// The kinds that were parsed last, the latest one at the end.
static PARSED: Mutex<VecDeque<Parsed>> = Mutex::new(VecDeque::new());

/// A kind that was looked up.
#[derive(Debug)]
struct Parsed {
    release: Release,
    group: String,
    version: String,
    kind: String,
    /// `None` if the release does not know it.
    schema: Option<SchemaOf>,
}

impl Schemas {
    pub(super) fn of(release: Release) -> Schemas {
        Schemas { release }
    }

    /// The schema of a kind, parsed when it is first used.
    pub(crate) fn of_kind(self, group: &str, version: &str, kind: &str) -> Option<SchemaOf> {
        let mut parsed = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
        let place = parsed.iter().position(|entry| {
            entry.release == self.release
                && entry.kind == kind
                && entry.version == version
                && entry.group == group
        });
        let entry = match place.and_then(|place| parsed.remove(place)) {
            Some(entry) => entry,
            None => Parsed {
                release: self.release,
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                schema: self.name(group, version, kind).map(|name| self.parse(name)),
            },
        };
        let schema = entry.schema.clone();
        parsed.push_back(entry);
        if parsed.len() > MAX_PARSED {
            parsed.pop_front();
        }
        schema
    }

    fn parse(self, name: &str) -> SchemaOf {
        let reached = self.reached([name]);
        let components = reached
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), serde_json::from_str(text).ok()?)));
        let components = Value::Object(components.collect());
        SchemaOf(Arc::new(Closure { name: name.to_owned(), components }))
    }

    /// The component schemas of a document of one group and version, as JSON texts by name: those of
    /// its kinds, of these kinds of subresources, and of what every document has. Empty if the
    /// release has none.
    pub(crate) fn of_version<'k>(
        self,
        group: &str,
        version: &str,
        subresources: impl IntoIterator<Item = &'k ResponseKind>,
    ) -> BTreeMap<&'static str, &'static str> {
        let start = format!("{{\"group\":\"{group}\",\"kind\":\"");
        let end = format!(",\"version\":\"{version}\"}}");
        let own = |(_, text): &(&str, &str)| {
            let kinds = text.split(start.as_str()).skip(1);
            let mut rest = kinds.filter_map(|rest| rest.split_once('"'));
            rest.any(|(_, rest)| rest.starts_with(&end))
        };
        let mut names: Vec<_> = self.lines().filter(own).map(|(name, _)| name).collect();
        if names.is_empty() {
            return BTreeMap::new();
        }
        let name = |kind: &ResponseKind| self.name(&kind.group, &kind.version, &kind.kind);
        names.extend(subresources.into_iter().filter_map(name));
        names.extend(GENERAL);
        self.reached(names)
    }

    /// The schemas that every document has: the metadata of objects and lists, `Status` and
    /// `DeleteOptions`. Documents of custom resources need them.
    pub(crate) fn general(self) -> BTreeMap<&'static str, &'static str> {
        self.reached(GENERAL)
    }

    /// The schemas of these names and of all names that they refer to.
    fn reached<'n>(
        self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> BTreeMap<&'static str, &'static str> {
        let all: BTreeMap<_, _> = self.lines().collect();
        let mut waiting: Vec<_> = names.into_iter().collect();
        let mut reached = BTreeMap::new();
        while let Some(name) = waiting.pop() {
            let Some((name, text)) = all.get_key_value(name) else { continue };
            let (name, text) = (*name, *text);
            if reached.insert(name, text).is_none() {
                let references = text.split(REFERENCE).skip(1);
                waiting.extend(references.filter_map(|rest| rest.split('"').next()));
            }
        }
        reached
    }

    fn name(self, group: &str, version: &str, kind: &str) -> Option<&'static str> {
        let mark =
            format!("{{\"group\":\"{group}\",\"kind\":\"{kind}\",\"version\":\"{version}\"}}");
        self.lines().find(|(_, text)| text.contains(&mark)).map(|(name, _)| name)
    }

    /// Names and schemas.
    fn lines(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        text().lines().filter_map(move |line| {
            let (releases, rest) = line.split_once('\t')?;
            let known = releases.split(',').any(|release| release == self.release.name());
            known.then(|| rest.split_once('\t')).flatten()
        })
    }
}

/// The start of a reference to a schema.
const REFERENCE: &str = "\"#/components/schemas/";

/// The schemas that every document has.
const GENERAL: [&str; 5] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
];

/// The decompressed asset: less than a megabyte, once for all servers.
fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = String::new();
        // A test reads the asset; an unreadable one would have no schemas.
        let _ = GzDecoder::new(ASSET).read_to_string(&mut text);
        text
    })
}

const ASSET: &[u8] = include_bytes!("../../assets/schemas.gz");
