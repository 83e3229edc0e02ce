//! The documents of members: recorded from real servers, with custom resources that come and go.
//! Entry item: [`of`].

use std::fmt::Write as _;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use anyhow::Context;
use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Value, json};

use super::changes::GROUPS;

/// The recorded documents of a version.
pub(super) struct Release {
    version: String,
    /// The groups of `/api` and of `/apis`.
    api: Vec<Value>,
    apis: Vec<Value>,
}

/// The documents of one member.
pub(super) struct View {
    pub(super) api: Document,
    pub(super) apis: Document,
    pub(super) openapi: Document,
    pub(super) version: Bytes,
}

pub(super) struct Document {
    pub(super) body: Bytes,
    pub(super) etag: HeaderValue,
}

/// The documents of this release, with these custom resource groups.
pub(super) fn of(releases: &[Release], release: usize, groups: u8) -> anyhow::Result<View> {
    releases.get(release).context("no such release")?.view(groups, None)
}

impl Release {
    /// The recorded releases, each with this many custom resource groups that never change.
    pub(super) fn recorded(groups: usize) -> anyhow::Result<[Release; 2]> {
        let mut releases = [
            Release::parse(include_str!(
                "../../../crates/mvp-core/tests/fixtures/recorded/v1.34.10.json"
            ))?,
            Release::parse(include_str!(
                "../../../crates/mvp-core/tests/fixtures/recorded/v1.36.4.json"
            ))?,
        ];
        for release in &mut releases {
            release.apis.extend((0..groups).map(|index| custom(&unchanging(index))));
        }
        Ok(releases)
    }

    fn parse(text: &str) -> anyhow::Result<Release> {
        let recorded: Value = serde_json::from_str(text)?;
        let groups = |path: &str| {
            let items = recorded.get("aggregated").and_then(|all| all.get(path)?.get("items"));
            items.and_then(Value::as_array).cloned().with_context(|| format!("no {path}"))
        };
        let version = recorded.pointer("/provenance/gitVersion").and_then(Value::as_str);
        let version = version.context("no version")?.to_owned();
        Ok(Release { version, api: groups("/api")?, apis: groups("/apis")? })
    }

    pub(super) fn view(&self, groups: u8, without: Option<&str>) -> anyhow::Result<View> {
        let mut apis = self.apis.clone();
        apis.retain(|group| without.is_none() || name(group) != without);
        let served = (0..GROUPS).filter(|group| groups & (1 << group) != 0);
        apis.extend(served.map(|group| custom(&changing(group))));
        let version = json!({"gitVersion": self.version,
            "gitCommit": "0123456789abcdef0123456789abcdef01234567", "gitTreeState": "clean",
            "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26.0", "compiler": "gc",
            "platform": "linux/amd64"});
        Ok(View {
            openapi: Document::of(index(&self.version, &self.api, &apis))?,
            api: Document::new(&self.api)?,
            apis: Document::new(&apis)?,
            version: version.to_string().into(),
        })
    }
}

impl Document {
    fn new(groups: &[Value]) -> anyhow::Result<Document> {
        let document = json!({"kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups});
        Document::of(document.to_string())
    }

    fn of(body: String) -> anyhow::Result<Document> {
        Ok(Document { etag: format!("\"{}\"", hash(&body)).try_into()?, body: body.into() })
    }
}

/// The name of a group that comes and goes.
pub(super) fn changing(group: u8) -> String {
    format!("g{group}.example.org")
}

/// The name of a group that stays.
pub(super) fn unchanging(group: usize) -> String {
    format!("operator-{group:05}.platform.example.com")
}

/// Whether this is the path of the legacy document of a group that stays.
pub(super) fn is_unchanging(path: &str) -> bool {
    path.starts_with("/apis/operator-") && path.ends_with("/v1")
}

/// The legacy document of a group at this path, as [`custom`] describes the group.
pub(super) fn legacy(path: &str) -> String {
    let resource = |name: &str, verbs: &[&str]| {
        json!({"name": name, "singularName": "widget", "namespaced": true, "kind": "Widget",
            "verbs": verbs, "shortNames": ["wd"]})
    };
    let group_version = path.trim_start_matches("/apis/");
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": [resource("widgets", &VERBS), resource("widgets/status", &STATUS_VERBS)]})
    .to_string()
}

const VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

fn custom(name: &str) -> Value {
    json!({"metadata": {"name": name}, "versions": [{"version": "v1", "freshness": "Current",
        "resources": [{"resource": "widgets", "singularResource": "widget",
            "responseKind": {"group": name, "version": "v1", "kind": "Widget"},
            "scope": "Namespaced", "shortNames": ["wd"],
            "verbs": VERBS,
            "subresources": [{"subresource": "status",
                "responseKind": {"group": name, "version": "v1", "kind": "Widget"},
                "verbs": STATUS_VERBS}]}]}]})
}

/// The OpenAPI index, with hashes as long as kube-apiserver's.
fn index(version: &str, api: &[Value], apis: &[Value]) -> String {
    let mut paths = serde_json::Map::new();
    for (prefix, groups) in [("api", api), ("apis", apis)] {
        for group in groups {
            for one in group.get("versions").and_then(Value::as_array).into_iter().flatten() {
                let one = one.get("version").and_then(Value::as_str).unwrap_or_default();
                let name = name(group).map(|name| format!("/{name}")).unwrap_or_default();
                let path = format!("{prefix}{name}/{one}");
                let url =
                    format!("/openapi/v3/{path}?hash={}", hash(&format!("{version} {group}")));
                paths.insert(path, json!({"serverRelativeURL": url}));
            }
        }
    }
    json!({"paths": paths}).to_string()
}

fn name(group: &Value) -> Option<&str> {
    group.pointer("/metadata/name").and_then(Value::as_str)
}

/// 128 hexadecimal digits, as SHA-512 has, deterministic.
fn hash(text: &str) -> String {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut digits = String::new();
    for part in 0..8 {
        let _ = write!(digits, "{:016X}", hasher.hash_one((part, text)));
    }
    digits
}

/// A count as a floating-point value.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn figure(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_what_is_served_changes_the_tag() {
        let releases = Release::recorded(3).expect("recorded documents");
        let [old, new] = [0, 1].map(|release| of(&releases, release, 0).expect("a view"));
        assert_ne!(old.apis.etag, new.apis.etag);
        assert_ne!(old.version, new.version);
        let more = of(&releases, 0, 0b10).expect("a view");
        assert_ne!(more.apis.etag, old.apis.etag);
        assert_eq!(more.api.etag, old.api.etag);
        let text = |body: &Bytes| String::from_utf8_lossy(body).into_owned();
        assert!(text(&more.apis.body).contains("g1.example.org"));
        assert!(text(&more.openapi.body).contains("\"apis/g1.example.org/v1\""));
        assert!(text(&old.openapi.body).contains("\"api/v1\""));
        assert_eq!(text(&old.apis.body).matches("platform.example.com\"},\"versions").count(), 3);
        let local = releases[0].view(0, Some("batch")).expect("a view");
        let has_batch = |view: &View| text(&view.apis.body).contains("\"name\":\"batch\"");
        assert!(has_batch(&old) && !has_batch(&local));
    }
}
