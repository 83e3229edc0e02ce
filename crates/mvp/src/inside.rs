//! The state of the gateway for operators: checks of readiness, and the snapshot as JSON.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use mvp_core::decide::LocalHealth;
use mvp_core::discovery::{Group, Part};
use mvp_core::member::{Member, MemberKind, Presence, ViewState};
use mvp_core::{Snapshot, Verb, VerbSet};
use serde_json::{Value, json};

use mvp_membership::Conflict;
use mvp_proxy::control::SnapshotReader;
use mvp_proxy::{HeadersState, LocalState};

use crate::admin::Check;
use crate::dashboard::board::Marks;

/// The check that fails during shutdown.
pub(crate) fn shutdown(leaving: bool) -> Check {
    let problem = leaving.then(|| "the process is shutting down".to_owned());
    Check { name: "shutdown".to_owned(), problem, remark: None }
}

/// Whether the start is over: every member that blocks it was seen.
pub(crate) fn is_settled(snapshot: &Snapshot) -> bool {
    Part::ALL.into_iter().all(|part| !snapshot.is_incomplete_start(part))
}

/// The most members that are listed by name.
const MAX_NAMED: usize = 10;

/// The checks of readiness: the local server and every live member were seen once, and the local
/// server is ready. While it is not, a load balancer should prefer other gateways.
pub(crate) fn readiness(reader: &SnapshotReader, state: Option<&LocalState>) -> Vec<Check> {
    let snapshot = reader.load();
    let beside = snapshot.local().is_some();
    let because = |id: &str| reader.trouble(id).map_or_else(String::new, |why| format!(" ({why})"));
    let local = snapshot.local().and_then(|local| {
        let unseen = Part::ALL.into_iter().find(|part| local.view.part(*part).is_none())?;
        let why = because(&local.id);
        Some(format!("{} of the local server was not fetched yet{why}", unseen.path()))
    });
    let trouble = || state.map(LocalState::trouble).unwrap_or_default();
    let local = match (snapshot.local(), state.map_or(LocalHealth::Ready, LocalState::get)) {
        // A load balancer needs one server, whichever it is.
        (None, _) => {
            let seen = |member: &Member| Part::ALL.iter().all(|p| member.view.part(*p).is_some());
            let nobody = !snapshot.members().any(seen);
            nobody.then(|| "no discovery of any server was fetched yet".to_owned())
        }
        (_, LocalHealth::Unreachable) => {
            Some(format!("the local server cannot be reached ({})", trouble()))
        }
        (_, LocalHealth::Unready) => Some(format!("the local server is not ready ({})", trouble())),
        (Some(_), LocalHealth::Ready) => local,
    };
    // Only at the start: otherwise anyone who can announce members could make every gateway unready.
    let unseen: Vec<String> = Part::ALL
        .into_iter()
        .filter(|part| snapshot.is_incomplete_start(*part))
        .flat_map(|part| {
            let unseen = snapshot.blocking(part).filter(move |m| m.view.part(part).is_none());
            unseen.map(move |member| {
                format!("{} of {}{}", part.path(), member.id, because(&member.id))
            })
        })
        .collect();
    let more = unseen.len().saturating_sub(MAX_NAMED);
    let named = unseen.get(..MAX_NAMED).unwrap_or(&unseen).join(", ");
    let members = match (unseen.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(format!("not seen yet: {named}")),
        (false, more) => Some(format!("not seen yet: {named} and {more} more")),
    };
    let never = |member: &&Member| {
        member.presence == Presence::Present
            && member.address.is_some()
            && member.view.state(snapshot.built(), Duration::MAX) == ViewState::Unknown
    };
    let never: Vec<String> = snapshot.members().filter(never).map(|m| m.id.to_string()).collect();
    let remark = match never.len() {
        0 => None,
        1..=MAX_NAMED => Some(format!("never seen: {}", never.join(", "))),
        count => Some(format!("{count} members were never seen; see /debug/snapshot")),
    };
    let local_name = if beside { "local-server" } else { "servers" };
    vec![
        Check { name: local_name.to_owned(), problem: local, remark: None },
        Check { name: "members".to_owned(), problem: members, remark },
    ]
}

/// The check that servers read the headers in which we name users.
pub(crate) fn request_headers(state: &HeadersState) -> Check {
    let (problem, remark) = match state {
        HeadersState::Awaited => {
            let what = "ConfigMap kube-system/extension-apiserver-authentication was not read yet";
            (Some(what.to_owned()), None)
        }
        HeadersState::Unknown => {
            let what = "the headers that servers read users from are unknown; see the log";
            (None, Some(what.to_owned()))
        }
        HeadersState::Known { unread, .. } if !unread.is_empty() => {
            let what = format!(
                "no API server reads users from {}, which mvp sends; set the same \
                 --requestheader-* flags for mvp and for the API server",
                unread.join(", ")
            );
            (Some(what), None)
        }
        HeadersState::Known { loses_uid: true, .. } => {
            let what = "no API server reads the UID of users; set its --requestheader-uid-headers";
            (None, Some(what.to_owned()))
        }
        HeadersState::Known { .. } => (None, None),
    };
    Check { name: "request-headers".to_owned(), problem, remark }
}

