//! `--with`: what a release adds and removes, from recorded surfaces of real servers. Entry: [`Releases::step`].

use mvp_apiserver::{Release, RuntimeConfig};
use mvp_core::Verb;
use mvp_core::member::Version;

use super::finding::{Finding, Kind};
use super::server::{Server, together};
use super::surface::{Api, Surface};
use crate::mistake::Mistake;

/// The recorded releases.
#[derive(Debug)]
pub(crate) struct Releases(Vec<Recorded>);

#[derive(Debug)]
struct Recorded {
    version: Version,
    git_version: String,
    /// What a server without flags serves.
    default: Surface,
    /// What a server with `--runtime-config=api/all=true` serves.
    all: Surface,
}

/// What a release changes, compared with what the servers serve now.
#[derive(Debug)]
pub(crate) struct Step {
    /// The recorded server.
    pub(crate) git_version: String,
    pub(crate) added: Vec<Api>,
    pub(crate) removed: Vec<Finding>,
    /// The number of resources that no release of Kubernetes has: custom and extension APIs.
    pub(crate) not_judged: usize,
}

impl Releases {
    pub(crate) fn recorded() -> Releases {
        Releases(Release::ALL.into_iter().filter_map(Recorded::of).collect())
    }

    /// The changes of a release such as `1.36` or `v1.36.4`.
    pub(crate) fn step(&self, version: &str, servers: &[Server]) -> Result<Step, Mistake> {
        let wanted = Version::parse(version);
        let Some(next) = self.0.iter().find(|recorded| Some(recorded.version) == wanted) else {
            let known: Vec<String> = self.0.iter().map(|it| it.version.to_string()).collect();
            let sentence =
                format!("{version:?} is not a recorded release; use {}", known.join(", "));
            return Err(Mistake::usage("--with", sentence));
        };
        let now = together(servers);
        let mut step = Step {
            git_version: next.git_version.clone(),
            added: self.added(next, &now, servers),
            removed: Vec::new(),
            not_judged: 0,
        };
        for (api, verbs) in now.iter() {
            match self.judge(next, api, servers) {
                Verdict::Stays => {}
                Verdict::NotJudged => step.not_judged += usize::from(api.subresource.is_none()),
                Verdict::Goes(kind) => {
                    step.removed.push(Finding::new(api, verbs, kind, &next.default));
                }
            }
        }
        Ok(step)
    }

    fn of(&self, server: &Server) -> Option<&Recorded> {
        self.0.iter().find(|recorded| Some(recorded.version) == server.version())
    }

    /// What becomes of an API that is served now.
    fn judge(&self, next: &Recorded, api: &Api, servers: &[Server]) -> Verdict {
        if !self.0.iter().any(|recorded| recorded.all.has_group(&api.group)) {
            return Verdict::NotJudged;
        }
        let serving =
            || servers.iter().filter(|it| it.surface().is_some_and(|known| known.has(api)));
        // An API that is off by default and switched on now is expected to stay switched on.
        let switched_on =
            || serving().any(|it| self.of(it).is_some_and(|now| !now.default.has(api)));
        if next.default.has(api) || (next.all.has(api) && switched_on()) {
            return Verdict::Stays;
        }
        if next.all.has(api) {
            let is_part = api.subresource.is_some() && !next.default.has(&api.parent());
            // A missing resource stands for its subresources.
            return if is_part { Verdict::Stays } else { Verdict::Goes(Kind::OffByDefault) };
        }
        if api.subresource.is_some() && !next.all.has(&api.parent()) {
            return Verdict::Stays;
        }
        // Not in the record of a server's own release: a feature gate or an extension serves it.
        let is_usual = |it: &Server| self.of(it).is_none_or(|now| now.all.has(api));
        if serving().any(is_usual) { Verdict::Goes(Kind::All) } else { Verdict::NotJudged }
    }

    /// What the release serves by default and no server serves now. What servers have switched off stays off.
    fn added(&self, next: &Recorded, now: &Surface, servers: &[Server]) -> Vec<Api> {
        let switched_off = |api: &Api| {
            let mut known = servers.iter().filter(|server| server.surface().is_some()).peekable();
            known.peek().is_some()
                && known.all(|server| self.of(server).is_some_and(|it| it.default.has(api)))
        };
        let is_new = |api: &&Api| {
            !now.has(api)
                && (api.subresource.is_none() || now.has(&api.parent()))
                && !switched_off(api)
        };
        next.default.iter().map(|(api, _)| api).filter(is_new).cloned().collect()
    }
}

enum Verdict {
    Stays,
    Goes(Kind),
    NotJudged,
}

impl Recorded {
    fn of(release: Release) -> Option<Recorded> {
        let spec = |config: &str| release.spec("", &RuntimeConfig::parse(config).ok()?).ok();
        let (default, all) = (spec("")?, spec("api/all=true")?);
        Some(Recorded {
            version: Version::parse(release.name())?,
            git_version: all.git_version.clone(),
            default: surface(&default),
            all: surface(&all),
        })
    }
}

fn surface(spec: &mvp_apiserver::ServerSpec) -> Surface {
    let set = |verbs: &[Verb]| verbs.iter().map(|verb| verb.as_str()).collect();
    let mut surface = Surface::default();
    for group in &spec.groups {
        for version in &group.versions {
            for entry in &version.resources {
                let api = Api::new(&group.name, &version.version, &entry.plural);
                for part in &entry.subresources {
                    surface.insert(api.sub(&part.name), set(&part.verbs));
                }
                surface.insert(api, set(&entry.verbs));
            }
        }
    }
    surface
}

#[cfg(test)]
mod tests;
