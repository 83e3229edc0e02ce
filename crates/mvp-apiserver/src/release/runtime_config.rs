//! `--runtime-config`: which APIs are on. Entry: [`RuntimeConfig`].

use std::error::Error;
use std::fmt;

/// APIs that are switched on or off, in the format of kube-apiserver's `--runtime-config`:
/// `batch/v1=false,api/beta=true`. The core group is `v1` or `api/v1`. Keys are `GROUP/VERSION`,
/// `GROUP/VERSION/RESOURCE`, `api/all`, `api/ga`, `api/beta` and `api/alpha`; the more specific key
/// wins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeConfig(Vec<(Key, bool)>);

/// An invalid `--runtime-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeConfigError(String);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    All,
    Stage(Stage),
    Version { group: String, version: String },
    Resource { group: String, version: String, resource: String },
}

/// The stability of a version, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Stable,
    Beta,
    Alpha,
}

impl RuntimeConfig {
    /// Parses the value of the flag. An empty one changes nothing.
    pub fn parse(text: &str) -> Result<RuntimeConfig, RuntimeConfigError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(parse_entry).collect::<Result<_, _>>().map(RuntimeConfig)
    }

    /// Whether a resource is on; `None` if the configuration does not say.
    pub(super) fn is_enabled(&self, group: &str, version: &str, resource: &str) -> Option<bool> {
        let exact = self.last(|key| {
            matches!(key, Key::Resource { group: g, version: v, resource: r }
                if g == group && v == version && r == resource)
        });
        exact
            .or_else(|| {
                self.last(|key| {
                    matches!(key, Key::Version { group: g, version: v }
                        if g == group && v == version)
                })
            })
            .or_else(|| self.last(|key| *key == Key::Stage(Stage::of(version))))
            .or_else(|| self.last(|key| *key == Key::All))
    }

    /// Fails for groups and versions that are not known.
    pub(super) fn check(
        &self,
        known: impl Fn(&str, &str) -> bool,
    ) -> Result<(), RuntimeConfigError> {
        for (key, _) in &self.0 {
            if let Key::Version { group, version } | Key::Resource { group, version, .. } = key
                && !known(group, version)
            {
                let separator = if group.is_empty() { "" } else { "/" };
                let why = format!("unknown api group and version {group}{separator}{version}");
                return Err(RuntimeConfigError(why));
            }
        }
        Ok(())
    }

    /// The value of the last key that matches: a later entry replaces an earlier one.
    fn last(&self, matches: impl Fn(&Key) -> bool) -> Option<bool> {
        self.0.iter().rev().find(|(key, _)| matches(key)).map(|(_, on)| *on)
    }
}

fn parse_entry(entry: &str) -> Result<(Key, bool), RuntimeConfigError> {
    let (key, value) = entry.split_once('=').unwrap_or((entry, "true"));
    let on = match value.trim() {
        // The values that Go takes for a boolean.
        "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
        "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
        value => {
            let why = format!("{entry:?}: {value:?} is neither true nor false");
            return Err(RuntimeConfigError(why));
        }
    };
    let steps: Vec<_> = key.trim().split('/').collect();
    let version = |group: &str, version: &str| Key::Version {
        group: group.to_owned(),
        version: version.to_owned(),
    };
    let key = match *steps {
        ["api", "all"] => Key::All,
        ["api", "ga"] => Key::Stage(Stage::Stable),
        ["api", "beta"] => Key::Stage(Stage::Beta),
        ["api", "alpha"] => Key::Stage(Stage::Alpha),
        [name] | ["api", name] if is_version(name) => version("", name),
        [group, name] if !group.is_empty() && is_version(name) => version(group, name),
        [group, version, resource]
            if !group.is_empty() && is_version(version) && !resource.is_empty() =>
        {
            let group = if group == "api" { "" } else { group };
            let (group, version) = (group.to_owned(), version.to_owned());
            Key::Resource { group, version, resource: resource.to_owned() }
        }
        _ => {
            let why = format!(
                "{entry:?}: the key is neither GROUP/VERSION nor one of api/all, api/ga, api/beta, api/alpha"
            );
            return Err(RuntimeConfigError(why));
        }
    };
    Ok((key, on))
}

fn is_version(name: &str) -> bool {
    name.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

impl Stage {
    fn of(version: &str) -> Stage {
        match version {
            version if version.contains("alpha") => Stage::Alpha,
            version if version.contains("beta") => Stage::Beta,
            _ => Stage::Stable,
        }
    }
}

impl fmt::Display for RuntimeConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runtime config: {}", self.0)
    }
}

impl Error for RuntimeConfigError {}
