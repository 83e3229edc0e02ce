//! Random clusters: members in every state, and their snapshots.

use std::sync::Arc;
use std::time::Duration;

use mvp_core::discovery::{GroupList, Limits, Part, Source};
use mvp_core::member::{Member, MemberKind, Presence, Release, Seen, Version, View};
use mvp_core::snapshot::{Inputs, Policy};
use mvp_core::{Snapshot, Timestamp, openapi};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Value, json};

use crate::documents::{GROUPS, VERSIONS, document, parse};

/// The current time of every cluster, in seconds after the start of the clock.
pub(crate) const NOW: u64 = 1000;

const IDS: [&str; 5] = ["apiserver-a", "apiserver-b", "apiserver-c", "apiserver-d", "other"];

/// A member, and the documents of its view.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) member: Member,
    api: Option<Value>,
    apis: Option<Value>,
}

/// The members of a cluster; one of them may be local.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    pub(crate) local: Option<Arc<str>>,
    pub(crate) extensions: Vec<(String, String)>,
    pub(crate) started: u64,
    pub(crate) now: u64,
}

/// A cluster of one to five members in any state. Some have the same documents, as servers of one
/// release do.
pub(crate) fn clusters() -> impl Strategy<Value = Cluster> {
    let servers = subsequence(&IDS[..], 1..=IDS.len())
        .prop_shuffle()
        .prop_flat_map(|ids| ids.into_iter().map(server).collect::<Vec<_>>());
    let documents = (vec(document(Part::Api), 2), vec(document(Part::Apis), 3));
    let indexes = (vec(index(), 2), vec(option::of(any::<Index>()), IDS.len()));
    let extension = (select(&GROUPS[..]), select(&VERSIONS[..]));
    let extensions = prop_oneof![3 => Just(Vec::new()), 1 => vec(extension, 1..=2)];
    let local = option::weighted(0.8, any::<Index>());
    (servers, documents, indexes, local, extensions, ages()).prop_map(
        |(servers, (api, apis), (indexes, which), local, extensions, uptime)| {
            let with_documents = |(member, ages): (Member, [Option<Age>; 2])| {
                let mut server = Server { member, api: None, apis: None };
                for ((part, documents), age) in Part::ALL.into_iter().zip([&api, &apis]).zip(&ages)
                {
                    if let Some((which, age)) = age {
                        server.see(part, which.get(documents), NOW - age);
                    }
                }
                server
            };
            let mut servers: Vec<Server> = servers.into_iter().map(with_documents).collect();
            for (server, which) in servers.iter_mut().zip(which) {
                server.member.view.openapi = which.map(|which| Arc::clone(which.get(&indexes)));
            }
            let owned = |(group, version): (&str, &str)| (group.to_owned(), version.to_owned());
            Cluster {
                local: local.map(|local| Arc::clone(&local.get(&servers).member.id)),
                servers,
                extensions: extensions.into_iter().map(owned).collect(),
                started: NOW - uptime,
                now: NOW,
            }
        },
    )
}

/// An OpenAPI index for some of the groups and versions, each with one of three documents.
fn index() -> impl Strategy<Value = Arc<openapi::Index>> {
    let keys: Vec<String> = GROUPS
        .iter()
        .flat_map(|group| VERSIONS.map(|version| format!("apis/{group}/{version}")))
        .chain(VERSIONS.map(|version| format!("api/{version}")))
        .chain(["version".to_owned()])
        .collect();
    let hashes = vec(select(vec!["", "?hash=A", "?hash=B", "?hash=C"]), keys.len());
    (subsequence(keys, 0..=13), hashes).prop_map(|(keys, hashes)| {
        let entry = |(key, hash): (&String, &str)| {
            (key.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{key}{hash}")}))
        };
        let paths: serde_json::Map<String, Value> = keys.iter().zip(hashes).map(entry).collect();
        let source = Source { server: "any", document: "/openapi/v3" };
        let text = json!({"paths": paths}).to_string();
        Arc::new(openapi::Index::parse(source, text.into(), &Limits::default()).expect("an index"))
    })
}

/// Which of the cluster's documents a member sent, and how long ago it was confirmed.
type Age = (Index, u64);

/// A member, and the documents that it gets, if any.
fn server(id: &'static str) -> impl Strategy<Value = (Member, [Option<Age>; 2])> {
    let kind = select(vec![MemberKind::Mvp, MemberKind::Bare]);
    let presence = prop_oneof![4 => Just(Presence::Present), 1 => Just(Presence::Left)];
    let address = option::weighted(0.85, Just(Arc::from("10.0.0.1:6443")));
    let times = (ages(), ages(), prop::bool::weighted(0.85));
    let part = || option::weighted(0.85, (any::<Index>(), ages()));
    (kind, presence, address, times, [part(), part()], releases()).prop_map(
        move |(kind, presence, address, (joined, heard, awaited), parts, release)| {
            let member = Member {
                id: id.into(),
                kind,
                address,
                presence,
                joined: at(NOW - joined),
                heard: at(NOW - heard),
                awaited,
                view: View { release, ..View::default() },
            };
            (member, parts)
        },
    )
}

/// Ages in seconds, below and above every limit of the default policy.
pub(crate) fn ages() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0..4u64,
        1 => select(vec![5, 6, 29, 30, 31, 40, 41, 300, 301, 900]),
    ]
}

