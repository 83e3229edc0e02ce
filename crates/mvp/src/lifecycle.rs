//! In which releases the built-in APIs of Kubernetes are deprecated and removed, as its own types say
//! (`assets/README.md`). Entries: [`Lifecycle::of`], [`Removals::in_release`].

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::LazyLock;

use mvp_apiserver::{Release, RuntimeConfig};
use mvp_core::member::Version;
use serde::Deserialize;

use crate::mistake::Problem;

/// The life of one API.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Lifecycle {
    group: String,
    version: String,
    resource: String,
    /// The release that deprecates it.
    deprecated: Option<Minor>,
    /// The first release without it. One that is not out yet may change.
    pub(crate) removed: Option<Minor>,
    /// What to use instead, as `GROUP/VERSION/KIND`.
    pub(crate) replacement: Option<String>,
}

/// A minor release, such as `1.36`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Minor(Version);

/// The file.
#[derive(Debug, Deserialize)]
struct Table {
    /// The release whose packages say so.
    release: Minor,
    apis: Vec<Lifecycle>,
}

type Resource<'a> = (&'a str, &'a str, &'a str);

const ASSET: &str = include_str!("../assets/api-lifecycle.json");

/// Read when it is first needed. A test reads it, too; an unreadable one would have no APIs.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let none = Table { release: Minor(Version { major: 0, minor: 0 }), apis: Vec::new() };
    serde_json::from_str(ASSET).unwrap_or(none)
});
static BY_NAME: LazyLock<HashMap<Resource<'static>, &'static Lifecycle>> = LazyLock::new(|| {
    let named = |api: &'static Lifecycle| ((&*api.group, &*api.version, &*api.resource), api);
    TABLE.apis.iter().map(named).collect()
});

impl Lifecycle {
    /// The life of an API that is deprecated, or will be.
    pub(crate) fn of(group: &str, version: &str, resource: &str) -> Option<&'static Lifecycle> {
        BY_NAME.get(&(group, version, resource)).copied()
    }

    /// Whether it is deprecated in the newest release that is known.
    pub(crate) fn is_deprecated(&self) -> bool {
        self.deprecated.is_some_and(|since| since <= newest_known())
    }
}

/// The newest release whose deprecations are known.
pub(crate) fn newest_known() -> Minor {
    TABLE.release
}

/// The APIs that a release, or one before it, removes.
#[derive(Debug)]
pub(crate) struct Removals {
    release: Minor,
    /// What recorded servers of older releases serve, and those of this one do not.
    recorded: BTreeSet<(String, String, String)>,
}

impl Removals {
    /// The removals of a release, or which releases are known.
    pub(crate) fn in_release(text: &str) -> Result<Removals, Problem> {
        let removals = || TABLE.apis.iter().filter_map(|api| api.removed);
        let (first, last) = (removals().min(), removals().max());
        let known = |release: &Minor| first <= Some(*release) && Some(*release) <= last;
        let release = Version::parse(text).map(Minor).filter(known).ok_or_else(|| {
            let range = match (first, last) {
                (Some(first), Some(last)) => format!("from {first} to {last}"),
                _ => "of no release".to_owned(),
            };
            Problem::from(format!(
                "{text:?} is not a known release; give one {range}, such as {} (removals after {} are plans)",
                newest_known(),
                newest_known()
            ))
        })?;
        Ok(Removals { release, recorded: recorded_removals(release) })
    }

    /// Whether it removes this API.
    pub(crate) fn has(&self, group: &str, version: &str, resource: &str) -> bool {
        let api = Lifecycle::of(group, version, resource);
        let planned = api.and_then(|api| api.removed).is_some_and(|at| at <= self.release);
        let name = (group.to_owned(), version.to_owned(), resource.to_owned());
        planned || self.recorded.contains(&name)
    }
}

