//! Discovery of servers without aggregated documents (before 1.26), one version at a time. Entry
//! item: [`walk`].

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use mvp_core::discovery::legacy::{ApiGroupList, ApiResourceList, ApiVersions};
use mvp_core::discovery::{
    DocumentError, GroupList, Limits, Parsed, Part, Source, convert, legacy,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::MAX_SMALL;
use super::get::get;
use crate::ask::Ask;

/// The most groups and versions that are fetched, each with a request of its own.
const MAX_WALKED: usize = 2000;
/// How many of them are fetched at the same time.
const AT_ONCE: usize = 16;

/// Fetches each version by itself. The server's own lists of groups are wrong during skew: a
/// version counts only if the server answers for it.
pub(super) async fn walk(
    ask: &impl Ask,
    source: Source<'_>,
    part: Part,
    document: Bytes,
    limits: &Limits,
) -> Result<Parsed<GroupList>, String> {
    let text = |error: DocumentError| error.to_string();
    let groups = match part {
        Part::Api => {
            let versions: ApiVersions = legacy::parse(source, document, limits).map_err(text)?;
            vec![convert::core_group(&versions)]
        }
        Part::Apis => {
            let list: ApiGroupList = legacy::parse(source, document, limits).map_err(text)?;
            with_listed_paths(list, &own_paths(ask).await)
        }
    };
    let mut resources = Vec::new();
    let mut paths = Vec::new();
    for group in &groups {
        let prefix = if group.name.is_empty() { "/api" } else { "/apis" };
        paths.extend(group.versions.iter().map(|v| format!("{prefix}/{}", v.group_version)));
    }
    let mut left = limits.max_bytes;
    paths.truncate(MAX_WALKED);
    for paths in paths.chunks(AT_ONCE) {
        let limit = left / paths.len().max(1);
        let answers = paths.iter().map(|path| get(ask, path, "application/json", None, limit));
        for (path, answer) in paths.iter().zip(join_all(answers).await) {
            let answer = answer?;
            left = left.saturating_sub(answer.body.len());
            if answer.status == StatusCode::NOT_FOUND {
                continue;
            }
            let source = Source { server: source.server, document: path };
            let list: ApiResourceList =
                legacy::parse(source, answer.ok()?, limits).map_err(text)?;
            resources.push(list);
        }
    }
    convert::from_legacy(source, &groups, &resources).map_err(text)
}

/// Adds the groups and versions whose paths the server lists.
fn with_listed_paths(list: ApiGroupList, paths: &[String]) -> Vec<legacy::ApiGroup> {
    let mut groups = list.groups;
    for path in paths.iter().take(MAX_WALKED) {
        let mut steps = path.split('/').skip(1);
        let (Some("apis"), Some(name), Some(version), None) =
            (steps.next(), steps.next(), steps.next(), steps.next())
        else {
            continue;
        };
        let place = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
            groups.push(legacy::ApiGroup { name: name.to_owned(), ..Default::default() });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(place)
            && !group.versions.iter().any(|known| known.version == version)
        {
            group.versions.push(legacy::GroupVersion::new(name, version));
        }
    }
    groups
}

/// The paths that the server lists at its root or, where RBAC denies that as it does by default, in
/// its OpenAPI index.
async fn own_paths(ask: &impl Ask) -> Vec<String> {
    #[derive(Deserialize)]
    struct Root {
        paths: Vec<String>,
    }
    #[derive(Deserialize)]
    struct OpenApi {
        paths: BTreeMap<String, IgnoredAny>,
    }
    let read = async |path: &'static str| {
        let answer = get(ask, path, "application/json", None, MAX_SMALL).await;
        answer.ok().and_then(|answer| answer.ok().ok())
    };
    let root = read("/").await.and_then(|body| serde_json::from_slice::<Root>(&body).ok());
    if let Some(root) = root {
        return root.paths;
    }
    let index = read("/openapi/v3").await;
    let index = index.and_then(|body| serde_json::from_slice::<OpenApi>(&body).ok());
    // Without either, the list of groups is all there is.
    let paths = index.map(|index| index.paths.into_keys()).into_iter().flatten();
    paths.map(|path| format!("/{path}")).collect()
}
