//! The flags of kube-apiserver: which of them `mvp serve` has, too, and how their values are read.
//! Entries: [`ServerFlags::parse`], [`ServerFlags::take`].
//!
//! They are read as its flag library reads them: `--name=value` or `--name value`, underscores for
//! dashes, the last one of a repeated flag wins unless it is a list.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::command::ServerCommand;
use super::listener::Listener;
use super::settings::Given;
use super::{Origin, TakenOver};
use crate::mistake::Mistake;

/// How a flag that both have is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One value.
    One,
    /// One path.
    Path,
    /// Values separated by commas.
    List,
    /// A certificate, its key, and names.
    Sni,
    /// Like [`Kind::One`], [`Kind::Path`] or [`Kind::List`], with `--membership=etcd` only: a flag of
    /// etcd makes `mvp` a client of etcd.
    Etcd(&'static Kind),
    /// One value, if peers reach `mvp` where they would reach kube-apiserver.
    SamePort,
    /// Not taken over by itself: [`super::listener`] and [`super::authority`] read it.
    Read,
    /// A file that is only read to find the CA of the servers.
    ReadPath,
}

/// The flags that have a meaning here. All others stay in kube-apiserver.
const KNOWN: &[(&str, Kind)] = &[
    ("advertise-address", Kind::One),
    ("bind-address", Kind::Read),
    ("secure-port", Kind::Read),
    ("tls-cert-file", Kind::Path),
    ("tls-private-key-file", Kind::Path),
    ("tls-sni-cert-key", Kind::Sni),
    ("tls-min-version", Kind::One),
    ("tls-cipher-suites", Kind::List),
    ("client-ca-file", Kind::Path),
    ("requestheader-client-ca-file", Kind::Path),
    ("requestheader-allowed-names", Kind::List),
    ("requestheader-username-headers", Kind::List),
    ("requestheader-group-headers", Kind::List),
    ("requestheader-uid-headers", Kind::List),
    ("requestheader-extra-headers-prefix", Kind::List),
    ("proxy-client-cert-file", Kind::Path),
    ("proxy-client-key-file", Kind::Path),
    ("peer-ca-file", Kind::Path),
    ("peer-advertise-ip", Kind::One),
    ("peer-advertise-port", Kind::SamePort),
    ("egress-selector-config-file", Kind::Path),
    ("http2-max-streams-per-connection", Kind::One),
    ("etcd-servers", Kind::Etcd(&Kind::List)),
    ("etcd-cafile", Kind::Etcd(&Kind::Path)),
    ("etcd-certfile", Kind::Etcd(&Kind::Path)),
    ("etcd-keyfile", Kind::Etcd(&Kind::Path)),
    ("etcd-prefix", Kind::Etcd(&Kind::One)),
    ("kubelet-certificate-authority", Kind::ReadPath),
    ("oidc-ca-file", Kind::ReadPath),
    ("tls-curve-preferences", Kind::Read),
];

/// The flags of kube-apiserver by name, with their values in order.
#[derive(Debug)]
pub(super) struct ServerFlags {
    command: ServerCommand,
    pub(super) origin: Origin,
    values: BTreeMap<String, Vec<String>>,
}

/// The name of a flag of kube-apiserver for error messages.
pub(super) fn name(flag: &str, origin: &Origin) -> String {
    format!("--{flag} of kube-apiserver in {origin}")
}

