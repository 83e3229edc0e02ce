//! Gateways of two states of this repository side by side: the previous one beside its server, this
//! one steers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::process::until;
use testkit::programs::cache;

use crate::cases::objects;
use crate::cluster::Cluster;
use crate::node::{Gateway, Node, NodeSpec, Nodes};
use crate::programs::Minor;

/// The port of the previous gateway, beside that of kube-apiserver.
const BESIDE: u16 = 7443;

pub(super) async fn releases(cluster: &mut Cluster) -> anyhow::Result<String> {
    let (revision, previous) = previous()?;
    let nodes = Nodes::start(cluster, "releases").await?;
    let old = nodes.node(0, NodeSpec::new("a", Minor::V1_34)).await?;
    let new = nodes.node(1, NodeSpec::new("b", Minor::V1_36)).await?;
    let mut old_gateway = beside(&nodes, &old, &previous)?;
    let mut new_gateway = new.gateway(&nodes, 0).await?;
    old_gateway.ready().await?;
    new_gateway.ready().await?;
    nodes.until_answered_by("mvp", new.address()).await?;

    let mut through_old = old.address();
    through_old.set_port(BESIDE);
    let (only_old, only_new) =
        (objects::old_volume_class("").collection, objects::mutating_policy("").collection);
    let ways = [
        (through_old, &only_new, "the previous gateway, of what only the other server has"),
        (new.address(), &only_old, "this gateway, of what only the other server has"),
        (through_old, &only_old, "the previous gateway, of what only its server has"),
        (new.address(), &only_new, "this gateway, of what only its server has"),
    ];
    for (to, path, what) in ways {
        until(what, Duration::from_secs(60), async || {
            nodes.admin.get(to, path).await?.expect(200).map(Some)
        })
        .await?;
    }
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    until("both gateways return the same discovery", Duration::from_secs(60), async || {
        for path in ["/api", "/apis"] {
            let one = nodes.admin.get_as(through_old, path, accept).await?;
            let other = nodes.admin.get_as(new.address(), path, accept).await?;
            one.expect(200)?;
            ensure!(one.body == other.body, "{path} differs");
        }
        Ok(Some(()))
    })
    .await?;
    for gateway in [new_gateway, old_gateway] {
        gateway.end().await?;
    }
    Ok(format!("with the gateway of {revision}: 4 of 4 ways are served, discovery is the same"))
}

/// A gateway as it was before it could steer: on a port of its own.
fn beside(nodes: &Nodes, node: &Node, program: &Path) -> anyhow::Result<Gateway> {
    let mut flags = node.gateway_flags(nodes, node.admin_address(0));
    flags.retain(|flag| {
        !["--steer", "--bind-address", "--secure-port"].iter().any(|name| flag.starts_with(name))
    });
    let address = node.address().ip();
    flags.push(format!("--bind-address={address}"));
    flags.push(format!("--secure-port={BESIDE}"));
    node.run_gateway(program, 0, flags)
}

/// The gateway of the previous state of this repository, built once into the cache; or the program
/// that `MVP_PREVIOUS_BINARY` names.
fn previous() -> anyhow::Result<(String, PathBuf)> {
    if let Some(program) = std::env::var_os(PREVIOUS) {
        let program = PathBuf::from(program);
        return Ok((commit(&program)?, program));
    }
    let revision = previous_revision()?;
    let folder = cache()?.join(format!("mvp-{revision}"));
    let program = folder.join("mvp");
    if !program.is_file() {
        build(&revision, &folder).with_context(|| {
            format!("cannot build the previous mvp, {revision}; set {PREVIOUS} to use another")
        })?;
    }
    Ok((revision, program))
}

const PREVIOUS: &str = "MVP_PREVIOUS_BINARY";

/// The commit of a program.
fn commit(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("version").output();
    let output = output.with_context(|| format!("{PREVIOUS}: cannot run {program:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let commit = text.lines().find_map(|line| line.trim().strip_prefix("commit"));
    let commit = commit.with_context(|| format!("{PREVIOUS}: {program:?} names no commit"))?;
    Ok(commit.trim().chars().take(12).collect())
}

/// Where this change branched off main; on main itself, the state before the last change.
fn previous_revision() -> anyhow::Result<String> {
    let head = git(&["rev-parse", "HEAD"])?;
    let bases = ["origin/main", "main"].map(|main| git(&["merge-base", "HEAD", main]));
    let base = bases.into_iter().flatten().find(|base| *base != head);
    let revision = match base {
        Some(base) => base,
        None => git(&["rev-parse", "HEAD^1"])
            .context("the history is not there; a shallow clone has none")?,
    };
    Ok(revision.chars().take(12).collect())
}

fn build(revision: &str, folder: &Path) -> anyhow::Result<()> {
    let sources = tempfile::tempdir()?;
    let archive = sources.path().join("sources.tar");
    git(&["archive", "--output", &archive.display().to_string(), revision])?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(&archive).arg("-C").arg(sources.path());
    ensure!(unpack.status()?.success(), "cannot unpack {archive:?}");
    eprintln!("building mvp of {revision}");
    let target = sources.path().join("target");
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--bin", "mvp"])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(sources.path())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "cargo build: {status}");
    std::fs::create_dir_all(folder)?;
    // Whole or not at all.
    let part = folder.join("mvp.part");
    std::fs::copy(target.join("debug/mvp"), &part)?;
    Ok(std::fs::rename(part, folder.join("mvp"))?)
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args(arguments)
        .output()
        .context("cannot run git")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
