//! The decision for any request over a cluster with any documents, in any circumstances.

use std::sync::Arc;
use std::time::Duration;

use mvp_core::decide::{Action, Asked, Denial, LocalHealth, OnNotFound, Origin};
use mvp_core::member::{Presence, Release};
use mvp_core::{RequestInfo, decide};

use super::{merge, seeds};
use crate::input::{Input, joined};
use crate::target::Target;

pub const TARGET: Target = Target {
    name: "decide",
    run,
    seeds,
    words: &[
        "GET",
        "POST",
        "/apis/apps/v1/",
        "/api/v1/pods",
        "/apis",
        "deployments",
        "/status",
        "/one",
        "/openapi/v2",
        "/healthz",
        "watch=1",
        "\"resource\":\"",
        "\"verbs\":[\"get\"]",
        "%2F",
        "\0",
    ],
};

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let [health, origin, flags, left, age] = [(); 5].map(|()| input.byte());
    let method = input.text();
    let target = input.text();
    let lists: Vec<_> = (0..3)
        .filter_map(|_| merge::parse(mvp_core::discovery::Part::Apis, input.part()))
        .collect();
    let names = ["a", "b", "c"];
    let mut members: Vec<_> =
        names.iter().zip(&lists).map(|(name, list)| merge::member(name, list)).collect();
    for (place, member) in members.iter_mut().enumerate() {
        if left >> place & 1 == 1 {
            member.presence = Presence::Left;
        }
        if left >> (place + 3) & 1 == 1 {
            member.view.apis = None;
        }
        member.view.release = Release::parse(["v1.36.0", "v1.35.1", "v1.36.0"][place]);
    }
    let local = (flags & 1 == 0 && !members.is_empty()).then(|| Arc::from("a"));
    let snapshot = merge::snapshot(members, local.clone(), None);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&*target, None),
    };
    let info = RequestInfo::parse(&method, path, query);
    let arrived = mvp_core::Timestamp::after_start(Duration::from_secs(u64::from(age)));
    let denials: Vec<Denial<'_>> = names
        .iter()
        .enumerate()
        .filter(|(place, _)| flags >> (place + 4) & 1 == 1)
        .map(|(_, member)| Denial { member, at: merge::now(), listed: flags & 2 == 2 })
        .collect();
    let asked = Asked {
        origin: [Origin::Client, Origin::Peer, Origin::Marked][usize::from(origin) % 3],
        nopeer: flags & 4 == 4,
        arrived,
        local: [LocalHealth::Ready, LocalHealth::Unready, LocalHealth::Unreachable]
            [usize::from(health) % 3],
        denials: &denials,
    };
    let decision = decide(&info, &snapshot, asked);
    assert!(!decision.reason.to_string().is_empty());
    if let Action::Peers(_) | Action::AskAny = decision.action {
        let one_hop = asked.origin == Origin::Client || local.is_none();
        assert!(one_hop, "a request makes one hop at most: {info:?}");
    }
    if let (Action::PassNotFound, OnNotFound::PassThrough) =
        (decision.action, decision.on_not_found)
    {
        assert!(!denials.is_empty(), "there is no 404 to pass: {info:?}");
    }
    if decision.action.kind() == Action::Answer.kind() {
        assert!(matches!(info, RequestInfo::Discovery(_) | RequestInfo::OpenApi(_)), "{info:?}");
    }
    assert_eq!(decide(&info, &snapshot, asked).summary(), decision.summary());
}

fn seeds() -> Vec<Vec<u8>> {
    let targets = [
        "/apis/apps/v1/namespaces/x/deployments/one/status",
        "/apis/apps/v1/deployments?watch=1",
        "/apis/batch/v1/jobs",
        "/apis",
        "/api/v1",
        "/openapi/v3/apis/apps/v1",
        "/healthz",
        "/apis/nobody.io/v1/things",
    ];
    let mut all = Vec::new();
    for (number, target) in targets.iter().enumerate() {
        for method in ["GET", "POST"] {
            let number = number as u8;
            let head = [number, number / 3, number.wrapping_mul(37), number.wrapping_mul(11), 99];
            let documents = [seeds::AGGREGATED.as_bytes(), seeds::OTHER.as_bytes()];
            let parts = [method.as_bytes(), target.as_bytes(), documents[0], documents[1]];
            all.push([&head[..], &joined(&parts)].concat());
        }
    }
    all
}
