//! The scenarios, and how valgrind counts them.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::cluster::{CREATE_ON_PEER, DISCOVERY, GET_CUSTOM, LIST_PODS, PUT_STATUS, WATCH};
use crate::{hop, steps};

/// Each scenario with its repetitions in the shorter run; the longer run has ten times as many.
pub(crate) const SCENARIOS: [(&str, usize); 12] = [
    ("resolve list", 1000),
    ("resolve watch", 1000),
    ("resolve and decide list", 1000),
    ("resolve and decide get", 1000),
    ("resolve and decide put status", 1000),
    ("resolve and decide create at a peer", 1000),
    ("resolve and decide watch", 1000),
    ("resolve and decide discovery", 1000),
    ("the layer before a service", 500),
    ("making the request for the layer", 500),
    ("the gateway, to the local server", 100),
    ("the gateway, to a peer", 100),
];

/// Runs a scenario this many times.
pub(crate) fn run(scenario: &str, times: usize) -> anyhow::Result<()> {
    match scenario {
        "resolve list" => steps::resolve(LIST_PODS, times),
        "resolve watch" => steps::resolve(WATCH, times),
        "resolve and decide list" => steps::resolve_and_decide(LIST_PODS, times),
        "resolve and decide get" => steps::resolve_and_decide(GET_CUSTOM, times),
        "resolve and decide put status" => steps::resolve_and_decide(PUT_STATUS, times),
        "resolve and decide create at a peer" => steps::resolve_and_decide(CREATE_ON_PEER, times),
        "resolve and decide watch" => steps::resolve_and_decide(WATCH, times),
        "resolve and decide discovery" => steps::resolve_and_decide(DISCOVERY, times),
        "the layer before a service" => return steps::layer(times),
        "making the request for the layer" => return steps::request(times),
        "the gateway, to the local server" => return hop::run(hop::LOCAL, times),
        "the gateway, to a peer" => return hop::run(hop::PEER, times),
        _ => anyhow::bail!("unknown scenario `{scenario}`"),
    }
    Ok(())
}

/// The number of instructions of one repetition.
pub(crate) fn instructions(scenario: &str, times: usize) -> anyhow::Result<u64> {
    let (short, long) = (under_valgrind(scenario, times)?, under_valgrind(scenario, times * 10)?);
    let more = u64::try_from(times * 9)?;
    Ok(long.saturating_sub(short) / more)
}

fn under_valgrind(scenario: &str, times: usize) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["run", scenario, &times.to_string()])
        .output()
        .context("cannot run valgrind; install it, on Debian with `apt-get install valgrind`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{scenario}` failed under valgrind:\n{said}");
    counted(&said)
        .with_context(|| format!("cannot find the count in the output of valgrind:\n{said}"))
}

/// Parses the count in `==12== I refs: 1,234,567`.
fn counted(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("I refs:") || line.contains("I   refs:"))?;
    let digits: String = line.rsplit(':').next()?.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_valgrind_is_parsed() {
        assert_eq!(counted("==7== noise\n==7== I refs:        1,234,567\n"), Some(1_234_567));
        assert_eq!(counted("==7== I   refs:      42\n"), Some(42));
        assert_eq!(counted("==7== nothing\n"), None);
    }

    #[test]
    fn every_scenario_can_be_run() {
        for (scenario, _) in SCENARIOS {
            run(scenario, 2).expect(scenario);
        }
        assert!(run("another", 1).is_err());
    }
}