impl ServerFlags {
    /// Reads the arguments.
    pub(super) fn parse(command: ServerCommand, origin: Origin) -> Result<ServerFlags, Mistake> {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut words = command.arguments.iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--") else { continue };
            if flag.is_empty() {
                break;
            }
            let (flag, value) = match flag.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (flag, None),
            };
            let flag = flag.replace('_', "-");
            let takes_value = KNOWN.iter().any(|(known, _)| *known == flag);
            let value = match value {
                Some(value) => value,
                None if takes_value => words.next().cloned().ok_or_else(|| {
                    Mistake::trouble(name(&flag, &origin), "has no value; correct it there")
                })?,
                // kube-apiserver takes no arguments besides flags, so that such a word is a value.
                None => words.next_if(|next| !next.starts_with('-')).cloned().unwrap_or_default(),
            };
            values.entry(flag).or_default().push(value);
        }
        Ok(ServerFlags { command, origin, values })
    }

    /// The last value of a flag. An empty one is none.
    pub(super) fn last(&self, flag: &str) -> Result<Option<&str>, Mistake> {
        let value = self.values.get(flag).and_then(|values| values.last());
        let value = value.map(String::as_str).filter(|value| !value.is_empty());
        value.map(|value| self.resolved(flag, value)).transpose()
    }

    /// The path of a file of the host that a flag names.
    pub(super) fn path(&self, flag: &str) -> Result<Option<PathBuf>, Mistake> {
        Ok(self.last(flag)?.map(|path| self.command.host_path(path)))
    }

    /// Adds the flags that both have to what is taken over.
    pub(super) fn take(
        &self,
        given: &Given,
        listener: &Listener<'_>,
        taken: &mut TakenOver,
    ) -> Result<(), Mistake> {
        for (flag, kind) in KNOWN {
            if given.is_set(flag) || !self.values.contains_key(*flag) {
                continue;
            }
            let values = match kind {
                // The address of the default interface is the same in nearly every case.
                Kind::One if *flag == "advertise-address" && self.last(flag).is_err() => {
                    taken.warnings.push(self.unresolved_address(flag));
                    continue;
                }
                Kind::SamePort if !listener.same_port => continue,
                Kind::Etcd(_) if !given.etcd_membership => continue,
                Kind::Etcd(kind) => self.values_of(flag, **kind)?,
                kind => self.values_of(flag, *kind)?,
            };
            if !values.is_empty() {
                taken.flags.insert((*flag).to_owned(), values);
            }
        }
        Ok(())
    }

    fn values_of(&self, flag: &str, kind: Kind) -> Result<Vec<String>, Mistake> {
        let all = self.values.get(flag).into_iter().flatten();
        Ok(match kind {
            Kind::One | Kind::SamePort => self.last(flag)?.map(str::to_owned).into_iter().collect(),
            Kind::Path => self.path(flag)?.iter().map(|path| path.display().to_string()).collect(),
            Kind::List => {
                let resolved = all.map(|value| self.resolved(flag, value));
                let lists = resolved.collect::<Result<Vec<_>, _>>()?;
                lists.into_iter().flat_map(comma_separated).filter(|one| !one.is_empty()).collect()
            }
            Kind::Sni => {
                let resolved = all.map(|value| self.resolved(flag, value));
                resolved
                    .map(|value| Ok(self.sni_on_host(value?)))
                    .collect::<Result<_, Mistake>>()?
            }
            Kind::Etcd(_) | Kind::Read | Kind::ReadPath => Vec::new(),
        })
    }

    /// `cert,key:names` with paths of the host.
    fn sni_on_host(&self, value: &str) -> String {
        let (files, names) = match value.split_once(':') {
            Some((files, names)) => (files, Some(names)),
            None => (value, None),
        };
        let host = |path: &str| self.command.host_path(path.trim()).display().to_string();
        let files: Vec<String> = files.split(',').map(host).collect();
        let files = files.join(",");
        names.map_or_else(|| files.clone(), |names| format!("{files}:{names}"))
    }

    /// Refuses a value with a variable that only the kubelet can resolve.
    fn resolved<'a>(&self, flag: &str, value: &'a str) -> Result<&'a str, Mistake> {
        let variable = value.split_once("$(").and_then(|(_, rest)| rest.split_once(')'));
        let Some((variable, _)) = variable else { return Ok(value) };
        let what = format!(
            "$({variable}) is not a plain value in the environment of the container; give --{flag} \
             to mvp serve"
        );
        Err(Mistake::trouble(name(flag, &self.origin), what))
    }

    fn unresolved_address(&self, flag: &str) -> String {
        let flag = name(flag, &self.origin);
        format!(
            "{flag} is not a plain value: mvp uses the address of the default interface; give \
             --advertise-address if it is another one"
        )
    }

    /// A sentence for each flag that changes what clients see at the listener, and that `mvp` does not
    /// have.
    pub(super) fn not_taken_over(&self) -> Vec<String> {
        let set = |flag: &str| self.values.get(flag).and_then(|values| values.last());
        let mut sentences = Vec::new();
        if set("disable-http2-serving").is_some_and(|value| is_true(value)) {
            sentences.push(format!(
                "{} is not taken over: mvp offers HTTP/2, too",
                name("disable-http2-serving", &self.origin)
            ));
        }
        if set("tls-curve-preferences").is_some_and(|value| !value.is_empty()) {
            sentences.push(format!(
                "{} is not taken over: mvp offers its own key exchange groups",
                name("tls-curve-preferences", &self.origin)
            ));
        }
        if set("goaway-chance").is_some_and(|value| value.parse() != Ok(0.0)) {
            sentences.push(format!(
                "{} is not taken over: mvp has a flag of that name of its own, for its clients",
                name("goaway-chance", &self.origin)
            ));
        }
        sentences
    }

    #[cfg(test)]
    pub(super) fn of(words: &[&str]) -> Result<ServerFlags, Mistake> {
        let arguments = words.iter().map(ToString::to_string).collect();
        let command = ServerCommand { arguments, folder: "/".into(), mounts: Vec::new() };
        ServerFlags::parse(command, Origin::Manifest("m.yaml".into()))
    }

    #[cfg(test)]
    pub(super) fn all(&self, flag: &str) -> Vec<&str> {
        self.values.get(flag).into_iter().flatten().map(String::as_str).collect()
    }
}

/// Whether a boolean flag is on. Without a value it is.
fn is_true(value: &str) -> bool {
    matches!(value, "" | "true" | "True" | "TRUE" | "t" | "T" | "1")
}

/// The values of a list. They may be in quotes, as in a CSV file.
fn comma_separated(text: &str) -> Vec<String> {
    let (mut values, mut value, mut quoted) = (Vec::new(), String::new(), false);
    for character in text.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => values.push(std::mem::take(&mut value)),
            other => value.push(other),
        }
    }
    values.push(value);
    values
}
