//! The servers of the model: what they serve, and what they answer.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::request::Parts;
use mvp_core::RequestInfo;
use mvp_core::decide::Origin;
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use mvp_core::member::Release;

use super::bits::Bits;

/// The members. The gateway under test stands in front of the first one, the second one has a
/// gateway, too, and the third one has none.
pub(super) const IDS: [&str; 3] = ["a", "b", "c"];
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;

/// The index of a member.
pub(super) fn index(id: &str) -> usize {
    IDS.iter().position(|known| *known == id).expect("a member of the model")
}

/// The version of a server. The old one serves `old.example` and `shared.example`, the new one
/// `new.example` and `shared.example`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Version {
    Old,
    New,
}

pub(super) use Version::{New, Old};

impl Version {
    pub(super) const ALL: [Version; 2] = [Old, New];

    pub(super) fn bits(self) -> Bits {
        Bits::of(self as usize)
    }

    pub(super) fn other(self) -> Version {
        match self {
            Old => New,
            New => Old,
        }
    }

    fn groups(self) -> [&'static str; 2] {
        [self.own_group(), "shared.example"]
    }

    /// The group that only this version serves.
    pub(super) fn own_group(self) -> &'static str {
        match self {
            Old => "old.example",
            New => "new.example",
        }
    }

    pub(super) fn serves(self, group: &str) -> bool {
        self.groups().contains(&group)
    }

    /// The discovery document of a server of this version.
    pub(super) fn document(self) -> Arc<GroupList> {
        static DOCUMENTS: LazyLock<[Arc<GroupList>; 2]> =
            LazyLock::new(|| Version::ALL.map(|version| Arc::new(document(version))));
        Arc::clone(&DOCUMENTS[self as usize])
    }

    /// The version that a document describes.
    pub(super) fn of(document: &GroupList) -> Version {
        if document.group("new.example").is_some() { New } else { Old }
    }

    pub(super) fn release(self) -> Option<Release> {
        Release::parse(match self {
            Old => "v1.34.0",
            New => "v1.36.0",
        })
    }
}

fn document(version: Version) -> GroupList {
    let group = |name: &str| {
        let things = serde_json::json!({
            "resource": "things",
            "responseKind": {"group": name, "version": "v1", "kind": "Thing"},
            "scope": "Namespaced", "singularResource": "thing", "verbs": ["create", "get", "list"],
        });
        let versions = [serde_json::json!({"version": "v1", "resources": [things]})];
        serde_json::json!({"metadata": {"name": name}, "versions": versions})
    };
    let document = serde_json::json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "items": version.groups().map(group),
    });
    let source = Source { server: "model", document: "/apis" };
    let text = Bytes::from(document.to_string());
    GroupList::parse(source, Part::Apis, text, &Limits::default()).unwrap().value
}

/// What a server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Up(Version),
    /// It listens, but forbids everything.
    Starting(Version),
    Down(Version),
}

impl Life {
    pub(super) fn version(self) -> Version {
        match self {
            Life::Up(version) | Life::Starting(version) | Life::Down(version) => version,
        }
    }

    /// The states that a request can meet, as bits.
    pub(super) fn bits(self) -> Bits {
        match self {
            Life::Up(version) => version.bits(),
            Life::Starting(_) => STARTING,
            Life::Down(_) => DOWN,
        }
    }
}

pub(super) const STARTING: Bits = Bits::of(2);
pub(super) const DOWN: Bits = Bits::of(3);

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum About {
    /// A resource of this group.
    Resource(&'static str),
    Discovery,
    /// The health of the server itself.
    Health,
}

/// A request of the model.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) name: &'static str,
    pub(super) about: About,
    pub(super) info: RequestInfo<'static>,
    /// The same path, read.
    pub(super) as_read: RequestInfo<'static>,
    pub(super) parts: Parts,
    pub(super) origin: Origin,
    pub(super) nopeer: bool,
    pub(super) is_write: bool,
    /// Whether servers that have the resource allow the method.
    allowed: bool,
    /// Whether servers that have the resource answer with a 404 that proves nothing.
    pub(super) vague: bool,
}

