//! The profile by which the compiler optimizes the programs of a release: what the data path does under
//! load, counted by a build of `mvp` that counts. Entry item: [`train`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::cached::run;
use testkit::programs::PROFILE;

use crate::backend::WATCH_PATH;
use crate::load::{Figures, Kind, Order, Protocol};
use crate::plan::{Plan, RequestCase};
use crate::scenarios::{LOAD, order, path};
use crate::targets::{Bench, Programs, Target};

/// The time for `mvp` to end and to write its counts.
const END: Duration = Duration::from_secs(30);

/// Builds an `mvp` that counts, puts it under load, and writes the profile.
pub(crate) async fn train(workspace: &Path) -> anyhow::Result<()> {
    let merge = profdata()?;
    let target = workspace.join("target/training");
    let counts = target.join("counts");
    let mvp = build(workspace, &target, &counts)?;
    // Counts of a build script, or of a run before.
    drop(fs::remove_dir_all(&counts));
    let folder = tempfile::tempdir()?;
    let mut bench =
        Bench::start(&Programs::only(mvp), folder.path(), 0, &[Target::MvpPeer]).await?;
    load(&bench).await?;
    bench.end_mvp(END).await?;
    let files = fs::read_dir(&counts).context("mvp has written no counts")?;
    let files: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    let profile = workspace.join(PROFILE);
    let mut command = Command::new(merge);
    run(command.args(["merge", "--sparse", "-o"]).arg(&profile).args(files))?;
    eprintln!("wrote {}: commit it", profile.display());
    Ok(())
}

/// `llvm-profdata` of the compiler's own version.
fn profdata() -> anyhow::Result<PathBuf> {
    let sysroot = run(Command::new("rustc").args(["--print", "sysroot"]))?;
    let tool = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .join("bin/llvm-profdata");
    let missing = "llvm-profdata is missing: run `rustup component add llvm-tools`";
    ensure!(tool.is_file(), "{missing} (looked for {})", tool.display());
    Ok(tool)
}

fn build(workspace: &Path, target: &Path, counts: &Path) -> anyhow::Result<PathBuf> {
    eprintln!("building an mvp that counts: about eight minutes on two cores");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace)
        .args(["build", "--locked", "--package=mvp", "--bin=mvp", "--profile=dist", "--target-dir"])
        .arg(target)
        .env("CARGO_ENCODED_RUSTFLAGS", format!("-Cprofile-generate={}", counts.display()))
        .stderr(Stdio::inherit());
    ensure!(command.status()?.success(), "cannot build mvp; see the messages of cargo above");
    Ok(target.join("dist/mvp"))
}

/// Requests of all kinds for which speed counts, each for a few seconds: HTTP/2 and HTTP/1.1, to the
/// local server and to a peer, small and large, new connections, watches.
async fn load(bench: &Bench) -> anyhow::Result<()> {
    let plan = Plan::training();
    let note = |what: &str, outcome: anyhow::Result<Figures>| {
        let failures = outcome?.get("failures").copied().unwrap_or_default();
        ensure!(failures == 0.0, "{what}: {failures} requests failed");
        eprintln!("  trained by {what}");
        Ok(())
    };
    for target in [Target::MvpLocal, Target::MvpPeer] {
        let order = |bytes| order(&plan, bench, target, path(target, bytes));
        for case in &plan.requests {
            let RequestCase { bytes, protocol, connections, streams } = *case;
            let order = Order { protocol, connections, streams, ..order(bytes) };
            note(&case.name(), order.carry_out(LOAD).await)?;
        }
        for resumed in [false, true] {
            let kind = Kind::Handshakes { resumed };
            let order = Order { protocol: Protocol::Http1, connections: 16, kind, ..order(100) };
            note("new connections", order.carry_out(LOAD).await)?;
        }
    }
    for case in &plan.watches {
        let kind = Kind::Watches { server: bench.server(), events_per_second: 4_000.0 };
        let order = order(&plan, bench, Target::MvpPeer, WATCH_PATH.to_owned());
        let (connections, streams) = (case.connections, case.streams);
        let order = Order { connections, streams, kind, ..order };
        note(&case.name(), order.carry_out(LOAD).await)?;
    }
    Ok(())
}
