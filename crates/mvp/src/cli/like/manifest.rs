//! The static pod manifest of kube-apiserver. Entry: [`command`].
//!
//! It finds the container and its command, resolves variables of its environment, and knows which
//! files of the host it sees.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::command::{Mount, NAME, ServerCommand, is_kube_apiserver};
use crate::mistake::Problem;

/// The command of kube-apiserver in a manifest.
pub(super) fn command(bytes: &[u8]) -> Result<ServerCommand, Problem> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Problem::from("not text; give the static pod manifest of kube-apiserver"))?;
    let pod: Pod = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let reason = error.without_snippet().to_string();
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        Problem::from(format!("line {line} is not that of a static pod manifest ({reason})"))
    })?;
    if pod.kind.as_deref() != Some("Pod") {
        let kind = pod.kind.unwrap_or_default();
        let what = format!("the kind is {kind:?}, not Pod; give a static pod manifest");
        return Err(what.into());
    }
    let spec = pod.spec.unwrap_or_default();
    let containers = spec.containers.unwrap_or_default();
    let container = the_container(containers)?;
    let environment = environment(container.env.unwrap_or_default());
    let words = container.command.unwrap_or_default().into_iter();
    let has_command = words.len() > 0;
    let words = words.chain(container.args.unwrap_or_default());
    let mut words: Vec<String> = words.map(|word| expand(&word, &environment)).collect();
    match words.iter().position(|word| is_kube_apiserver(word)) {
        Some(at) => drop(words.drain(..=at)),
        // The image of kube-apiserver starts it without a command.
        None if !has_command => {}
        None => {
            let first = words.first().map(String::as_str).unwrap_or_default();
            let what = format!(
                "the container starts {first:?}, and its command does not name {NAME}: its flags \
                 cannot be read from a script; give the flags of mvp serve instead of --like"
            );
            return Err(what.into());
        }
    }
    let volumes = spec.volumes.unwrap_or_default();
    let mounts = container.volume_mounts.unwrap_or_default();
    Ok(ServerCommand {
        arguments: words,
        folder: container.working_dir.unwrap_or_else(|| "/".to_owned()).into(),
        mounts: mounts.into_iter().filter_map(|mount| mount.of_host(&volumes)).collect(),
    })
}

/// The one container of kube-apiserver.
fn the_container(containers: Vec<Container>) -> Result<Container, Problem> {
    let count = containers.len();
    let mut found: Vec<Container> = containers.into_iter().filter(Container::is_server).collect();
    match (found.pop(), found.len()) {
        (Some(container), 0) => Ok(container),
        (Some(_), others) => Err(format!(
            "{} containers are named {NAME} or start it; there must be one",
            others + 1
        )
        .into()),
        (None, _) => Err(format!(
            "none of its {count} containers is named {NAME} or starts it; give the manifest of {NAME}"
        )
        .into()),
    }
}

/// The variables of the container. `None` is one that is not a plain value.
fn environment(entries: Vec<Variable>) -> BTreeMap<String, Option<String>> {
    let mut known = BTreeMap::new();
    for Variable { name, value, value_from } in entries {
        let value = match value_from {
            Some(_) => None,
            None => Some(expand(&value.unwrap_or_default(), &known)),
        };
        known.insert(name, value);
    }
    known
}

/// Replaces `$(NAME)` as the kubelet does. What it cannot resolve stays as it is.
fn expand(text: &str, environment: &BTreeMap<String, Option<String>>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        rest = after;
        if let Some(escaped) = after.strip_prefix('$') {
            result.push('$');
            rest = escaped;
        } else if let Some((name, behind)) =
            after.strip_prefix('(').and_then(|inner| inner.split_once(')'))
        {
            match environment.get(name) {
                Some(Some(value)) => result.push_str(value),
                _ => result.push_str(&format!("$({name})")),
            }
            rest = behind;
        } else {
            result.push('$');
        }
    }
    result + rest
}

#[derive(Deserialize)]
struct Pod {
    kind: Option<String>,
    spec: Option<Spec>,
}

#[derive(Default, Deserialize)]
struct Spec {
    containers: Option<Vec<Container>>,
    volumes: Option<Vec<Volume>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: Option<String>,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    working_dir: Option<String>,
    volume_mounts: Option<Vec<VolumeMount>>,
}

impl Container {
    fn is_server(&self) -> bool {
        let starts = |words: &Option<Vec<String>>| {
            words
                .as_ref()
                .and_then(|words| words.first())
                .is_some_and(|word| is_kube_apiserver(word))
        };
        self.name.as_deref() == Some(NAME) || starts(&self.command)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable {
    name: String,
    value: Option<String>,
    value_from: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeMount {
    name: String,
    mount_path: PathBuf,
    sub_path: Option<PathBuf>,
}

impl VolumeMount {
    /// Where the mount comes from, if that is a path of the host.
    fn of_host(self, volumes: &[Volume]) -> Option<Mount> {
        let volume = volumes.iter().find(|volume| volume.name == self.name)?;
        let mut host = volume.host_path.as_ref()?.path.clone();
        host.extend(self.sub_path);
        Some(Mount { inside: self.mount_path, host })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    host_path: Option<HostPath>,
}

#[derive(Deserialize)]
struct HostPath {
    path: PathBuf,
}
