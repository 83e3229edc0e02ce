//! A cluster of mixed versions to try things on, until a signal. Entry item: [`up`].

use std::convert::Infallible;
use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};

use crate::cluster::Cluster;
use crate::programs::Programs;
use crate::suite::Setting;

/// Runs a cluster until SIGINT or SIGTERM, also while it still starts. Its processes and its folder
/// are gone when this returns.
pub(crate) async fn up() -> anyhow::Result<()> {
    let programs = Programs::get()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let folder = tempfile::Builder::new().prefix("mvp-e2e-").tempdir()?;
    tokio::select! {
        failed = run(&programs, folder.path()) => failed.map(|never| match never {}),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

async fn run(programs: &Programs, folder: &Path) -> anyhow::Result<Infallible> {
    println!("Starting a cluster of mixed versions; this takes about half a minute.");
    let cluster = Cluster::start(&Setting::Mixed.spec(), programs, folder).await?;
    for server in &cluster.servers {
        let version = programs.version(server.spec.minor);
        println!("{} {version} {}", server.name(), server.spec.flags.join(" "));
        for (what, to) in [("through mvp", server.through()), ("directly", server.direct())] {
            let (kubectl, kubeconfig) = (programs.kubectl(), cluster.kubeconfig("admin", to)?);
            println!("  {what:12} {} --kubeconfig {}", kubectl.display(), kubeconfig.display());
        }
        println!("  {:12} http://{}/readyz?verbose", "admin", server.gateway_admin());
    }
    println!("Logs: {}. Press Ctrl-C to stop the cluster.", cluster.folder().display());
    std::future::pending().await
}
