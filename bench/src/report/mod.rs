//! The report of a run: text for a terminal, and the document with its charts and raw data.

mod charts;
mod goals;
mod growth;
mod svg;
mod tables;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::results::Results;
use goals::{Goal, goals};

/// Writes `docs/performance.md`, its charts, and the raw data.
pub(crate) fn write(results: &Results, workspace: &Path) -> anyhow::Result<()> {
    let data = workspace.join("bench/results");
    let pictures = workspace.join("docs/performance");
    fs::create_dir_all(&data)?;
    fs::create_dir_all(&pictures)?;
    fs::write(data.join("latest.json"), serde_json::to_string_pretty(results)? + "\n")?;
    let charts = charts::charts(results);
    for (name, chart) in &charts {
        fs::write(pictures.join(name), chart.svg())?;
    }
    let names: Vec<&str> = charts.iter().map(|(name, _)| *name).collect();
    fs::write(workspace.join("docs/performance.md"), document(results, &names))?;
    Ok(())
}

/// The text for a terminal: the goals and all figures.
pub(crate) fn text(results: &Results) -> String {
    let goals = goals(results);
    let width = goals.iter().map(|goal| goal.what.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for goal in &goals {
        let (ratio, verdict) = (shown(goal), goal.verdict());
        let (what, of, target) = (&goal.what, &goal.of, goal.target());
        let _ = writeln!(text, "{what:width$}  {ratio:20}  {target:7}  {verdict:14}  {of}");
    }
    let _ = writeln!(text, "\n{}{}", tables::tables(results), growth::section(results));
    let _ = writeln!(text, "{}", circumstances(results));
    text
}

/// A ratio with the minimum and maximum of the rounds.
fn shown(goal: &Goal) -> String {
    match goal.ratio {
        None => "–".to_owned(),
        Some(ratio) => format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.most),
    }
}

fn document(results: &Results, charts: &[&str]) -> String {
    let mut text = String::from(HEAD);
    if disturbed(results) {
        text.push_str(DISTURBED);
    }
    text.push_str("| what | which | seen (rounds from–to) | target | |\n");
    text.push_str("| --- | --- | ---: | ---: | --- |\n");
    for goal in goals(results) {
        let (ratio, verdict) = (shown(&goal), goal.verdict());
        let verdict = if verdict == "met" { verdict } else { format!("**{verdict}**") };
        let _ = writeln!(
            text,
            "| {} | {} | {ratio} | {} | {verdict} |",
            goal.what,
            goal.of,
            goal.target()
        );
    }
    text.push('\n');
    for chart in charts {
        let name = chart.trim_end_matches(".svg");
        let _ = writeln!(text, "![{name}](performance/{chart})\n");
    }
    let _ = writeln!(text, "## Circumstances\n\n{}", circumstances(results));
    text.push_str(METHOD);
    let _ = write!(text, "## Figures\n\nMedians of {} rounds.\n\n", results.rounds);
    let figures = tables::tables(results) + &growth::section(results);
    text.push_str(figures.trim_end());
    text.push('\n');
    text
}

/// Whether the machine was busy with something else.
fn disturbed(results: &Results) -> bool {
    results.machine.load_before.parse::<f64>().is_ok_and(|load| load > 0.5)
}

fn circumstances(results: &Results) -> String {
    let machine = &results.machine;
    let mut text = String::new();
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "- {what}: {value}");
    };
    line("date", &machine.date);
    line("commit", &machine.commit);
    line("machine", &format!("{}, {} cores, {}", machine.processor, machine.cores, machine.system));
    line("versions", &machine.versions.join("; "));
    let loads = format!("{} before, {} after", machine.load_before, machine.load_after);
    line("load average (the run itself makes about 2)", &loads);
    if disturbed(results) {
        line("other work", "the machine was not idle at the start");
    }
    for missing in &results.missing {
        line("not measured", &missing.replace('\n', " "));
    }
    text
}

const HEAD: &str = "\
# Performance

Written by `cargo run --release -p bench -- --full`; do not edit. The raw data is
[bench/results/latest.json](../bench/results/latest.json).

Ratios, measured in one run side by side. Absolute figures are those of one small machine and mean little elsewhere.

";

const DISTURBED: &str = "\
**The machine had other work during this run.** Latency and throughput are distorted by it, CPU a request somewhat, memory
not. Repeat the run on a quiet machine before you draw conclusions.

";

const METHOD: &str = "\
## Method

- **Interleaved.** Each round measures every target once, one after the other; a ratio is the median of the ratios of
  the rounds, each of two measurements made within seconds. What else the machine does falls on all alike.
- **The same work.** One thread each (`--workers=1`, `nbthread 1`, one process); TLS 1.3 both ways, X25519, AES-256-GCM,
  client certificates asked for and verified, server certificates verified; connections kept and shared; every request
  gets `X-Forwarded-For`, an `Audit-ID` of its own, `X-Remote-User` and `X-Remote-Group` from the certificate, and loses
  what a client may not send; none logs requests. To the server behind, `mvp` and haproxy speak HTTP/2 whatever the client
  speaks, nginx HTTP/1.1, as it has nothing else. The configurations are `bench/configs`. `mvp` decides, on top,
  for each request who serves it, and asks two servers for discovery once a second.
