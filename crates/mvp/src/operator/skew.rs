//! `mvp skew`: which APIs differ between the servers of a cluster, and what a step of an upgrade takes away.
//! Entry: [`run`].
//!
//! [`source`] asks the servers; [`compare`], [`without`] and [`releases`] judge; [`report`] prints.

mod ask;
mod callers;
mod compare;
mod count;
mod finding;
mod releases;
mod report;
mod server;
mod sheet;
mod source;
mod surface;
mod watch;
mod without;

use std::io::{self, Write};
use std::process::ExitCode;

use self::callers::Recorded;
use self::finding::Finding;
use self::releases::{Releases, Step};
use self::report::{Question, Report};
pub(crate) use self::server::Server;
pub(crate) use self::source::Known;
use self::source::Source;
pub(crate) use self::surface::Surface;
use crate::cli::{SkewArgs, SkewOutput};
use crate::mistake::{Mistake, OneLine};
use crate::operator::terminal::{Paint, Progress};

/// The exit code if a step strands something.
const STRANDED: u8 = 3;

/// Runs the command.
pub(crate) fn run(args: &SkewArgs) -> anyhow::Result<ExitCode> {
    if args.watch && matches!(args.output, SkewOutput::Yaml | SkewOutput::Markdown) {
        let sentence = "with --watch, use table, wide or json";
        return Err(Mistake::usage("--output", sentence).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // A wrong version is told before anything is asked.
        let releases = args.with.as_ref().map(|_| Releases::recorded());
        if let (Some(releases), Some(version)) = (&releases, &args.with) {
            releases.step(version, &[])?;
        }
        let source = Source::choose(args)?;
        if args.watch {
            return watch::watch(&source, args).await.map(|()| ExitCode::SUCCESS);
        }
        let progress = Progress::start("asking the servers what they serve");
        let found = source.ask().await?;
        let question = ask(args, releases.as_ref(), &found.servers, &progress).await?;
        drop(progress);
        for remark in &found.remarks {
            writeln!(io::stderr(), "{}", OneLine(remark))?;
        }
        let report = Report { servers: &found.servers, question };
        io::stdout().write_all(report.render(args.output, Paint::stdout())?.as_bytes())?;
        let trouble = found.servers.iter().any(|server| server.problem().is_some());
        Ok(ExitCode::from(match (report.strands(), trouble) {
            (true, _) => STRANDED,
            (false, true) => 1,
            (false, false) => 0,
        }))
    })
}

/// The document of `mvp skew -o json` with all APIs, or with those that differ: so many rows at most. Those
/// that differ come first; `leftOut` counts the others.
pub(crate) fn compared(servers: &[Server], all: bool, most: usize) -> serde_json::Value {
    Report { servers, question: Question::Apis { all } }.shortened(all, most)
}

/// What the flags ask, with the answer.
async fn ask(
    args: &SkewArgs,
    releases: Option<&Releases>,
    servers: &[Server],
    progress: &Progress,
) -> anyhow::Result<Question> {
    if let Some(name) = &args.without {
        let gone = place(servers, name)?;
        let mut lost = without::lost(servers, gone);
        complete(args, &mut lost, &servers.get(gone).into_iter().collect::<Vec<_>>(), progress)
            .await;
        return Ok(Question::Without { gone, lost });
    }
    if let (Some(releases), Some(version)) = (releases, &args.with) {
        if servers.iter().all(|server| server.surface().is_none()) {
            let reasons = servers.iter().filter_map(Server::problem);
            let sentence = format!("no server answers: {}", reasons.collect::<Vec<_>>().join("; "));
            return Err(Mistake::trouble("--with", sentence).into());
        }
        let mut step: Step = releases.step(version, servers)?;
        complete(args, &mut step.removed, &servers.iter().collect::<Vec<_>>(), progress).await;
        return Ok(Question::With(step));
    }
    Ok(Question::Apis { all: args.all_apis })
}

/// Adds callers and objects.
async fn complete(
    args: &SkewArgs,
    found: &mut [Finding],
    servers: &[&Server],
    progress: &Progress,
) {
    if found.is_empty() {
        return;
    }
    callers::add(found, Recorded::fetch(&args.gateway).as_ref());
    progress.now("counting objects");
    count::count(found, servers).await;
}

/// The place of the server that `--without` names. It must have answered.
fn place(servers: &[Server], name: &str) -> Result<usize, Mistake> {
    let Some(place) = servers.iter().position(|server| server.name == name) else {
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let sentence = format!("there is no server {name:?}; the servers are {}", names.join(", "));
        return Err(Mistake::usage("--without", sentence));
    };
    match servers.get(place).and_then(|server| server.surface().is_none().then(|| server.problem()))
    {
        Some(problem) => {
            let problem = problem.unwrap_or_default();
            let sentence = format!("it is unknown what {name} serves: no answer: {problem}");
            Err(Mistake::trouble("--without", sentence))
        }
        None => Ok(place),
    }
}
