//! A cluster for measurements: five members, each with the core group and 2,000 groups of custom
//! resources. Most groups are equal on all members: one in fifty differs on one of them, and each
//! member serves a few groups that no other does.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mvp_core::Timestamp;
use mvp_core::decide::{Asked, LocalHealth, Origin};
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use mvp_core::member::{Member, MemberKind, Presence, Release, Seen, Version, View};
use mvp_core::snapshot::{Inputs, Policy};

pub(super) const MEMBERS: usize = 5;
pub(super) const GROUPS: usize = 2_000;
/// One group in this many differs on one member.
const DIFFERS_EVERY: usize = 50;
/// The number of groups that only one member serves, for each member.
const UNIQUE: usize = 4;
/// The index of the local server; the member after it serves the groups that it lacks.
const LOCAL: usize = 0;

/// The documents of a member: `/api` and `/apis`.
#[derive(Clone)]
pub(super) struct Documents {
    pub(super) api: Bytes,
    pub(super) apis: Bytes,
}

/// A request as on the wire.
#[derive(Clone, Copy)]
pub(super) struct Wire {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) query: Option<&'static str>,
}

impl Wire {
    const fn new(method: &'static str, path: &'static str) -> Wire {
        Wire { method, path, query: None }
    }
}

pub(super) const LIST_PODS: Wire =
    Wire { query: Some("limit=500"), ..Wire::new("GET", "/api/v1/namespaces/kube-system/pods") };
pub(super) const GET_CUSTOM: Wire = Wire::new(
    "GET",
    "/apis/operator-1234.platform.example.com/v1/namespaces/team-a/widget1234s/main",
);
pub(super) const WATCH: Wire = Wire {
    query: Some("allowWatchBookmarks=true&resourceVersion=184467&timeoutSeconds=412&watch=true"),
    ..Wire::new("GET", "/apis/operator-0777.platform.example.com/v1/widget0777s")
};
pub(super) const PUT_STATUS: Wire = Wire::new(
    "PUT",
    "/apis/operator-1234.platform.example.com/v1/namespaces/team-a/widget1234s/main/status",
);
pub(super) const CREATE_ON_PEER: Wire =
    Wire::new("POST", "/apis/only-1-2.platform.example.com/v1/namespaces/team-a/gadgets");
pub(super) const DISCOVERY: Wire = Wire::new("GET", "/apis");
pub(super) const HEALTHZ: Wire = Wire::new("GET", "/healthz");

/// A client's request while the local server is ready.
pub(super) const ASKED: Asked<'static> = Asked {
    origin: Origin::Client,
    nopeer: false,
    arrived: NOW,
    local: LocalHealth::Ready,
    denials: &[],
};

const NOW: Timestamp = Timestamp::after_start(Duration::from_secs(3_600));

/// The documents of a member.
pub(super) fn documents(member: usize) -> Documents {
    Documents { api: api_document(), apis: apis_document(member, false) }
}

/// The document `/apis` of a member, with its groups sorted by name or in reverse.
pub(super) fn apis_document(member: usize, reversed: bool) -> Bytes {
    let shared = (0..GROUPS).map(|index| {
        let name = format!("operator-{index:04}.platform.example.com");
        let group = custom_group(&name, index, Deviation::of(member, index));
        (name, group)
    });
    let unique = (0..UNIQUE).map(|index| {
        let name = format!("only-{member}-{index}.platform.example.com");
        let resource = resource(&name, "v1", "Gadget", true, &["status"], STANDARD_VERBS);
        let group = group(&name, &[version("v1", &[resource])]);
        (name, group)
    });
    let mut groups: Vec<_> = shared.chain(unique).collect();
    groups.sort();
    if reversed {
        groups.reverse();
    }
    list(groups.iter().map(|(_, group)| &**group))
}

/// Parses the documents of a member.
pub(super) fn view(documents: &Documents) -> View {
    view_after(documents, &View::default())
}

/// Parses the documents of a member whose earlier ones are known.
pub(super) fn view_after(documents: &Documents, known: &View) -> View {
    View {
        api: Some(seen(Part::Api, &documents.api, known)),
        apis: Some(seen(Part::Apis, &documents.apis, known)),
        release: Some(Release::from(Version { major: 1, minor: 36 })),
        ..View::default()
    }
}

/// The input of a snapshot of members with these views.
pub(super) fn inputs(views: &[View]) -> Inputs {
    let id = |index: usize| -> Arc<str> { format!("apiserver-{index:016x}").into() };
    let member = |(index, view): (usize, &View)| Member {
        id: id(index),
        kind: MemberKind::Mvp,
        address: Some(format!("192.0.2.{index}:6443").into()),
        presence: Presence::Present,
        joined: Timestamp::default(),
        heard: NOW,
        awaited: true,
        view: view.clone(),
    };
    Inputs {
        members_known: true,
        members: views.iter().enumerate().map(member).collect(),
        local: Some(id(LOCAL)),
        extension_versions: Arc::default(),
        started: Timestamp::default(),
        now: NOW,
        policy: Policy::default(),
    }
}

fn seen(part: Part, document: &Bytes, known: &View) -> Seen {
    let source = Source { server: "bench", document: part.path() };
    let known = known.part(part).map(|seen| &*seen.list);
    let limits = Limits::default();
    let parsed = GroupList::parse_changed(source, part, document.clone(), &limits, known)
        .expect("a document that can be read");
    assert!(parsed.complaints.is_empty(), "{:?}", parsed.complaints);
    Seen { list: Arc::new(parsed.value), confirmed: NOW }
}

