//! Merged discovery of a cluster with many custom resources, compared with the local document
//! passed through by the same gateway: the cost of merging.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{DISCOVERY, LOAD, Run, order};
use crate::backend::{AGGREGATED, CHANGED_QUERY, ETAG_OF_LACKING};
use crate::client;
use crate::plan::Plan;
use crate::targets::{Bench, Programs, Target};

/// A client that already has the document revalidates it.
pub(crate) const KNOWN: &str = "304, 2,000 custom resources";
const WHOLE: &str = "the whole document, 2,000 custom resources";
/// The gateway finds its view of the local server out of date at every request, and fetches it again.
const OUT_OF_DATE: &str = "304, the view of the local server is out of date";
pub(crate) const MERGED: &str = "mvp, merged";
pub(crate) const PASSED_ON: &str = "mvp, passed on";

const GROUPS: usize = 2_000;

pub(super) async fn run(
    run: &mut Run,
    plan: &Plan,
    programs: &Programs,
    folder: &Path,
) -> anyhow::Result<()> {
    let folder = folder.join("discovery");
    let bench = Bench::start(programs, &folder, GROUPS, &[Target::MvpPeer]).await?;
    let nopeer = format!("{AGGREGATED};profile=nopeer");
    let to = bench.address(Target::MvpPeer);
    // It forwards requests already, which needs only the documents of the peer.
    let deadline = Instant::now() + Duration::from_secs(20);
    let merged = loop {
        match client::etag(&bench.pki, to, "/apis", AGGREGATED).await {
            Ok(etag) => break etag.context("the merged document has no ETag")?,
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let changed = format!("/apis?{CHANGED_QUERY}");
    let cases =
        [(KNOWN, "/apis", true), (WHOLE, "/apis", false), (OUT_OF_DATE, changed.as_str(), true)];
    for (case, path, conditional) in cases {
        for round in 0..plan.rounds {
            for (target, accept, etag) in
                [(PASSED_ON, nopeer.as_str(), ETAG_OF_LACKING), (MERGED, AGGREGATED, &merged)]
            {
                let mut order = order(plan, &bench, Target::MvpPeer, path.to_owned());
                order.accept = accept.to_owned();
                order.etag = conditional.then(|| etag.to_owned());
                let outcome = order.carry_out(LOAD).await;
                run.note(DISCOVERY, case, target, round, outcome);
            }
        }
    }
    Ok(())
}