/// What a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Reply {
    /// It serves the request. A write is processed.
    Served(Version),
    /// It has the resource, but not the verb: 405.
    NotAllowed,
    /// An unrouted 404.
    Unrouted,
    /// A 404 that does not tell whether the server has the resource. It has, and processed a write.
    Vague,
    /// It has not read its rules yet: 403.
    Forbidden,
}

impl Ask {
    /// What a server of this version answers.
    pub(super) fn answered_by(&self, version: Version) -> Reply {
        match self.about {
            About::Resource(group) if !version.serves(group) => Reply::Unrouted,
            About::Resource(_) if !self.allowed => Reply::NotAllowed,
            About::Resource(_) if self.vague => Reply::Vague,
            _ => Reply::Served(version),
        }
    }

    /// Whether such a server answers it with success.
    pub(super) fn is_served_by(&self, life: Life) -> bool {
        matches!(life, Life::Up(version) if matches!(self.answered_by(version), Reply::Served(_)))
    }

    /// Whether a 404 from the cluster is false while such a server is up.
    pub(super) fn has(&self, life: Life) -> bool {
        match life {
            Life::Up(version) => {
                !matches!(self.answered_by(version), Reply::Unrouted | Reply::Vague)
            }
            Life::Starting(_) | Life::Down(_) => false,
        }
    }
}

const fn things(group: &'static str) -> &'static str {
    match group.as_bytes() {
        b"old.example" => "/apis/old.example/v1/namespaces/x/things",
        b"new.example" => "/apis/new.example/v1/namespaces/x/things",
        _ => "/apis/shared.example/v1/namespaces/x/things",
    }
}

fn ask(name: &'static str, method: &'static str, about: About, origin: Origin) -> Ask {
    let path = match about {
        About::Resource(group) => things(group),
        About::Discovery => "/apis",
        About::Health => "/healthz",
    };
    let info = RequestInfo::parse(method, path, None);
    let as_read = RequestInfo::parse("GET", path, None);
    let (parts, ()) = http::Request::new(()).into_parts();
    let (is_write, allowed) = (matches!(method, "POST" | "DELETE"), method != "DELETE");
    Ask {
        name,
        about,
        info,
        as_read,
        parts,
        origin,
        nopeer: false,
        is_write,
        allowed,
        vague: false,
    }
}

/// Every request of the model, by name.
pub(super) static ASKS: LazyLock<Vec<Ask>> = LazyLock::new(|| {
    use About::{Discovery, Health, Resource};
    use Origin::{Client, Marked, Peer};
    let (old, new, shared) =
        (Resource("old.example"), Resource("new.example"), Resource("shared.example"));
    vec![
        ask("read new", "GET", new, Client),
        ask("write new", "POST", new, Client),
        ask("read old", "GET", old, Client),
        ask("write old", "POST", old, Client),
        ask("read shared", "GET", shared, Client),
        ask("write shared", "POST", shared, Client),
        Ask { vague: true, ..ask("vague read", "GET", shared, Client) },
        Ask { vague: true, ..ask("vague write", "POST", shared, Client) },
        Ask { vague: true, ..ask("vague write new", "POST", new, Client) },
        ask("clear new", "DELETE", new, Client),
        ask("discovery", "GET", Discovery, Client),
        Ask { nopeer: true, ..ask("own discovery", "GET", Discovery, Client) },
        ask("health", "GET", Health, Client),
        ask("read new from a peer", "GET", new, Peer),
        ask("write new from a peer", "POST", new, Peer),
        ask("read new, marked", "GET", new, Marked),
        ask("discovery from a peer", "GET", Discovery, Peer),
    ]
});

/// The request with this name.
pub(super) fn named(name: &str) -> &'static Ask {
    ASKS.iter().find(|ask| ask.name == name).unwrap_or_else(|| panic!("no request {name}"))
}
