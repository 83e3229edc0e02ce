//! The local server stops and returns, as in its own upgrade: clients of its gateway continue.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::process::Signal;

use super::callers;
use crate::cluster::Cluster;
use crate::load::Load;
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "restart/local-server",
        local_server,
        "the local server restarts under reads, writes and watches"
    )]
}

async fn local_server(cluster: &mut Cluster) -> anyhow::Result<String> {
    let admin = cluster.admin.clone();
    let user = callers::by_certificate(cluster).await?;
    let mut figures = Vec::new();
    for (how, namespace) in [("kill -9", "restart-kill"), ("SIGTERM", "restart-term")] {
        cluster.namespace(namespace).await?;
        let through = cluster.server("b")?.through();
        let load = Load::start(&user, &[through], namespace);
        tokio::time::sleep(Duration::from_secs(2)).await;

        let server = cluster.server_mut("b")?;
        let stopped = Instant::now();
        if how == "SIGTERM" {
            server.process()?.signal(Signal::TERM)?;
            // kube-apiserver waits a minute for watches to end; a kubelet does not wait that long.
            let _ = server.process()?.exited(Duration::from_secs(10)).await;
        }
        server.process()?.kill();
        // Down long enough to be noticed, as in an upgrade.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let answer = admin.get(through, "/readyz").await?;
        ensure!(answer.status == 503, "/readyz of a server that is down: {answer}");
        let index = cluster.index("b")?;
        cluster.start_server(index)?;
        let server = cluster.server_mut("b")?;
        server.ready(&admin, Duration::from_secs(120)).await?;
        let down = stopped.elapsed().as_secs_f64();
        tokio::time::sleep(Duration::from_secs(3)).await;

        let at = cluster.server("a")?.direct();
        let outcome = load.end(&admin, at).await.with_context(|| format!("after {how}"))?;
        ensure!(outcome.reads.of("404") + outcome.writes.of("404") == 0, "a false 404 after {how}");
        outcome.reads.all_well_but_cut_off(1).with_context(|| format!("reads after {how}"))?;
        // A write in flight at that moment may have been processed: nobody can tell.
        let writes = &outcome.writes;
        writes
            .only(&["201", "503", Tally::CUT_OFF])
            .with_context(|| format!("writes after {how}"))?;
        let refused = writes.of("503") + writes.of(Tally::CUT_OFF);
        ensure!(refused <= 1, "{refused} writes were refused after {how}: {}", outcome.writes);
        figures.push(format!(
            "{how}, {down:.0} s down: reads {}, writes {}, {} lists and {} watches; \
             no write lost or doubled, no event missed",
            outcome.reads, outcome.writes, outcome.lists, outcome.watches
        ));
    }
    Ok(figures.join("; "))
}
