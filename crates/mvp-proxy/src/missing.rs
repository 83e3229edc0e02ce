//! In tests only: rules, and fixes of defects, that a simulation (`simulation`) takes out, to see that
//! it finds the defect then. Entry items: [`take_out`], [`is_out`].

use std::cell::Cell;

use mvp_core::decide::{self as table, Asked, Decision, Origin};
use mvp_core::not_found::NotFound;
use mvp_core::{RequestInfo, Snapshot};

use crate::error::Stage;

/// A fix or a rule that can be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fix {
    /// A 404 that proves nothing is withheld. Without it: it passes, like an object's.
    UnclearWithheld,
    /// A request for discovery is decided by the 404s that it got, also while no view is known.
    /// Without it: the local server is asked again and again.
    DiscoveryEnds,
    /// A 404 waits for a member with slow discovery as long as its last fetch took. Without it: one
    /// second.
    WaitForSlow,
    /// A request that was proxied is not proxied again. Without it: it is decided like a client's.
    OneHop,
    /// A write that a server may have processed is not sent again. Without it: it is.
    SentOnce,
}

thread_local! {
    static OUT: Cell<Option<Fix>> = const { Cell::new(None) };
}

/// Takes a fix out on this thread, until the result is dropped.
pub(crate) fn take_out(fix: Option<Fix>) -> Back {
    Back(OUT.replace(fix))
}

/// Puts a fix back.
#[must_use]
pub(crate) struct Back(Option<Fix>);

impl Drop for Back {
    fn drop(&mut self) {
        OUT.set(self.0);
    }
}

pub(crate) fn is_out(fix: Fix) -> bool {
    OUT.get() == Some(fix)
}

/// What a 404 proves.
pub(crate) fn found(found: NotFound) -> NotFound {
    match found {
        NotFound::Unclear if is_out(Fix::UnclearWithheld) => NotFound::Object,
        found => found,
    }
}

/// How far a request came.
pub(crate) fn stage(stage: Stage) -> Stage {
    match stage {
        Stage::Exchange | Stage::Reset if is_out(Fix::SentOnce) => Stage::Refused,
        stage => stage,
    }
}

/// The shipped decision, except where a missing fix changes it.
pub(crate) fn decide<'a>(
    request: &'a RequestInfo<'_>,
    snapshot: &'a Snapshot,
    asked: Asked<'a>,
) -> Decision<'a> {
    let is_blind = || {
        let part = request.part();
        snapshot.members().all(|member| member.view.part(part).is_none())
    };
    let asked = match request {
        RequestInfo::Discovery(_) if is_out(Fix::DiscoveryEnds) && is_blind() => {
            Asked { denials: &[], ..asked }
        }
        _ => asked,
    };
    let origin = if is_out(Fix::OneHop) { Origin::Client } else { asked.origin };
    table::decide(request, snapshot, Asked { origin, ..asked })
}
