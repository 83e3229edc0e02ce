//! The results as text, JSON, YAML or Markdown. Entry: [`Report::render`].

use mvp_core::Verb;
use serde_json::{Map, Value, json};

use super::compare::{Row, Served, rows};
use super::finding::Finding;
use super::releases::Step;
use super::server::{Server, together};
use super::sheet::Sheet;
use super::surface::{Api, joined, minus};
use crate::cli::SkewOutput;
use crate::operator::terminal::{Cell, Colour, Paint};

/// What was asked, and what was found.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) servers: &'a [Server],
    pub(crate) question: Question,
}

/// What was asked.
#[derive(Debug)]
pub(crate) enum Question {
    /// The APIs that differ, or all.
    Apis { all: bool },
    /// What is lost without the server at this place.
    Without { gone: usize, lost: Vec<Finding> },
    /// What a release changes.
    With(Step),
}

impl Report<'_> {
    /// Whether the step strands something.
    pub(crate) fn strands(&self) -> bool {
        match &self.question {
            Question::Apis { .. } => false,
            Question::Without { lost, .. } => !lost.is_empty(),
            Question::With(step) => step.removed.iter().any(Finding::is_used),
        }
    }

    /// The report in a format.
    pub(crate) fn render(&self, output: SkewOutput, paint: Paint) -> anyhow::Result<String> {
        Ok(match output {
            SkewOutput::Json => format!("{:#}\n", self.json()),
            SkewOutput::Yaml => serde_saphyr::to_string(&self.json())?,
            SkewOutput::Table => self.text(false, &Sheet::table(paint)),
            SkewOutput::Wide => self.text(true, &Sheet::table(paint)),
            SkewOutput::Markdown => self.text(false, &Sheet::markdown()),
        })
    }

    fn text(&self, wide: bool, sheet: &Sheet) -> String {
        let mut parts = vec![];
        match &self.question {
            Question::Apis { all } => parts.push(self.apis(*all, wide, sheet)),
            Question::Without { gone, lost } => {
                let name = self.servers.get(*gone).map_or("", |server| server.name.as_str());
                if lost.is_empty() {
                    parts.push(sheet.line(&format!(
                        "Without {name}, nothing is lost: other servers serve all of its APIs."
                    )));
                } else {
                    parts.push(sheet.line(&format!("Without {name}, no server serves:")));
                    parts.push(findings(lost, sheet));
                }
            }
            Question::With(step) => parts.extend(changes(step, sheet)),
        }
        let problems: String = self
            .servers
            .iter()
            .filter_map(|server| {
                let problem = server.problem()?;
                let shows =
                    if server.surface().is_some() { "; this is what it served before" } else { "" };
                Some(sheet.line(&format!("{}: no answer: {problem}{shows}", server.name)))
            })
            .collect();
        match &self.question {
            _ if problems.is_empty() => {}
            // Before the verdict, which does not count them.
            Question::With(_) => parts.insert(0, problems),
            Question::Apis { .. } | Question::Without { .. } => parts.push(problems),
        }
        parts.join("\n")
    }

    /// A table with a column for each server.
    fn apis(&self, all: bool, wide: bool, sheet: &Sheet) -> String {
        let rows = rows(self.servers, all);
        let releases = self.servers.iter().map(|server| {
            let colour = if server.problem().is_some() { Colour::Red } else { Colour::None };
            Cell::coloured(server.shown_release(), colour)
        });
        let titles = ["GROUP/VERSION", "RESOURCE"].map(str::to_owned).into_iter();
        let titles = titles.chain(self.servers.iter().map(|server| server.name.clone()));
        let mut lines = vec![["", ""].map(Cell::from).into_iter().chain(releases).collect()];
        for row in &rows {
            let names = [row.api.group_version(), row.api.name()].map(Cell::from).into_iter();
            lines.push(names.chain(row.cells.iter().map(|cell| shown(row, *cell, wide))).collect());
        }
        let text = sheet.sheet(titles.collect(), lines);
        let count = together(self.servers).resources();
        let answered = self.servers.iter().filter(|server| server.surface().is_some()).count();
        match (rows.is_empty(), answered) {
            (true, 2..) => {
                let what = format!("All {answered} servers that answered serve the same {count} resources.");
                format!("{text}\n{}", sheet.line(&what))
            }
            (true, 1) => format!("{text}\n{}", sheet.line(
                "Only one server answered: there is nothing to compare. Give several with --context or --server.")),
            _ => text,
        }
    }

    /// The report as JSON.
    pub(super) fn json(&self) -> Value {
        let mut document = json!({ "servers": self.servers() });
        let (key, value) = match &self.question {
            Question::Apis { all } => {
                ("apis", rows(self.servers, *all).iter().map(|row| self.row(row)).collect())
            }
            Question::Without { gone, lost } => (
                "without",
                json!({
                    "server": self.servers.get(*gone).map(|server| &server.name),
                    "lost": lost.iter().map(Finding::json).collect::<Vec<_>>(),
                }),
            ),
            Question::With(step) => (
                "with",
                json!({
                    "release": step.git_version,
                    "added": step.added.iter().map(api_json).collect::<Vec<_>>(),
                    "removed": step.removed.iter().map(Finding::json).collect::<Vec<_>>(),
                    "resourcesNotJudged": step.not_judged,
                }),
            ),
        };
        if let Some(fields) = document.as_object_mut() {
            fields.insert(key.to_owned(), value);
            if !matches!(self.question, Question::Apis { .. }) {
                fields.insert("strands".to_owned(), json!(self.strands()));
            }
        }
        document
    }

    /// The APIs as JSON, with so many rows at most. Those that differ come first.
    pub(super) fn shortened(&self, all: bool, most: usize) -> Value {
        let mut rows = rows(self.servers, all);
        rows.sort_by_key(Row::is_alike);
        let left_out = rows.len().saturating_sub(most);
        rows.truncate(most);
        let apis: Value = rows.iter().map(|row| self.row(row)).collect();
        json!({ "servers": self.servers(), "apis": apis, "leftOut": left_out })
    }

    fn servers(&self) -> Value {
        let server = |server: &Server| {
            json!({
                "name": server.name,
                "release": server.release,
                "resources": server.surface().map(super::surface::Surface::resources),
                "problem": server.problem(),
            })
        };
        self.servers.iter().map(server).collect()
    }

    /// A row: the verbs by server, null where it is not served. A server without an answer is not in it.
    fn row(&self, row: &Row) -> Value {
        let mut by_server = Map::new();
        for (server, cell) in self.servers.iter().zip(&row.cells) {
            let value = match cell {
                Served::Unknown => continue,
                Served::No => Value::Null,
                Served::Yes(verbs) => json!(verbs.iter().map(Verb::as_str).collect::<Vec<_>>()),
            };
            by_server.insert(server.name.clone(), value);
        }
        let mut document = api_json(&row.api);
        if let Some(fields) = document.as_object_mut() {
            fields.insert("servers".to_owned(), Value::Object(by_server));
        }
        document
    }
}

