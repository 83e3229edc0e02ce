//! Members compared with each other and with us: loops, IDs that two of them have, and releases that
//! are too far apart. Entry items: [`ids`], [`releases`],
//! [`mvp_releases`].

use std::collections::BTreeMap;

use super::{Candidate, GROUP, Ourselves};
use crate::operator::doctor::check::Check;
use crate::operator::doctor::probe::{Seen, Who};

/// Whether each gateway has an ID of its own, and none of them is ourselves.
pub(super) fn ids(seen: &[(Candidate, Seen)], own: &Ourselves) -> Vec<Check> {
    let mut by_id: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut checks = Vec::new();
    for (member, seen) in seen {
        let Who::Gateway(Some(id)) = &seen.who else { continue };
        if own.id.as_deref() == Some(&**id) {
            let what = format!("{} answers with our own ID {id:?}: it is this gateway", member.url);
            let fix = "remove it from the members; if it is another server, change its --server-id";
            checks.push(GROUP.fail(format!("{member} is not ourselves"), what, fix));
        }
        by_id.entry(id).or_default().push(member.url.authority());
    }
    for (id, addresses) in by_id.iter().filter(|(_, addresses)| addresses.len() > 1) {
        let what = format!("{} all answer as {id:?}", addresses.join(" and "));
        let fix = "give each server its own --server-id, and name each only once";
        checks.push(GROUP.fail("IDs are distinct", what, fix));
    }
    checks
}

/// Kubernetes supports API servers that are one minor release apart.
const MAX_SKEW: u32 = 1;

/// Whether all releases are close enough.
pub(super) fn releases(seen: &[(Candidate, Seen)], own: &Ourselves) -> Option<Check> {
    let members = seen.iter().filter_map(|(_, seen)| seen.release.as_deref().ok());
    let minors = members.chain(own.release.as_deref()).filter_map(minor);
    let minors: Vec<u32> = minors.collect();
    let (oldest, newest) = (minors.iter().min()?, minors.iter().max()?);
    if oldest == newest {
        return Some(GROUP.ok("releases", format!("all servers have 1.{newest}")));
    }
    let what = format!("from 1.{oldest} to 1.{newest}");
    Some(match newest - oldest > MAX_SKEW {
        false => GROUP.ok("releases", format!("{what}, which Kubernetes supports")),
        true => {
            let what = format!("{what}: Kubernetes supports one minor release of difference");
            let fix = "finish the upgrade one minor release at a time; mvp skew shows what differs";
            GROUP.warn("releases", what, fix)
        }
    })
}

/// Whether all gateways that tell it run the release of this program.
pub(super) fn mvp_releases(seen: &[(Candidate, Seen)], own: &str) -> Option<Check> {
    let told: Vec<(&Candidate, &str)> =
        seen.iter().filter_map(|(member, seen)| Some((member, seen.mvp.as_deref()?))).collect();
    let others: Vec<String> = told
        .iter()
        .filter(|(_, mvp)| *mvp != own)
        .map(|(member, mvp)| format!("{member} {mvp}"))
        .collect();
    match (told.is_empty(), others.is_empty()) {
        (true, _) => None,
        (false, true) => Some(GROUP.ok("mvp releases", format!("all gateways run {own}"))),
        (false, false) => {
            let what = format!("this program is {own}, but {}", others.join(", "));
            Some(GROUP.warn("mvp releases", what, "finish the upgrade of mvp on all hosts"))
        }
    }
}

fn minor(release: &str) -> Option<u32> {
    let mut parts = release.strip_prefix('v')?.split('.');
    let major = parts.next()?;
    parts.next()?.parse().ok().filter(|_| major == "1")
}