pub(crate) fn releases() -> impl Strategy<Value = Option<Release>> {
    let version = || (34..=36u16).prop_map(|minor| Version { major: 1, minor });
    let release =
        (version(), version()).prop_map(|(emulated, binary)| Release { emulated, binary });
    option::weighted(0.8, release)
}

/// The time at this many seconds after the start of the clock.
pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_secs(seconds))
}

impl Server {
    pub(crate) fn document(&self, part: Part) -> Option<&Value> {
        match part {
            Part::Api => self.api.as_ref(),
            Part::Apis => self.apis.as_ref(),
        }
    }

    /// Whether a request can be sent to it.
    pub(crate) fn reachable(&self) -> bool {
        self.member.presence == Presence::Present && self.member.address.is_some()
    }

    /// The member responds to a fetch that began at `moment` with these documents; with `None`, that
    /// the previous one has not changed.
    pub(crate) fn confirm(&mut self, moment: u64, new: [Option<&Value>; 2]) {
        for (part, new) in Part::ALL.into_iter().zip(new) {
            if let Some(document) = new.or(self.document(part)).cloned() {
                self.see(part, &document, moment);
            }
        }
        self.member.heard = at(moment);
    }

    /// The member was never seen.
    pub(crate) fn forget(&mut self) {
        (self.member.view.api, self.member.view.apis) = (None, None);
        (self.api, self.apis) = (None, None);
    }

    fn see(&mut self, part: Part, document: &Value, moment: u64) {
        let seen = Some(Seen { list: parse(part, document), confirmed: at(moment) });
        let document = Some(document.clone());
        match part {
            Part::Api => (self.member.view.api, self.api) = (seen, document),
            Part::Apis => (self.member.view.apis, self.apis) = (seen, document),
        }
    }
}

impl Cluster {
    /// A cluster of healthy members with these documents and fresh views.
    pub(crate) fn healthy(lists: &[(Arc<GroupList>, Arc<GroupList>)]) -> Cluster {
        let server = |(id, (api, apis)): (&&str, &(Arc<GroupList>, Arc<GroupList>))| {
            let seen = |list| Some(Seen { list: Arc::clone(list), confirmed: at(NOW) });
            let view = View { api: seen(api), apis: seen(apis), ..View::default() };
            let member = Member {
                id: (*id).into(),
                kind: MemberKind::Mvp,
                address: Some("10.0.0.1:6443".into()),
                presence: Presence::Present,
                joined: at(0),
                heard: at(NOW),
                awaited: true,
                view,
            };
            Server { member, api: None, apis: None }
        };
        Cluster {
            servers: IDS.iter().zip(lists).map(server).collect(),
            local: None,
            extensions: Vec::new(),
            started: 0,
            now: NOW,
        }
    }

    pub(crate) fn inputs(&self) -> Inputs {
        Inputs {
            members_known: true,
            members: self.servers.iter().map(|server| server.member.clone()).collect(),
            local: self.local.clone(),
            extension_versions: self.extensions.clone().into(),
            started: at(self.started),
            now: at(self.now),
            policy: Policy::default(),
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::build(self.inputs(), None)
    }

    pub(crate) fn server(&self, id: &str) -> &Server {
        self.servers.iter().find(|server| &*server.member.id == id).expect("a member")
    }

    pub(crate) fn local_server(&self) -> Option<&Server> {
        self.servers.iter().find(|server| Some(&server.member.id) == self.local.as_ref())
    }

    pub(crate) fn is_local(&self, server: &Server) -> bool {
        Some(&server.member.id) == self.local.as_ref()
    }

    /// The members that must confirm before a 404 is true: those that can be asked, had a recent
    /// heartbeat, and were not silent for too long.
    pub(crate) fn accountable(&self, part: Part) -> impl Iterator<Item = &Server> {
        let policy = Policy::default();
        self.servers.iter().filter(move |server| {
            let member = &server.member;
            let back = if member.awaited { member.joined } else { at(0) };
            let seen = member.view.part(part);
            let answered = seen.map_or(member.joined, |seen| seen.confirmed.max(back));
            !self.is_local(server)
                && server.reachable()
                && (member.awaited || member.view.part(part).is_some())
                && at(self.now).since(member.heard) <= policy.heard_within
                && at(self.now).since(answered) <= policy.blocks_for
        })
    }
}
