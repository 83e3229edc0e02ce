//! `--watch`: follows an upgrade. Entry: [`watch`].

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::report::{Question, Report};
use super::server::Server;
use super::source::{Found, Source};
use super::surface::{Api, Surface};
use crate::cli::{SkewArgs, SkewOutput};
use crate::mistake::OneLine;
use crate::operator::terminal::Paint;

/// The time between two looks at the servers.
const INTERVAL: Duration = Duration::from_secs(2);

/// Follows the servers until Ctrl-C or until nobody reads the output.
pub(crate) async fn watch(source: &Source, args: &SkewArgs) -> anyhow::Result<()> {
    let redraw = io::stdout().is_terminal() && args.output != SkewOutput::Json;
    let mut seen = Seen::default();
    loop {
        let found = source.ask().await?;
        let text = match redraw {
            true => screen(&found, args)?,
            false => seen.changes(&found.servers).iter().map(|it| it.line(args.output)).collect(),
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        drop(out);
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            interrupted = tokio::signal::ctrl_c() => return Ok(interrupted?),
        }
    }
}

/// The whole table, over what the terminal showed before.
fn screen(found: &Found, args: &SkewArgs) -> anyhow::Result<String> {
    let question = Question::Apis { all: args.all_apis };
    let report = Report { servers: &found.servers, question };
    let text = report.render(args.output, Paint::stdout())?;
    let remarks: String =
        found.remarks.iter().map(|remark| format!("{}\n", OneLine(remark))).collect();
    Ok(format!("\x1b[2J\x1b[H{text}\n{remarks}Ctrl-C ends it.\n"))
}

/// What was seen last of each server.
#[derive(Debug, Default)]
struct Seen(BTreeMap<String, Last>);

#[derive(Debug, Default)]
struct Last {
    release: Option<String>,
    /// What it served when it last answered.
    surface: Option<Surface>,
    problem: Option<String>,
}

/// A change of one server.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    server: String,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    /// It is seen for the first time: its release and the number of its resources.
    Found(String, usize),
    /// It is not in the list any more.
    Gone,
    Silent(String),
    Back,
    Release(String, String),
    Appears(Api),
    Disappears(Api),
}

impl Seen {
    /// What changed since the last call.
    fn changes(&mut self, servers: &[Server]) -> Vec<Change> {
        let mut changes = Vec::new();
        let gone = |name: &String| !servers.iter().any(|server| server.name == *name);
        let names: Vec<String> = self.0.keys().filter(|name| gone(name)).cloned().collect();
        for name in names {
            self.0.remove(&name);
            changes.push(Change { server: name, what: What::Gone });
        }
        for server in servers {
            let last = self.0.entry(server.name.clone()).or_default();
            let found = last.update(server);
            changes
                .extend(found.into_iter().map(|what| Change { server: server.name.clone(), what }));
        }
        changes
    }
}

impl Last {
    fn update(&mut self, server: &Server) -> Vec<What> {
        let mut changes = Vec::new();
        let problem = server.problem().map(str::to_owned);
        match (&self.problem, &problem) {
            // Its words may change with every attempt.
            (None, Some(reason)) => changes.push(What::Silent(reason.clone())),
            (Some(_), None) if self.surface.is_some() => changes.push(What::Back),
            _ => {}
        }
        self.problem = problem;
        let (Some(surface), None) = (server.surface(), &self.problem) else { return changes };
        let release = server.shown_release();
        match self.surface.replace(surface.clone()) {
            None => changes.push(What::Found(release.to_owned(), surface.resources())),
            Some(before) => {
                if let Some(last) = self.release.as_deref().filter(|last| *last != release) {
                    changes.push(What::Release(last.to_owned(), release.to_owned()));
                }
                let names = |from: &Surface, to: &Surface| {
                    let new = from.iter().map(|(api, _)| api).filter(|api| !to.has(api));
                    // A resource stands for its subresources.
                    let new = new.filter(|api| api.subresource.is_none() || to.has(&api.parent()));
                    new.cloned().collect::<Vec<_>>()
                };
                changes.extend(names(&before, surface).into_iter().map(What::Disappears));
                changes.extend(names(surface, &before).into_iter().map(What::Appears));
            }
        }
        self.release = Some(release.to_owned());
        changes
    }
}

impl Change {
    fn line(&self, output: SkewOutput) -> String {
        match output {
            SkewOutput::Json => format!("{}\n", self.json()),
            _ => format!("{}\n", OneLine(&format!("{}: {}", self.server, self.what.text()))),
        }
    }

    fn json(&self) -> Value {
        let api = |change: &str, api: &Api| {
            json!({
                "server": self.server, "change": change, "group": api.group, "version": api.version,
                "resource": api.resource, "subresource": api.subresource,
            })
        };
        match &self.what {
            What::Found(release, resources) => json!({
                "server": self.server, "change": "found", "release": release, "resources": resources,
            }),
            What::Gone => json!({ "server": self.server, "change": "gone" }),
            What::Silent(problem) => {
                json!({ "server": self.server, "change": "no answer", "problem": problem })
            }
            What::Back => json!({ "server": self.server, "change": "answers again" }),
            What::Release(from, to) => {
                json!({ "server": self.server, "change": "release", "from": from, "to": to })
            }
            What::Appears(found) => api("appears", found),
            What::Disappears(found) => api("disappears", found),
        }
    }
}

impl What {
    fn text(&self) -> String {
        match self {
            What::Found(release, resources) => format!("{release}, {resources} resources"),
            What::Gone => "gone".to_owned(),
            What::Silent(problem) => format!("no answer: {problem}"),
            What::Back => "answers again".to_owned(),
            What::Release(from, to) => format!("release {from} → {to}"),
            What::Appears(api) => format!("{api} appears"),
            What::Disappears(api) => format!("{api} disappears"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::skew::compare::tests::server;
    use crate::operator::skew::server::Answer;

    #[test]
    fn a_restart_with_another_release_is_a_line_for_each_change() {
        let old = server("b", "v1.34.10", &["v1 pods get", "x/v1beta1 things get"]);
        let new = server(
            "b",
            "v1.36.4",
            &["v1 pods get", "v1 pods/resize get", "x/v1 things get", "x/v1 things/status get"],
        );
        let down =
            Server { answer: Answer::None("refused".to_owned()), release: None, ..old.clone() };
        let mut seen = Seen::default();
        let mut lines = |servers: &[Server]| -> Vec<String> {
            let changes = seen.changes(servers);
            changes.iter().map(|change| change.line(SkewOutput::Table)).collect()
        };
        assert_eq!(lines(std::slice::from_ref(&old)), ["b: v1.34.10, 2 resources\n"]);
        assert_eq!(lines(&[old]), <[&str; 0]>::default());
        assert_eq!(lines(std::slice::from_ref(&down)), ["b: no answer: refused\n"]);
        let other = Server { answer: Answer::None("timed out".to_owned()), ..down };
        assert_eq!(lines(&[other]), <[&str; 0]>::default(), "the words of a failure are no change");
        let expected = [
            "b: answers again\n",
            "b: release v1.34.10 → v1.36.4\n",
            "b: x/v1beta1 things disappears\n",
            "b: v1 pods/resize appears\n",
            "b: x/v1 things appears\n",
        ];
        assert_eq!(lines(&[new]), expected);
        assert_eq!(lines(&[]), ["b: gone\n"]);
    }
}
