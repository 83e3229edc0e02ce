//! Random requests and their circumstances.

use mvp_core::RequestInfo;
use mvp_core::decide::{Asked, Denial, LocalHealth, Origin};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::clusters::{NOW, ages, at};
use crate::documents::{GROUPS, RESOURCES, SUBRESOURCES, VERSIONS};

/// A request as on the wire.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    method: &'static str,
    path: String,
    query: Option<&'static str>,
}

impl Target {
    pub(crate) fn info(&self) -> RequestInfo<'_> {
        RequestInfo::parse(self.method, &self.path, self.query)
    }
}

/// Requests for resources, most of which some member of most clusters lists.
pub(crate) fn resource_targets() -> impl Strategy<Value = Target> {
    let methods = vec!["GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let namespaces = option::of(Just("default"));
    let names = option::of((Just("one"), option::of(select(&SUBRESOURCES[..]))));
    let queries = option::weighted(0.2, select(vec!["watch=true", "limit=5"]));
    (select(methods), group_paths(), resources(), namespaces, names, queries).prop_map(
        |(method, prefix, resource, namespace, name, query)| {
            let mut path = prefix;
            for part in namespace.iter().flat_map(|name| ["namespaces", name]).chain([resource]) {
                path.push('/');
                path.push_str(part);
            }
            if let Some((name, subresource)) = name {
                path = format!("{path}/{name}");
                if let Some(subresource) = subresource {
                    path = format!("{path}/{subresource}");
                }
            }
            Target { method, path, query }
        },
    )
}

/// Requests for discovery, OpenAPI and non-resource paths.
pub(crate) fn other_targets() -> impl Strategy<Value = Target> {
    let fixed = select(vec![
        "/api",
        "/apis",
        "/api",
        "/apis",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/apis/apps/v1",
        "/healthz",
        "/version",
        "/",
        "*",
        "/%zz",
    ]);
    let groups = GROUPS.into_iter().chain(["nobody.example.com"]).collect::<Vec<_>>();
    let path = prop_oneof![
        fixed.prop_map(str::to_owned),
        select(groups).prop_map(|group| format!("/apis/{group}")),
        group_paths(),
        group_paths(),
    ];
    let method = prop_oneof![6 => Just("GET"), 1 => Just("POST")];
    (method, path).prop_map(|(method, path)| Target { method, path, query: None })
}

/// A path `/api/V` or `/apis/G/V`.
fn group_paths() -> impl Strategy<Value = String> {
    let group = prop_oneof![2 => Just(""), 8 => select(&GROUPS[..]), 1 => Just("nobody.io")];
    let version = prop_oneof![8 => select(&VERSIONS[..]), 1 => Just("v9")];
    (group, version).prop_map(|(group, version)| {
        if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        }
    })
}

fn resources() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => select(&RESOURCES[..]), 1 => Just("unheardof")]
}

/// The owned form of [`Asked`].
#[derive(Debug, Clone)]
pub(crate) struct Circumstances {
    pub(crate) origin: Origin,
    pub(crate) nopeer: bool,
    pub(crate) arrived: u64,
    pub(crate) local: LocalHealth,
    pub(crate) denials: Vec<(&'static str, u64, bool)>,
}

impl Circumstances {
    /// Calls a function with the borrowed form.
    pub(crate) fn denials(&self) -> Vec<Denial<'_>> {
        let denial = |&(member, moment, listed)| Denial { member, at: at(moment), listed };
        self.denials.iter().map(denial).collect()
    }

    pub(crate) fn asked<'a>(&self, denials: &'a [Denial<'a>]) -> Asked<'a> {
        Asked {
            origin: self.origin,
            nopeer: self.nopeer,
            arrived: at(self.arrived),
            local: self.local,
            denials,
        }
    }
}

/// Circumstances with denials by members.
pub(crate) fn circumstances() -> impl Strategy<Value = Circumstances> {
    let origin = prop_oneof![
        3 => Just(Origin::Client),
        1 => Just(Origin::Peer),
        1 => Just(Origin::Marked),
    ];
    let local = prop_oneof![
        2 => Just(LocalHealth::Ready),
        1 => Just(LocalHealth::Unready),
        2 => Just(LocalHealth::Unreachable),
    ];
    let member = select(vec!["apiserver-a", "apiserver-b", "apiserver-c", "other", "nobody"]);
    let denial = (member, ages(), any::<bool>())
        .prop_map(|(member, age, listed)| (member, NOW - age, listed));
    let denials = prop_oneof![Just(Vec::new()), vec(denial, 1..=3)];
    (origin, any::<bool>(), ages(), local, denials).prop_map(
        |(origin, nopeer, age, local, denials)| Circumstances {
            origin,
            nopeer,
            arrived: NOW - age,
            local,
            denials,
        },
    )
}

/// Requests for resources with random circumstances.
pub(crate) fn resource_cases() -> impl Strategy<Value = Vec<(Target, Circumstances)>> {
    vec((resource_targets(), circumstances()), 1..16)
}

/// Requests of every kind with random circumstances.
pub(crate) fn all_cases() -> impl Strategy<Value = Vec<(Target, Circumstances)>> {
    let target = prop_oneof![3 => resource_targets().boxed(), 1 => other_targets().boxed()];
    vec((target, circumstances()), 1..16)
}

/// Requests for anything but resources, with random circumstances.
pub(crate) fn other_cases() -> impl Strategy<Value = Vec<(Target, Circumstances)>> {
    vec((other_targets(), circumstances()), 1..16)
}
