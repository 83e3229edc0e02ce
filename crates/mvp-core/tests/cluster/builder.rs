//! A short notation for clusters, and decisions as one line of text.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mvp_core::decide::{Action, Asked, Decision, Denial, LocalHealth, OnNotFound, Origin, decide};
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use mvp_core::member::{Member, MemberKind, Presence, Release, Seen, View};
use mvp_core::snapshot::{Inputs, Policy};
use mvp_core::{RequestInfo, Snapshot, Timestamp};
use serde_json::{Value, json};

/// The current second of all tests. Views were confirmed in it.
pub(crate) const NOW: u64 = 1000;

pub(crate) fn second(seconds: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_secs(seconds))
}

/// A member that serves these: `batch/v1/jobs`, `batch/v1/jobs/status`, `/v1/pods` (the core group),
/// with `:get,list` for verbs (default: all) and `!` before a cluster-scoped resource.
pub(crate) fn member(id: &str, release: &str, served: &[&str]) -> Member {
    let seen = |part| Some(Seen { list: Arc::new(list(part, served)), confirmed: second(NOW) });
    Member {
        id: id.into(),
        kind: MemberKind::Bare,
        address: Some(format!("{id}.example:6443").into()),
        presence: Presence::Present,
        joined: second(0),
        heard: second(NOW),
        awaited: true,
        view: View {
            api: seen(Part::Api),
            apis: seen(Part::Apis),
            release: Release::parse(release),
            ..View::default()
        },
    }
}

/// As [`member`], but without a view.
pub(crate) fn unseen(id: &str) -> Member {
    Member { view: View::default(), joined: second(NOW), ..member(id, "", &[]) }
}

/// The same member, with its view confirmed at another time.
pub(crate) fn confirmed_at(mut member: Member, seconds: u64) -> Member {
    for seen in [&mut member.view.api, &mut member.view.apis].into_iter().flatten() {
        seen.confirmed = second(seconds);
    }
    member
}

pub(crate) struct Cluster(pub(crate) Inputs);

impl Cluster {
    /// A cluster whose first member is local.
    pub(crate) fn beside<const N: usize>(members: [Member; N]) -> Cluster {
        let mut cluster = Cluster::before(members);
        cluster.0.local = cluster.0.members.first().map(|member| Arc::clone(&member.id));
        cluster
    }

    /// A cluster without a local member.
    pub(crate) fn before<const N: usize>(members: [Member; N]) -> Cluster {
        Cluster(Inputs {
            members_known: true,
            members: members.to_vec(),
            local: None,
            extension_versions: Arc::default(),
            started: second(0),
            now: second(NOW),
            policy: Policy::default(),
        })
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::build(self.0.clone(), None)
    }

    /// The decision for a client's request, such as `GET /apis`.
    pub(crate) fn client(&self, request: &str) -> String {
        self.asked(request, Asked { origin: Origin::Client, ..ready() })
    }

    /// The decision for a peer's request.
    pub(crate) fn peer(&self, request: &str) -> String {
        self.asked(request, Asked { origin: Origin::Peer, ..ready() })
    }

    /// The decision for a client that claims to be a peer.
    pub(crate) fn marked(&self, request: &str) -> String {
        self.asked(request, Asked { origin: Origin::Marked, ..ready() })
    }

    /// The decision for a client while the local server is in this state.
    pub(crate) fn while_local_is(&self, local: LocalHealth, request: &str) -> String {
        self.asked(request, Asked { local, ..ready() })
    }

    /// The decision for a client whose request these members denied, and whether they list it.
    pub(crate) fn denied(&self, request: &str, by: &[(&str, bool)]) -> String {
        let denials: Vec<Denial<'_>> = by
            .iter()
            .map(|(member, listed)| Denial { member, at: second(NOW), listed: *listed })
            .collect();
        self.asked(request, Asked { denials: &denials, ..ready() })
    }

    pub(crate) fn asked(&self, request: &str, asked: Asked<'_>) -> String {
        let (method, target) = request.split_once(' ').expect("a method and a target");
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let request = RequestInfo::parse(method, path, query);
        described(&decide(&request, &self.snapshot(), asked))
    }
}

/// A client's request in this second, with the local server ready.
pub(crate) fn ready() -> Asked<'static> {
    Asked {
        origin: Origin::Client,
        nopeer: false,
        arrived: second(NOW),
        local: LocalHealth::Ready,
        denials: &[],
    }
}

fn described(decision: &Decision<'_>) -> String {
    let action = match decision.action {
        Action::Answer => "answer".to_owned(),
        Action::Local { nopeer: false } => "local".to_owned(),
        Action::Local { nopeer: true } => "local+nopeer".to_owned(),
        Action::AskLocal => "ask-local".to_owned(),
        Action::AskAny => "ask-any".to_owned(),
        Action::Peers(peers) => {
            let ids: Vec<&str> = peers.iter().map(|member| &*member.id).collect();
            format!("peers {}", ids.join(","))
        }
        Action::PassNotFound => "pass-404".to_owned(),
        Action::Refuse => "refuse".to_owned(),
    };
    let on_not_found = match decision.on_not_found {
        OnNotFound::PassThrough => "",
        OnNotFound::NextUnlessObject => ", next unless object 404",
        OnNotFound::RefreshUnlessObject => ", refresh unless object 404",
        OnNotFound::Refresh => ", refresh on 404",
    };
    format!("{action}: {}{on_not_found}", decision.reason.as_str())
}

fn list(part: Part, served: &[&str]) -> GroupList {
    let mut document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [],
    });
    for entry in served {
        let (path, verbs) = entry
            .split_once(':')
            .unwrap_or((entry, "create,delete,deletecollection,get,list,patch,update,watch"));
        let scope = if path.starts_with('!') { "Cluster" } else { "Namespaced" };
        let mut steps = path.trim_start_matches('!').split('/');
        let mut step = || steps.next().unwrap_or_default();
        let (group, version, resource, subresource) = (step(), step(), step(), step());
        if Part::of_group(group) != part {
            continue;
        }
        let verbs: Vec<&str> = verbs.split(',').collect();
        let group = named(
            &mut document["items"],
            "/metadata/name",
            group,
            || json!({"metadata": {"name": group}, "versions": []}),
        );
        let version = named(
            &mut group["versions"],
            "/version",
            version,
            || json!({"version": version, "resources": [], "freshness": "Current"}),
        );
        let resource = named(
            &mut version["resources"],
            "/resource",
            resource,
            || json!({"resource": resource, "scope": scope, "verbs": verbs, "subresources": []}),
        );
        if !subresource.is_empty() {
            let subresources = resource["subresources"].as_array_mut().expect("a list");
            subresources.push(json!({"subresource": subresource, "verbs": verbs}));
        }
    }
    let source = Source { server: "test", document: part.path() };
    let document = Bytes::from(document.to_string());
    GroupList::parse(source, part, document, &Limits::default()).expect("a document").value
}

/// The entry with this name, created if it is missing.
fn named<'v>(
    entries: &'v mut Value,
    pointer: &str,
    name: &str,
    make: impl Fn() -> Value,
) -> &'v mut Value {
    let entries = entries.as_array_mut().expect("a list");
    let is = |entry: &Value| entry.pointer(pointer).and_then(Value::as_str) == Some(name);
    let place = entries.iter().position(is).unwrap_or_else(|| {
        entries.push(make());
        entries.len() - 1
    });
    &mut entries[place]
}