/// The difference of a group on one member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deviation {
    None,
    MissingVersion,
    OtherVerbs,
    OtherSubresource,
}

impl Deviation {
    fn of(member: usize, group: usize) -> Deviation {
        let turn = group / DIFFERS_EVERY;
        if !group.is_multiple_of(DIFFERS_EVERY) || turn % MEMBERS != member {
            return Deviation::None;
        }
        match turn % 3 {
            0 => Deviation::MissingVersion,
            1 => Deviation::OtherVerbs,
            _ => Deviation::OtherSubresource,
        }
    }
}

const STANDARD_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// A group of custom resources: one or two versions, one or two resources.
fn custom_group(name: &str, index: usize, deviation: Deviation) -> String {
    let two_versions = index.is_multiple_of(5);
    let two_resources = index % 7 == 3;
    let verbs = match deviation {
        Deviation::OtherVerbs => STANDARD_VERBS.split_last().map_or(&[][..], |(_, rest)| rest),
        _ => STANDARD_VERBS,
    };
    let subresources: &[&str] = match deviation {
        Deviation::OtherSubresource => &["status", "scale"],
        _ if index % 4 == 1 => &["status", "scale"],
        _ => &["status"],
    };
    let resources = |version: &str| {
        let widget = format!("Widget{index:04}");
        let mut resources = vec![resource(name, version, &widget, true, subresources, verbs)];
        if two_resources {
            let class = format!("WidgetClass{index:04}");
            resources.push(resource(name, version, &class, false, &[], STANDARD_VERBS));
        }
        resources
    };
    let mut versions = vec![version("v1", &resources("v1"))];
    if two_versions && deviation != Deviation::MissingVersion {
        versions.push(version("v1beta1", &resources("v1beta1")));
    }
    group(name, &versions)
}

/// The core group with the resources of a server of 1.36.
fn api_document() -> Bytes {
    let all = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let namespaced: &[(&str, &[&str])] = &[
        ("ConfigMap", &[]),
        ("Endpoints", &[]),
        ("Event", &[]),
        ("LimitRange", &[]),
        ("PersistentVolumeClaim", &["status"]),
        (
            "Pod",
            &[
                "attach",
                "binding",
                "ephemeralcontainers",
                "eviction",
                "exec",
                "log",
                "portforward",
                "proxy",
                "resize",
                "status",
            ],
        ),
        ("PodTemplate", &[]),
        ("ReplicationController", &["scale", "status"]),
        ("ResourceQuota", &["status"]),
        ("Secret", &[]),
        ("ServiceAccount", &["token"]),
        ("Service", &["proxy", "status"]),
    ];
    let cluster: &[(&str, &[&str])] = &[
        ("ComponentStatus", &[]),
        ("Namespace", &["finalize", "status"]),
        ("Node", &["proxy", "status"]),
        ("PersistentVolume", &["status"]),
    ];
    let of = |scope: &[(&str, &[&str])], namespaced: bool| -> Vec<String> {
        scope
            .iter()
            .map(|(kind, subresources)| resource("", "v1", kind, namespaced, subresources, all))
            .collect()
    };
    let resources = [of(namespaced, true), of(cluster, false)].concat();
    list([&*group("", &[version("v1", &resources)])])
}

fn list<'g>(groups: impl IntoIterator<Item = &'g str>) -> Bytes {
    let items = groups.into_iter().collect::<Vec<_>>().join(",");
    format!(
        r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{{}},"items":[{items}]}}"#
    )
    .into()
}

fn group(name: &str, versions: &[String]) -> String {
    let versions = versions.join(",");
    let name = if name.is_empty() { String::new() } else { format!(r#""name":"{name}","#) };
    format!(r#"{{"metadata":{{{name}"creationTimestamp":null}},"versions":[{versions}]}}"#)
}

fn version(name: &str, resources: &[String]) -> String {
    let resources = resources.join(",");
    format!(r#"{{"version":"{name}","resources":[{resources}],"freshness":"Current"}}"#)
}

fn resource(
    group: &str,
    version: &str,
    kind: &str,
    namespaced: bool,
    subresources: &[&str],
    verbs: &[&str],
) -> String {
    let singular = kind.to_lowercase();
    let plural = match singular.as_str() {
        "endpoints" => singular.clone(),
        ends if ends.ends_with('s') => format!("{ends}es"),
        other => format!("{other}s"),
    };
    let scope = if namespaced { "Namespaced" } else { "Cluster" };
    let kind_of = |group: &str, version: &str, kind: &str| {
        format!(r#""responseKind":{{"group":"{group}","version":"{version}","kind":"{kind}"}}"#)
    };
    let mut text = format!(
        r#"{{"resource":"{plural}",{},"scope":"{scope}","singularResource":"{singular}","verbs":["{}"]"#,
        kind_of(group, version, kind),
        verbs.join(r#"",""#),
    );
    if namespaced {
        let short = singular.chars().rev().take(3).collect::<String>();
        write!(text, r#","shortNames":["{short}"],"categories":["all"]"#).expect("text");
    }
    let subresources: Vec<_> = subresources
        .iter()
        .map(|subresource| {
            let kind = match *subresource {
                "scale" => kind_of("autoscaling", "v1", "Scale"),
                _ => kind_of(group, version, kind),
            };
            format!(r#"{{"subresource":"{subresource}",{kind},"verbs":["get","patch","update"]}}"#)
        })
        .collect();
    if !subresources.is_empty() {
        let subresources = subresources.join(",");
        write!(text, r#","subresources":[{subresources}]"#).expect("text");
    }
    text.push('}');
    text
}
