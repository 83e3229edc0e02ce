//! `mvp callers`. Entries: [`run`], and [`report`] for other commands.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use mvp_proxy::{CallersReport, RecordedCaller, ResourceCallers};
use serde::Serialize;

use super::gateway::GatewayArgs;
use super::terminal::{Cell, Colour, Paint, Progress, Table};
use crate::cli::{CallersArgs, Output};
use crate::lifecycle::{Lifecycle, Removals};
use crate::mistake::{Mistake, OneLine};

/// Runs the command.
pub(crate) fn run(args: CallersArgs) -> anyhow::Result<ExitCode> {
    let selection = Selection::new(&args)?;
    let mut report = {
        let _progress = Progress::start("asking the gateway");
        report(&args.gateway, args.addresses)?
    };
    report.resources.retain(|resource| selection.has(resource));
    let mut out = io::stdout().lock();
    match args.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &Described::of(&report))?;
            writeln!(out)?;
        }
        Output::Text if report.resources.is_empty() && report.more_requests == 0 => {
            writeln!(io::stderr(), "No callers in the last hour.")?;
        }
        Output::Text => {
            let table = table(&report, args.addresses, selection.is_about_the_end());
            write!(out, "{}{}", table.render(Paint::stdout()), more(&report))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The callers that a running gateway recorded in the last hour. It fails if the gateway records none.
pub(crate) fn report(gateway: &GatewayArgs, addresses: bool) -> anyhow::Result<CallersReport> {
    let query = if addresses { "?addresses" } else { "" };
    let answer = gateway.get(&format!("/debug/callers{query}"))?;
    match answer.status {
        200 => serde_json::from_str(&answer.body).with_context(|| {
            format!("{gateway} sent something else than callers; is it an mvp of another version?")
        }),
        // It names the socket, or the flag.
        403 | 409 => anyhow::bail!("{}", OneLine(answer.body.trim())),
        status => anyhow::bail!(
            "{gateway} answers {status}: an older mvp does not record callers; upgrade it"
        ),
    }
}

/// Which resources are shown.
struct Selection<'a> {
    api: Option<&'a str>,
    deprecated: bool,
    removed: Option<Removals>,
}

impl Selection<'_> {
    fn new(args: &CallersArgs) -> Result<Selection<'_>, Mistake> {
        let removed = args.removed_in.as_deref().map(Removals::in_release).transpose();
        let removed = removed.map_err(|problem| Mistake::usage("--removed-in", problem))?;
        let api = args.api.as_deref().map(|api| api.trim_end_matches('/'));
        if api.is_some_and(str::is_empty) {
            let what = "the API is empty; give a resource such as jobs, or batch/v1/jobs";
            return Err(Mistake::usage("mvp callers", what));
        }
        Ok(Selection { api, deprecated: args.deprecated, removed })
    }

    fn has(&self, of: &ResourceCallers) -> bool {
        let ResourceCallers { group, version, resource, .. } = of;
        let lifecycle = Lifecycle::of(group, version, resource);
        self.api.is_none_or(|api| matches(api, of))
            && (!self.deprecated || lifecycle.is_some_and(Lifecycle::is_deprecated))
            && self.removed.as_ref().is_none_or(|removed| removed.has(group, version, resource))
    }

    fn is_about_the_end(&self) -> bool {
        self.deprecated || self.removed.is_some()
    }
}

/// Whether a resource is `api`, or below it.
fn matches(api: &str, of: &ResourceCallers) -> bool {
    let ResourceCallers { group, resource, .. } = of;
    let path = name(of);
    let below = path.strip_prefix(api).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below || api == resource || api == format!("{resource}.{group}")
}

/// The name of a resource, as `GROUP/VERSION/RESOURCE`.
fn name(of: &ResourceCallers) -> String {
    let ResourceCallers { group, version, resource, .. } = of;
    match group.is_empty() {
        true => format!("{version}/{resource}"),
        false => format!("{group}/{version}/{resource}"),
    }
}

fn table(report: &CallersReport, addresses: bool, ends: bool) -> Table {
    let mut titles = vec!["GROUP/VERSION/RESOURCE", "USER", "USER AGENT", "REQUESTS", "LAST SEEN"];
    titles.extend(addresses.then_some("ADDRESS"));
    titles.extend(ends.then_some(["REMOVED IN", "USE INSTEAD"]).into_iter().flatten());
    let mut table = Table::new(titles);
    for of in &report.resources {
        let life = Lifecycle::of(&of.group, &of.version, &of.resource);
        let removed = life.and_then(|life| life.removed).map(|release| release.to_string());
        let instead = life.and_then(|life| life.replacement.clone());
        let row = |user: Cell, agent: &str, requests: u64, seen: String, address: &str| {
            let mut row =
                vec![name(of).into(), user, agent.into(), requests.to_string().into(), seen.into()];
            row.extend(addresses.then(|| address.into()));
            if ends {
                row.push(removed.clone().unwrap_or_default().into());
                row.push(instead.clone().unwrap_or_default().into());
            }
            row
        };
        for caller in &of.callers {
            let seen = ago(caller.last_seen_seconds_ago);
            let address = caller.address.as_deref().unwrap_or_default();
            table.row(row(user(caller), &caller.user_agent, caller.requests, seen, address));
        }
        if of.more_requests > 0 {
            let others = Cell::coloured("(more callers)", Colour::Yellow);
            table.row(row(others, "", of.more_requests, String::new(), ""));
        }
    }
    table
}

/// The user. A hash is not a name, so it is marked.
fn user(caller: &RecordedCaller) -> Cell {
    match (&caller.user, caller.user_source.as_str()) {
        (Some(hash), "token-hash") => format!("token:{hash}").into(),
        (Some(name), _) => name.clone().into(),
        (None, source) => format!("({source})").into(),
    }
}

/// A time ago, as kubectl writes ages.
fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s ago"),
        _ => format!("{}m ago", seconds / 60),
    }
}

/// The line about requests that are in no row.
fn more(report: &CallersReport) -> String {
    match report.more_requests {
        0 => String::new(),
        count => format!("{count} requests for further resources were not recorded.\n"),
    }
}

/// The report as JSON, with what is known of the life of each API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'a> {
    window_seconds: u64,
    resources: Vec<DescribedResource<'a>>,
    more_requests: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DescribedResource<'a> {
    #[serde(flatten)]
    of: &'a ResourceCallers,
    deprecated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_in: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replacement: Option<&'a str>,
}

impl Described<'_> {
    fn of(report: &CallersReport) -> Described<'_> {
        let resources = report.resources.iter().map(|of| {
            let life = Lifecycle::of(&of.group, &of.version, &of.resource);
            DescribedResource {
                of,
                deprecated: life.is_some_and(Lifecycle::is_deprecated),
                removed_in: life.and_then(|life| life.removed).map(|release| release.to_string()),
                replacement: life.and_then(|life| life.replacement.as_deref()),
            }
        });
        Described {
            window_seconds: report.window_seconds,
            resources: resources.collect(),
            more_requests: report.more_requests,
        }
    }
}

#[cfg(test)]
mod tests;