- **The floor.** *bare forwarder* is `bench/src/forwarder.rs`: the libraries of `mvp` (hyper, rustls) and the same work on headers,
  without limits, retries, drains, metrics and the choice of a server. It shows what `mvp` itself costs.
- **Local and peer.** `mvp` stands before a server that lacks `batch/v1`. *local* is a list that this server has, *peer*
  one that only its peer has: one `mvp`, one hop.
- **Cores.** With two cores or more the proxy has the first to itself; the load and the server behind share the others,
  and are processes of their own. Where their core is the busy one (\"core busy\" of the proxy below 1), throughput says
  less than CPU a request; so it is with handshakes and large bodies on two cores.
- **CPU** is the time on a core that the kernel counts for the proxy's threads (`/proc/PID/task/*/schedstat`), all of it;
  \"core taken\" is how long they were ready but others had the core: on a quiet machine next to nothing.
- **Latency** is at a fixed rate, half of what the slower of `mvp` and haproxy can do, counted from when a request was
  due, so that a stalled proxy cannot hide. *added* is what a proxy adds to a request without one; that ratio is of
  medians, as the tail of one round is mostly chance, without rounds in which answers were missing a second after the
  end, or others had the proxy's core for a twentieth of the time that it wanted to run. A connection has four requests under way at most (HTTP/1.1: one); others wait, and that counts.
  nginx may be beyond its own half at that rate.
- **Memory of a watch** is the growth of the resident memory of a proxy that was just started, once all watches are open
  and silent after one event each, divided by their number; the kernel's part is not in it. They are opened four at a
  time, so that a proxy can share its connections to the server (a thousand at once cost haproxy a connection for nearly
  each, and 2.3 times the memory). Then all get events, 4,000 a second together, spread evenly.
- **Kubernetes' own**: two kube-apiservers on one etcd, gate on, one without `batch/v1`; a GET of a list with one job
  there. No cores are set aside. The CPU is that of the process in between (kube-apiserver for its own proxy, `mvp` with
  its default number of workers for ours), without what it uses when nobody asks.
- **Many members**: `mvp` with `--membership=leases` beside a server that lacks `batch/v1`, with 50 members that have it. Each
  renews its Lease every 5 s, answers for discovery as kube-apiserver 1.34 or 1.36 does (recorded documents, 304 where
  nothing changed), and for the index of OpenAPI. Changes come from a list that is the same in each run, a quarter each: a
  member leaves or returns, moves to another address, is upgraded or downgraded, serves a group more or less. *control
  loop* is the CPU of its thread, with all that it does to ask, in per cent of a core; *CPU a request* that of the
  other threads. All of them share one core, so that p99 shows what the worker waits for that core, too.
- **The embedded control plane**: `mvp demo` as a user starts it, three servers in one process, no cores set aside. Memory is
  the resident and the proportional memory of that process: at rest 10 s after its start, with 10,000 small ConfigMaps
  after they were listed whole and in pages of 500, and after 1,000 watches of them at one server while another server
  writes one of them 20 times a second. An object that is missing in a list or there twice, and an event that a watch
  lacks, gets twice or out of order, is an error: such a run has no figures, and says so under \"not measured\".
- **Noise.** CPU a request and memory move by a few per cent between rounds. Throughput on a shared core, p99 and p99.9
  move by tens of per cent on a machine with other work: see the range of the rounds, and repeat.

## How to repeat it

```console
$ cargo run -p e2e -- programs                               # once, with Go: kube-apiserver and etcd
$ cargo run --release -p bench -- --full                     # forty minutes; as root it installs haproxy and nginx
$ cargo run --release -p bench -- --quick                    # four minutes
```

";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;
    use crate::scenarios::REQUESTS;

    #[test]
    fn the_document_says_what_was_met_and_missed() {
        let case = crate::plan::main_case(crate::load::Protocol::Http2).name();
        let results = results(&[
            (REQUESTS, &case, "mvp, local", 0, &[("cpu_us_per_request", 20.0)]),
            (REQUESTS, &case, "mvp, peer", 0, &[("cpu_us_per_request", 30.0)]),
            (REQUESTS, &case, "haproxy", 0, &[("cpu_us_per_request", 25.0)]),
        ]);
        let text = document(&results, &["cpu.svg"]);
        assert!(text.contains("| CPU a proxied request, HTTP/2 | mvp / haproxy | 1.20 (1.20–1.20) | ≤ 1 | **missed by 20 %** |"), "{text}");
        assert!(text.contains("0.80 (0.80–0.80) | ≤ 1 | met |"), "{text}");
        assert!(text.contains("](performance/cpu.svg)"));
    }
}
