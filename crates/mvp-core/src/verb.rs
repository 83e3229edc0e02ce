//! Verbs of requests, and the sets of verbs that servers list for resources.

/// The verb of a request, as in discovery and RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verb {
    /// Create an object, or call a subresource with POST.
    Create,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Patch an object.
    Patch,
    /// Replace an object.
    Update,
    /// Watch a collection or an object.
    Watch,
    /// The old `/proxy/` path prefix. No server lists it.
    Proxy,
    /// A method without a verb, such as OPTIONS.
    Other,
}

/// The verbs that discovery can list, in the alphabetical order in which servers list them.
const LISTED: [(Verb, &str); 8] = [
    (Verb::Create, "create"),
    (Verb::Delete, "delete"),
    (Verb::DeleteCollection, "deletecollection"),
    (Verb::Get, "get"),
    (Verb::List, "list"),
    (Verb::Patch, "patch"),
    (Verb::Update, "update"),
    (Verb::Watch, "watch"),
];

impl Verb {
    /// The verb as spelled in discovery; empty for [`Verb::Other`].
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Proxy => "proxy",
            Verb::Other => "",
            listed => LISTED.iter().find(|(verb, _)| *verb == listed).map_or("", |(_, name)| name),
        }
    }

    /// The verb with this spelling in discovery; `None` if it is unknown.
    pub fn from_listed(name: &str) -> Option<Verb> {
        LISTED.iter().find(|(_, listed)| *listed == name).map(|(verb, _)| *verb)
    }

    /// Whether this verb only reads. For a request, use [`RequestInfo::is_read`].
    ///
    /// [`RequestInfo::is_read`]: crate::RequestInfo::is_read
    pub fn is_read(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }

    /// The bit of a listed verb in a [`VerbSet`]; `None` for verbs that no server lists.
    fn bit(self) -> Option<u8> {
        1u8.checked_shl(self as u32)
    }
}

/// The verbs that a server lists for a resource or subresource. Unknown verbs stay in the document,
/// but no request has one, so they are not in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct VerbSet(u8);

impl VerbSet {
    /// Adds a verb as spelled in discovery; ignores an unknown one.
    pub fn insert_listed(&mut self, name: &str) {
        if let Some(bit) = Verb::from_listed(name).and_then(Verb::bit) {
            self.0 |= bit;
        }
    }

    /// Whether the set allows a request with this verb. Every set allows [`Verb::Other`], which only
    /// needs the resource to exist.
    pub fn allows(self, verb: Verb) -> bool {
        match verb {
            Verb::Other => true,
            verb => verb.bit().is_some_and(|bit| self.0 & bit != 0),
        }
    }

    /// The union of both sets.
    #[must_use]
    pub fn union(self, other: VerbSet) -> VerbSet {
        VerbSet(self.0 | other.0)
    }

    /// The verbs of the set in alphabetical order.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        LISTED.iter().map(|(verb, _)| *verb).filter(move |verb| self.allows(*verb))
    }
}

impl<'a> FromIterator<&'a str> for VerbSet {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut set = VerbSet::default();
        for name in names {
            set.insert_listed(name);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_allows_only_listed_verbs() {
        let set: VerbSet = ["get", "watch", "frobnicate"].into_iter().collect();
        assert!(set.allows(Verb::Get) && set.allows(Verb::Watch));
        assert!(!set.allows(Verb::List) && !set.allows(Verb::Proxy));
        assert!(set.allows(Verb::Other), "OPTIONS needs only the resource");
        assert_eq!(set.iter().map(Verb::as_str).collect::<Vec<_>>(), ["get", "watch"]);
    }

    #[test]
    fn every_listed_verb_round_trips() {
        for (verb, name) in LISTED {
            assert_eq!((verb.as_str(), Verb::from_listed(name)), (name, Some(verb)));
        }
    }
}