/// What real servers of recorded releases served with every API on, before they stopped until this
/// release.
fn recorded_removals(release: Minor) -> BTreeSet<(String, String, String)> {
    let is_older = |other: &Release| minor(*other) < Some(release);
    let Some(at) = Release::ALL.into_iter().rfind(|other| minor(*other) <= Some(release)) else {
        return BTreeSet::new();
    };
    let kept = surface(at);
    let before = Release::ALL.into_iter().filter(is_older).flat_map(surface);
    before.filter(|name| !kept.contains(name)).collect()
}

fn minor(release: Release) -> Option<Minor> {
    Version::parse(release.name()).map(Minor)
}

/// The resources of a recorded release.
fn surface(release: Release) -> BTreeSet<(String, String, String)> {
    let all = RuntimeConfig::parse("api/all=true").unwrap_or_default();
    let groups = release.spec("", &all).map(|spec| spec.groups).unwrap_or_default();
    let versions = groups.into_iter().flat_map(|group| {
        group.versions.into_iter().map(move |version| (group.name.clone(), version))
    });
    versions
        .flat_map(|(group, version)| {
            let named = move |plural| (group.clone(), version.version.clone(), plural);
            version.resources.into_iter().map(|resource| resource.plural).map(named)
        })
        .collect()
}

impl TryFrom<String> for Minor {
    type Error = Problem;

    fn try_from(text: String) -> Result<Minor, Problem> {
        Version::parse(&text).map(Minor).ok_or_else(|| "not a release".into())
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.0.major, self.0.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removes(release: &str, (group, version, resource): Resource<'_>) -> bool {
        Removals::in_release(release).unwrap().has(group, version, resource)
    }

    /// From Kubernetes' deprecation guide.
    #[test]
    fn removals_are_those_of_the_deprecation_guide() {
        let schemas = ("flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas");
        assert!(
            removes("1.32", schemas) && removes("v1.36.4", schemas) && !removes("1.31", schemas)
        );
        let cronjobs = ("batch", "v1beta1", "cronjobs");
        assert!(removes("1.25", cronjobs) && !removes("1.24", cronjobs));
        assert!(!removes("1.36", ("", "v1", "pods")) && !removes("1.36", ("batch", "v1", "jobs")));
        let api = Lifecycle::of("batch", "v1beta1", "cronjobs").unwrap();
        assert_eq!(api.replacement.as_deref(), Some("batch/v1/CronJob"));
        assert_eq!(api.removed.unwrap().to_string(), "1.25");
        assert!(api.is_deprecated());
    }

    #[test]
    fn endpoints_are_deprecated_and_stay() {
        let endpoints = Lifecycle::of("", "v1", "endpoints").unwrap();
        assert!(endpoints.is_deprecated() && endpoints.removed.is_none());
        assert!(!removes("1.36", ("", "v1", "endpoints")));
        assert!(Lifecycle::of("", "v1", "pods").is_none());
        assert_eq!(newest_known().to_string(), "1.36");
    }

    #[test]
    fn unknown_releases_are_named_with_the_known_ones() {
        for text in ["1.99", "1.2", "latest", "", "2.0", "1"] {
            let problem = Removals::in_release(text).unwrap_err().to_string();
            assert!(problem.contains("give one from 1.16 to 1."), "{problem}");
            assert!(problem.contains(&format!("{text:?}")), "{problem}");
        }
    }

    /// The plurals of the table are guessed from kinds; real servers list the names.
    #[test]
    fn plurals_are_those_of_real_servers() {
        let served: BTreeSet<_> = Release::ALL.into_iter().flat_map(surface).collect();
        let versions: BTreeSet<_> = served.iter().map(|(g, v, _)| (g, v)).collect();
        let first = Minor(Version { major: 1, minor: 34 });
        let mut found = 0;
        for api in &TABLE.apis {
            // Those that every recorded release still had.
            let is_recorded = api.removed.is_none_or(|at| at > first)
                && versions.contains(&(&api.group, &api.version));
            if is_recorded {
                let name = (api.group.clone(), api.version.clone(), api.resource.clone());
                assert!(served.contains(&name), "{name:?}");
                found += 1;
            }
        }
        assert!(found > 15, "{found}");
    }
}
