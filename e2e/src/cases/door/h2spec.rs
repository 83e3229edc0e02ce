//! h2spec, a conformance test of HTTP/2 servers, against a gateway.
//!
//! h2spec has no client certificate, and the gateway ends the connection of an anonymous caller after
//! each response, as kube-apiserver does. So h2spec speaks through a relay that adds TLS with the
//! certificate of a user.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::programs;
use crate::suite::Case;

pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        full Mixed,
        "door/h2spec",
        h2spec,
        "the HTTP/2 conformance tests of h2spec, plain and strict, 20 times each"
    )]
}

const RUNS: usize = 20;
const DEADLINE: Duration = Duration::from_secs(300);

/// Tests that may fail, because they race with the response: the client sends the head of a request,
/// and then a frame that is an error on an open stream. If the response is already sent when that frame
/// arrives, h2 has closed the stream, and ignores frames for it for a while, as RFC 9113 (section 5.1)
/// allows.
const RACES: [&str; 3] = [
    "closed: Sends a DATA frame after sending RST_STREAM frame",
    "Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream",
    "Sends a second HEADERS frame without the END_STREAM flag",
];

async fn h2spec(cluster: &mut Cluster) -> anyhow::Result<String> {
    let program = tokio::task::spawn_blocking(programs::h2spec).await??;
    let at = relay(cluster.admin.clone(), cluster.server("a")?.through()).await?;
    let mut races = 0;
    let mut figures = Vec::new();
    for arguments in [&[][..], &["--strict"]] {
        let mut summary = String::new();
        for run in 0..RUNS {
            let output = run_once(&program, at, arguments).await?;
            let (expected, failed): (Vec<&str>, Vec<&str>) =
                failures(&output).partition(|name| RACES.contains(name));
            races += expected.len();
            summary = output.lines().last().unwrap_or_default().to_owned();
            ensure!(failed.is_empty(), "run {run} {arguments:?}: {failed:?}\n{output}");
            ensure!(summary.contains(" passed"), "run {run} {arguments:?}: {output}");
        }
        figures.push(format!("{RUNS} × {summary}"));
    }
    Ok(format!("{}; {races} lost races", figures.join(", ")))
}

async fn run_once(program: &Path, at: SocketAddr, more: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(["--host", &at.ip().to_string(), "--port", &at.port().to_string()]);
    // A small document that every user may read.
    command.args(["--path", "/version", "--timeout", "10"]).args(more).kill_on_drop(true);
    let output = timeout(DEADLINE, command.output()).await.context("h2spec does not end")??;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// The names of failed tests, from lines such as `× 3: Sends …` after `Failures:`.
fn failures(output: &str) -> impl Iterator<Item = &str> {
    let failures = output.split_once("Failures:").map_or("", |(_, failures)| failures);
    failures.lines().filter_map(|line| {
        let (_, name) = line.trim().strip_prefix("× ")?.split_once(": ")?;
        Some(name)
    })
}

/// Accepts plain connections, and copies each over a TLS connection of this client.
async fn relay(client: Client, to: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((to.ip(), 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut plain, _)) = listener.accept().await {
            let client = client.clone();
            tokio::spawn(async move {
                let _ = plain.set_nodelay(true);
                if let Ok(mut stream) = client.handshake(to, b"h2").await {
                    let _ = copy_bidirectional(&mut plain, &mut stream).await;
                }
            });
        }
    });
    Ok(address)
}

#[cfg(test)]
mod tests {
    #[test]
    fn failed_tests_are_found_by_name() {
        let output = "  ✔ 1: Good\n  × 2: Shown twice\n\nFailures: \n\nGeneric\n    × 2: Shown twice\n\
                      \x20     -> The endpoint MUST: x\n\n145 tests, 143 passed, 1 skipped, 1 failed";
        let failures: Vec<&str> = super::failures(output).collect();
        assert_eq!(failures, ["Shown twice"]);
    }
}
