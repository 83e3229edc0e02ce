//! `mvp demo`: three small API servers of different versions in one process, each with the layer
//! inside. With `--check`, it tests every promise. Entry: [`run`].

mod certificates;
mod check;
mod client;
mod cluster;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

use crate::cli::{DemoArgs, Output};
use crate::mistake::Mistake;
use crate::signals::Signals;
use certificates::Certificates;
use check::Check;
use cluster::Cluster;

/// Runs the demo, or checks its promises.
pub(crate) fn run(args: DemoArgs) -> anyhow::Result<()> {
    let runtime =
        Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let certificates = Certificates::new()?;
        // A check must not depend on free ports.
        let port_base = if args.check { 0 } else { args.port_base };
        let cluster = Cluster::start(&certificates, port_base, &stop).await?;
        if args.check {
            let checks = check::run(&cluster, &certificates).await;
            return report(&checks, args.output);
        }
        let files = Files::write(&certificates, &cluster)?;
        introduce(&cluster, &files, args.output)?;
        Signals::new()?.next().await;
        stop.cancel();
        Ok(())
    })
}

/// Prints the servers, and commands to try.
fn introduce(cluster: &Cluster, files: &Files, output: Output) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let servers: Vec<_> = cluster
            .servers
            .iter()
            .map(|server| {
                json!({"id": server.id, "version": server.version, "url": server.url(), "serves": server.own})
            })
            .collect();
        let kubeconfig = files.folder.join("kubeconfig");
        return writeln!(out, "{}", json!({"servers": servers, "kubeconfig": kubeconfig}));
    }
    let bold = |text: &str| {
        if io::stdout().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    };
    writeln!(out, "Three API servers of one cluster. No server serves all APIs:\n")?;
    for server in &cluster.servers {
        let (id, own) = (bold(&server.id), server.own.join(", "));
        writeln!(
            out,
            "  {id}  {}  {}\n      serves by itself: {own}",
            server.version,
            server.url()
        )?;
    }
    let folder = files.folder.display();
    let curl =
        format!("curl --cacert {folder}/ca.crt --cert {folder}/admin.crt --key {folder}/admin.key");
    let Some(old) = cluster.servers.first() else { return Ok(()) };
    let url = old.url();
    let jobs = "apis/batch/v1/namespaces/default/jobs";
    writeln!(out, "\nAsk {} for APIs that only other servers serve:\n", bold(&old.id))?;
    writeln!(
        out,
        "  # list jobs, which only another server has; without mvp this would be a 404\n  {curl} {url}/{jobs}\n"
    )?;
    writeln!(
        out,
        "  # create a job through the server that does not have the API\n  {curl} {url}/{jobs} -H 'Content-Type: application/json' \\\n    -d '{{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"metadata\":{{\"name\":\"hello\"}}}}'\n"
    )?;
    writeln!(
        out,
        "  # all APIs of the cluster, through any server (needs kubectl)\n  kubectl --kubeconfig {folder}/kubeconfig api-resources\n"
    )?;
    writeln!(out, "The demo has no authorization: everyone who can connect may do everything.")?;
    writeln!(out, "Press Ctrl-C to stop. Run `mvp demo --check` to test every promise.")
}

/// Prints a line for each promise. An error if one was broken.
fn report(checks: &[Check], output: Output) -> anyhow::Result<()> {
    let kept = checks.iter().filter(|check| check.ok).count();
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let list: Vec<_> = checks
            .iter()
            .map(|check| json!({"name": check.name, "ok": check.ok, "detail": check.detail}))
            .collect();
        let report = json!({"ok": kept == checks.len(), "checks": list});
        writeln!(out, "{report:#}")?;
    } else {
        let colour = io::stdout().is_terminal();
        for check in checks {
            let mark = match (check.ok, colour) {
                (true, true) => "\x1b[32mkept\x1b[0m  ",
                (true, false) => "kept  ",
                (false, true) => "\x1b[31mBROKEN\x1b[0m",
                (false, false) => "BROKEN",
            };
            writeln!(out, "{mark} {}: {}", check.name, check.detail)?;
        }
        writeln!(out, "{kept} of {} promises kept", checks.len())?;
    }
    if kept < checks.len() {
        let sentence = format!("{} of {} promises were broken", checks.len() - kept, checks.len());
        return Err(Mistake::trouble("mvp demo --check", sentence).into());
    }
    Ok(())
}

/// The files for clients, in a folder that is deleted when the demo ends.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn write(certificates: &Certificates, cluster: &Cluster) -> anyhow::Result<Files> {
        let folder = std::env::temp_dir().join(format!("mvp-demo-{}", std::process::id()));
        make_private_folder(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let files = Files { folder };
        for (name, content) in [
            ("ca.crt", &certificates.ca),
            ("admin.crt", &certificates.admin.certificate),
            ("admin.key", &certificates.admin.key),
            ("kubeconfig", &kubeconfig(&files.folder, cluster)),
        ] {
            let path = files.folder.join(name);
            std::fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The process ends: there is nobody to report an error to.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Creates a folder for the private key: only this user may read it, and it must not exist yet.
fn make_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

fn kubeconfig(folder: &Path, cluster: &Cluster) -> String {
    let entries = |entry: &dyn Fn(&cluster::Server) -> serde_json::Value| -> Vec<_> {
        cluster.servers.iter().map(entry).collect()
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster.servers.first().map(|server| server.id.as_str()),
        "clusters": entries(&|server| json!({
            "name": server.id,
            "cluster": {
                "server": server.url(),
                "certificate-authority": folder.join("ca.crt"),
            },
        })),
        "users": [{
            "name": "admin",
            "user": {
                "client-certificate": folder.join("admin.crt"),
                "client-key": folder.join("admin.key"),
            },
        }],
        "contexts": entries(&|server| json!({
            "name": server.id,
            "context": {"cluster": server.id, "user": "admin", "namespace": "default"},
        })),
    });
    format!("{config:#}\n")
}