fn api_json(api: &Api) -> Value {
    let Api { group, version, resource, subresource } = api;
    json!({ "group": group, "version": version, "resource": resource, "subresource": subresource })
}

fn shown(row: &Row, cell: Served, wide: bool) -> Cell {
    match cell {
        Served::Unknown => Cell::coloured("?", Colour::Red),
        Served::No => Cell::coloured("-", Colour::Yellow),
        Served::Yes(verbs) if wide => Cell::from(joined(verbs)),
        Served::Yes(verbs) => match joined(minus(row.all, verbs)) {
            missing if missing.is_empty() => Cell::coloured("yes", Colour::Green),
            missing => Cell::coloured(format!("without {missing}"), Colour::Yellow),
        },
    }
}

fn findings(found: &[Finding], sheet: &Sheet) -> String {
    let titles = ["GROUP/VERSION", "RESOURCE", "STAYS AS", "OBJECTS", "CALLERS IN THE LAST HOUR"];
    let line = |finding: &Finding| {
        let stays =
            if finding.stays_as.is_empty() { "-".to_owned() } else { finding.stays_as.join(", ") };
        let colour = if finding.is_used() { Colour::Red } else { Colour::None };
        vec![
            Cell::from(finding.api.group_version()),
            Cell::coloured(finding.what(), colour),
            Cell::from(stays),
            Cell::from(finding.objects.shown()),
            Cell::from(finding.callers.shown()),
        ]
    };
    sheet.sheet(titles.map(str::to_owned).to_vec(), found.iter().map(line).collect())
}

fn changes(step: &Step, sheet: &Sheet) -> Vec<String> {
    let release = &step.git_version;
    let mut parts = Vec::new();
    if step.removed.is_empty() {
        parts.push(sheet.line(&format!("{release} removes nothing that is served now.")));
    } else {
        parts.push(sheet.line(&format!("{release} removes:")));
        parts.push(findings(&step.removed, sheet));
    }
    if step.added.is_empty() {
        parts.push(sheet.line(&format!("{release} adds nothing.")));
    } else {
        parts.push(sheet.line(&format!("{release} adds:")));
        let line = |api: &Api| vec![Cell::from(api.group_version()), Cell::from(api.name())];
        let titles = ["GROUP/VERSION", "RESOURCE"].map(str::to_owned).to_vec();
        parts.push(sheet.sheet(titles, step.added.iter().map(line).collect()));
    }
    if step.not_judged > 0 {
        let count = step.not_judged;
        let what = "custom resources, extension servers and feature gates";
        parts.push(sheet.line(&format!("Not judged: {count} resources ({what}).")));
    }
    parts
}

#[cfg(test)]
mod tests;