/// The snapshot as JSON, for debugging.
pub(crate) fn described(reader: &SnapshotReader, conflicts: &[Conflict]) -> Value {
    let (snapshot, now) = (reader.load(), reader.now());
    let members: Vec<Value> = snapshot
        .members()
        .map(|member| {
            let part = |part: Part| {
                member.view.part(part).map(|seen| {
                    let versions: Vec<String> = seen
                        .list
                        .groups
                        .iter()
                        .flat_map(|group| {
                            group.versions.iter().map(|v| format!("{}/{}", group.name, v.name))
                        })
                        .collect();
                    json!({
                        "confirmedSecondsAgo": now.since(seen.confirmed).as_secs_f64(),
                        "etag": seen.list.etag,
                        "versions": versions,
                    })
                })
            };
            let recorded = member.view.recorded.as_deref().map(|recorded| {
                let resources =
                    recorded.iter().map(|(g, v, resource)| format!("{g}/{v}/{resource}"));
                resources.collect::<Vec<_>>()
            });
            let (state, stale) = match snapshot.view_state(&member.id) {
                Some(ViewState::Fresh) => ("Fresh", None),
                Some(ViewState::Stale(age)) => ("Stale", Some(age.as_secs_f64())),
                Some(ViewState::Unknown) | None => ("Unknown", None),
            };
            json!({
                "id": &*member.id,
                "local": snapshot.local().is_some_and(|local| local.id == member.id),
                "kind": match member.kind { MemberKind::Mvp => "mvp", MemberKind::Bare => "bare" },
                "address": member.address.as_deref(),
                "present": member.presence == Presence::Present,
                "release": member.view.release.map(|release| release.to_string()),
                "heardSecondsAgo": now.since(member.heard).as_secs_f64(),
                "view": state,
                "staleSeconds": stale,
                "fetchedSeconds": member.view.fetched_in.as_secs_f64(),
                "lastError": reader.trouble(&member.id),
                "api": part(Part::Api),
                "apis": part(Part::Apis),
                "recorded": recorded,
            })
        })
        .collect();
    json!({
        "builtSecondsAgo": now.since(snapshot.built()).as_secs_f64(),
        "members": members,
        "conflicts": conflicts.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Two numbers that change with the state of members, and with what they serve.
pub(crate) fn marks(reader: &SnapshotReader) -> Marks {
    let snapshot = reader.load();
    let (mut members, mut apis) = (DefaultHasher::new(), DefaultHasher::new());
    for member in snapshot.members() {
        let view = snapshot.view_state(&member.id).as_ref().map(mem::discriminant);
        let state = (&member.id, member.presence == Presence::Present, member.view.release);
        (&state, view, &member.address, reader.trouble(&member.id)).hash(&mut members);
        // Documents that did not change stay where they are.
        let documents = Part::ALL.map(|part| {
            member.view.part(part).map(|seen| (Arc::as_ptr(&seen.list) as usize, &seen.list.etag))
        });
        (&state, view, documents).hash(&mut apis);
    }
    Marks { members: members.finish(), apis: apis.finish() }
}

/// What each member serves as JSON, for `mvp skew`. A member whose discovery was never fetched has no
/// resources: null, not an empty list.
pub(crate) fn apis(reader: &SnapshotReader) -> Value {
    let snapshot = reader.load();
    let members = snapshot.members().map(|member| {
        let stale = match snapshot.view_state(&member.id) {
            Some(ViewState::Stale(age)) => Some(age.as_secs_f64()),
            _ => None,
        };
        let known = member.view.part(Part::Api).zip(member.view.part(Part::Apis));
        let resources = known.map(|(api, apis)| {
            let groups = api.list.groups.iter().chain(&apis.list.groups);
            groups.flat_map(|group| resources(group)).collect::<Vec<Value>>()
        });
        json!({
            "id": &*member.id,
            "present": member.presence == Presence::Present,
            "release": member.view.release.map(|release| release.to_string()),
            "staleSeconds": stale,
            "lastError": reader.trouble(&member.id),
            "resources": resources,
        })
    });
    json!({ "members": members.collect::<Vec<Value>>() })
}

fn resources(group: &Group) -> impl Iterator<Item = Value> {
    let verbs = |set: VerbSet| set.iter().map(Verb::as_str).collect::<Vec<_>>();
    group.versions.iter().flat_map(move |version| {
        version.resources.iter().map(move |resource| {
            let parts = resource.subresources.iter();
            let parts =
                parts.map(|part| json!({ "name": &*part.name, "verbs": verbs(part.verbs) }));
            json!({
                "group": &*group.name,
                "version": &*version.name,
                "resource": &*resource.name,
                "verbs": verbs(resource.verbs),
                "subresources": parts.collect::<Vec<Value>>(),
            })
        })
    })
}
