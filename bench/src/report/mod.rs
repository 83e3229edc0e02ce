//! The report of a run: text for a terminal, and the document with its charts and raw data.

mod charts;
mod goals;
mod growth;
mod quiet;
mod svg;
mod tables;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::bail;

use crate::results::Results;
use goals::{Goal, goals};
use quiet::{Verdict, verdict};

const DATA: &str = "bench/results";
/// The results of a busy run, to be looked at or reported later.
const KEPT: &str = "bench/results/busy.json";

/// Writes `docs/performance.md`, its charts, and the raw data. A busy run replaces none of them unless
/// `accept_busy` says so: its results are kept beside them, and the error names the file.
pub(crate) fn write(results: &Results, workspace: &Path, accept_busy: bool) -> anyhow::Result<()> {
    match verdict(results) {
        Verdict::Busy(why) if !accept_busy => {
            fs::create_dir_all(workspace.join(DATA))?;
            fs::write(workspace.join(KEPT), serde_json::to_string_pretty(results)? + "\n")?;
            bail!(
                "the machine was busy: {why}. docs/performance.md is unchanged; the results are in \
                 {KEPT}. Repeat the run on a quiet machine, or report them as those of a busy one: \
                 --from {KEPT} --accept-busy"
            )
        }
        _ => write_document(results, workspace),
    }
}

fn write_document(results: &Results, workspace: &Path) -> anyhow::Result<()> {
    let data = workspace.join(DATA);
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

/// The text for a terminal: whether the machine was quiet, the goals as ratios, and all figures.
pub(crate) fn text(results: &Results) -> String {
    let goals = goals(results);
    let width = goals.iter().map(|goal| goal.what.chars().count()).max().unwrap_or_default();
    let mut text = format!("{}\n\n", verdict(results).line());
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
    text.push_str(&condition(&verdict(results)));
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
    text.push_str(STAGES);
    let _ = write!(
        text,
        "## Figures\n\nMedians of {} rounds (watches, nginx, Envoy, Pingora and the newer haproxy: of 3).\n\n",
        results.rounds
    );
    let figures = tables::tables(results) + &growth::section(results);
    text.push_str(figures.trim_end());
    text.push('\n');
    text
}

/// The condition of the machine, above all figures.
fn condition(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Quiet(why) => format!("The machine was quiet: {why}.\n\n"),
        Verdict::Busy(why) => format!(
            "**The machine was busy: {why}.** Latency and throughput are distorted by that, CPU a request \
             somewhat, memory not. Repeat the run on a quiet machine before you draw conclusions.\n\n"
        ),
        Verdict::Unknown => {
            "**These results do not record whether the machine was quiet.**\n\n".to_owned()
        }
    }
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
    line("load average (builds before the run and the run itself count)", &loads);
    line("other work", &verdict(results).line());
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

const METHOD: &str = include_str!("method.md");
/// Measured apart, with other tools.
const STAGES: &str = include_str!("stages.md");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::others::OTHERS;
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
    #[test]
    fn a_busy_run_replaces_the_document_only_if_that_is_accepted() {
        let workspace = tempfile::tempdir().expect("a folder");
        let exists = |file: &str| workspace.path().join(file).exists();
        let busy = results(&[(REQUESTS, "c", "haproxy", 0, &[(OTHERS, 1.0)])]);
        let error = write(&busy, workspace.path(), false).expect_err("it was busy").to_string();
        assert!(error.starts_with("the machine was busy: others used 1.00 cores"), "{error}");
        assert!(exists(KEPT) && !exists("docs/performance.md"));

        write(&busy, workspace.path(), true).expect("accepted");
        let document = workspace.path().join("docs/performance.md");
        let document = fs::read_to_string(document).expect("a document");
        let table = document.find("| what |").expect("a table");
        let busy = document.find("**The machine was busy: ").expect("the condition");
        assert!(busy < table && !document.contains("The machine was quiet"));
        assert!(text(&results(&[])).starts_with("not recorded whether the machine was quiet\n"));
    }

    #[test]
    fn a_quiet_run_says_so_at_the_top() {
        let quiet = results(&[(REQUESTS, "c", "haproxy", 0, &[(OTHERS, 0.01)])]);
        assert!(text(&quiet).starts_with("quiet: others used 0.01 cores on average"));
        assert!(document(&quiet, &[]).contains("\nThe machine was quiet: "));
    }
}
