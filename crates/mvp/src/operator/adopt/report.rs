//! The result of `mvp adopt`. Entry: [`Report`].

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use mvp_steer::connections::{Connection, Survey};
use serde::Serialize;

use crate::cli::AdoptArgs;
use crate::operator::terminal::{Cell, Colour, Paint, Table};

/// The most rows of the table after connections were ended.
const MAX_ROWS: usize = 20;

/// The result, as it is printed with `-o json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) port: u16,
    pub(super) dry_run: bool,
    pub(super) ended: usize,
    /// Those from before the steering that are left.
    pub(super) connections: Vec<Row>,
    #[serde(skip)]
    idle: Duration,
    #[serde(skip)]
    timeout: Duration,
}

/// A connection that is left.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) idle_seconds: f64,
    pub(super) state: State,
}

/// Why a connection is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// There was no time for it, or it is a dry run.
    AtRest,
    Busy,
    /// It may be the server's own.
    OwnerUnknown,
}

impl State {
    fn cell(self) -> Cell {
        match self {
            State::AtRest => Cell::coloured("at rest", Colour::Green),
            State::Busy => Cell::coloured("busy", Colour::Yellow),
            State::OwnerUnknown => Cell::coloured("owner unknown", Colour::Yellow),
        }
    }
}

impl Report {
    pub(super) fn new(port: u16, args: &AdoptArgs, ended: usize, survey: &Survey) -> Report {
        let state = |one: &Connection| match one.is_at_rest(args.idle) {
            true => State::AtRest,
            false => State::Busy,
        };
        let clients = survey.unsteered.iter().map(|one| (one, state(one)));
        let unclear = survey.unclear.iter().map(|one| (one, State::OwnerUnknown));
        let row = |(one, state): (&Connection, State)| Row {
            client: one.remote,
            server: one.local,
            idle_seconds: one.idle().as_secs_f64(),
            state,
        };
        let mut connections: Vec<Row> = clients.chain(unclear).map(row).collect();
        connections.sort_by_key(|row| (row.client, row.server));
        let (dry_run, idle, timeout) = (args.dry_run, args.idle, args.timeout);
        Report { port, dry_run, ended, connections, idle, timeout }
    }

    /// The result for people.
    pub(super) fn text(&self, paint: Paint) -> String {
        let Report { port, ended, .. } = self;
        let left = self.connections.len();
        let mut text = match (self.dry_run, ended, left) {
            (_, 0, 0) => format!("No connection to port {port} is from before the steering.\n"),
            (true, ..) => {
                let rests = self.count(State::AtRest);
                format!("{left} connections to port {port} are from before; {rests} are at rest.\n")
            }
            (false, ..) => format!("{ended} connections were ended, {left} are left.\n"),
        };
        let shown = if self.dry_run { left } else { MAX_ROWS };
        let mut table = Table::new(["CLIENT", "SERVER", "IDLE", "STATE"]);
        for row in self.connections.iter().take(shown) {
            let idle = Cell::from(format!("{:.1}s", row.idle_seconds));
            let ends = [row.client, row.server].map(|end| Cell::from(end.to_string()));
            table.row(ends.into_iter().chain([idle, row.state.cell()]));
        }
        if !table.is_empty() {
            let _ = write!(text, "\n{}", table.render(paint));
        }
        if left > shown {
            let _ = writeln!(text, "and {} more; see -o json", left - shown);
        }
        text + &self.advice()
    }

    fn count(&self, state: State) -> usize {
        self.connections.iter().filter(|row| row.state == state).count()
    }

    fn advice(&self) -> String {
        let mut text = String::new();
        let (waiting, busy) = (self.count(State::AtRest), self.count(State::Busy));
        if !self.dry_run && waiting + busy > 0 {
            let (idle, timeout) = (self.idle, self.timeout);
            let _ = writeln!(
                text,
                "\n{} were not at rest for {idle:?} in time ({timeout:?}): run it again, with a \
                 shorter --idle or a longer --timeout",
                waiting + busy
            );
        }
        let unclear = self.count(State::OwnerUnknown);
        if unclear > 0 {
            let _ = writeln!(
                text,
                "\n{unclear} come from this host and may be kube-apiserver's own, because its process \
                 cannot be seen from here: run it as root on the node to tell them apart"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(dry_run: bool, ended: usize, states: &[State]) -> Report {
        let row = |state: &State| Row {
            client: "10.0.0.2:5000".parse().unwrap(),
            server: "10.0.0.1:6443".parse().unwrap(),
            idle_seconds: 12.34,
            state: *state,
        };
        let connections = states.iter().map(row).collect();
        let (idle, timeout) = (Duration::from_secs(1), Duration::from_secs(300));
        Report { port: 6443, dry_run, ended, connections, idle, timeout }
    }

    #[test]
    fn people_see_what_is_left_and_why() {
        let text = report(false, 0, &[]).text(Paint::PLAIN);
        assert_eq!(text, "No connection to port 6443 is from before the steering.\n");
        let text = report(false, 3, &[]).text(Paint::PLAIN);
        assert_eq!(text, "3 connections were ended, 0 are left.\n");
        let text = report(true, 0, &[State::AtRest, State::Busy]).text(Paint::PLAIN);
        let expected = "2 connections to port 6443 are from before; 1 are at rest.

CLIENT          SERVER          IDLE    STATE
10.0.0.2:5000   10.0.0.1:6443   12.3s   at rest
10.0.0.2:5000   10.0.0.1:6443   12.3s   busy
";
        assert_eq!(text, expected);
        let text = report(false, 1, &[State::Busy, State::OwnerUnknown]).text(Paint::PLAIN);
        assert!(text.contains("1 were not at rest for 1s in time (300s): run it again"), "{text}");
        assert!(text.contains("1 come from this host and may be kube-apiserver's own"), "{text}");
        let text = report(false, 0, &[State::Busy; 30]).text(Paint::PLAIN);
        assert!(text.contains("\nand 10 more; see -o json\n"), "{text}");
    }

    #[test]
    fn programs_see_every_connection() {
        let report = serde_json::to_value(report(false, 1, &[State::OwnerUnknown])).unwrap();
        let expected = serde_json::json!({
            "port": 6443, "dryRun": false, "ended": 1,
            "connections": [{
                "client": "10.0.0.2:5000", "server": "10.0.0.1:6443", "idleSeconds": 12.34,
                "state": "owner-unknown",
            }],
        });
        assert_eq!(report, expected);
    }
}
