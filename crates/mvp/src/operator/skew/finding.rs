//! An API that a step takes away, with who would miss it. Entry: [`Finding`].

use mvp_core::{Verb, VerbSet};
use serde_json::{Value, json};

use super::surface::{Api, Surface, joined};

/// An API that goes away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) api: Api,
    pub(crate) kind: Kind,
    /// Other versions in which the resource stays.
    pub(crate) stays_as: Vec<String>,
    pub(crate) objects: Objects,
    pub(crate) callers: Callers,
}

/// What goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The whole API.
    All,
    /// These verbs of it.
    Verbs(VerbSet),
    /// It is served only if a flag switches it on.
    OffByDefault,
}

/// The objects of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Objects {
    /// It stores none, or they stay reachable.
    NotApplicable,
    Exactly(u64),
    /// The server did not say how many more there are.
    MoreThan(u64),
    /// They could not be counted, for this reason.
    Unknown(String),
}

/// Who called an API lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Callers {
    /// No gateway could be asked.
    Unknown,
    /// Those that the gateway knows: user and user agent.
    Known(Vec<String>),
}

impl Finding {
    /// A finding whose objects are not counted yet.
    pub(crate) fn new(api: &Api, verbs: VerbSet, kind: Kind, left: &Surface) -> Finding {
        let stores = api.subresource.is_none()
            && verbs.allows(Verb::List)
            && !matches!(kind, Kind::Verbs(_));
        let objects = match stores {
            true => Objects::Unknown("they were not counted".to_owned()),
            false => Objects::NotApplicable,
        };
        let stays_as = left.other_versions(api);
        Finding { api: api.clone(), kind, stays_as, objects, callers: Callers::Unknown }
    }

    /// Whether somebody would miss the API: it has callers or objects, or its objects are unknown.
    pub(crate) fn is_used(&self) -> bool {
        let has_objects = match &self.objects {
            Objects::NotApplicable => false,
            Objects::Exactly(count) => *count > 0,
            Objects::MoreThan(_) | Objects::Unknown(_) => true,
        };
        has_objects || matches!(&self.callers, Callers::Known(callers) if !callers.is_empty())
    }

    /// What goes away, for people.
    pub(crate) fn what(&self) -> String {
        match self.kind {
            Kind::All => self.api.name(),
            Kind::Verbs(verbs) => format!("{} ({})", self.api.name(), joined(verbs)),
            Kind::OffByDefault => format!("{} (off by default)", self.api.name()),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let verbs = match self.kind {
            Kind::Verbs(verbs) => Some(verbs.iter().map(Verb::as_str).collect::<Vec<_>>()),
            Kind::All | Kind::OffByDefault => None,
        };
        let (objects, unknown) = match &self.objects {
            Objects::NotApplicable => (Some(0), None),
            Objects::Exactly(count) => (Some(*count), None),
            Objects::MoreThan(count) => (None, Some(format!("more than {count}"))),
            Objects::Unknown(reason) => (None, Some(reason.clone())),
        };
        let callers = match &self.callers {
            Callers::Unknown => None,
            Callers::Known(callers) => Some(callers),
        };
        json!({
            "group": self.api.group, "version": self.api.version, "resource": self.api.resource,
            "subresource": self.api.subresource, "verbs": verbs,
            "offByDefault": self.kind == Kind::OffByDefault, "staysAs": self.stays_as,
            "objects": objects, "objectsUnknown": unknown, "callers": callers,
        })
    }
}

impl Objects {
    /// The count for people.
    pub(crate) fn shown(&self) -> String {
        match self {
            Objects::NotApplicable => "-".to_owned(),
            Objects::Exactly(count) => count.to_string(),
            Objects::MoreThan(count) => format!("more than {count}"),
            Objects::Unknown(_) => "unknown".to_owned(),
        }
    }
}

impl Callers {
    /// The callers for people; the first three by name.
    pub(crate) fn shown(&self) -> String {
        const NAMED: usize = 3;
        match self {
            Callers::Unknown => "unknown".to_owned(),
            Callers::Known(callers) if callers.is_empty() => "none".to_owned(),
            Callers::Known(callers) => {
                let more = callers.len().saturating_sub(NAMED);
                let named = callers.get(..NAMED).unwrap_or(callers).join(", ");
                if more > 0 { format!("{named} and {more} more") } else { named }
            }
        }
    }
}
