//! `mvp adopt`: ends connections to kube-apiserver from before the steering, so that their clients come
//! back through the gateway. Entry: [`run`].
//!
//! - [`steering`]: what the gateway on this host says about its steering
//! - [`rounds`]: which connections are ended when
//! - [`report`]: the result, for people and for programs

mod report;
mod rounds;
mod steering;

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use mvp_steer::connections::{self, Connection, Place, Survey};

use self::report::Report;
use self::rounds::{Found, Host, Limits};
use super::gateway::GatewayArgs;
use super::terminal::{Paint, Progress};
use crate::cli::{AdoptArgs, Output};

/// The exit code if connections from before are left.
const LEFT: u8 = 3;
/// kube-apiserver's default.
const DEFAULT_PORT: u16 = 6443;
/// The time between two rounds. The rate counts for it.
const ROUND: Duration = Duration::from_secs(1);
/// The time between two lines about the progress that are not on a terminal.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) fn run(args: &AdoptArgs) -> anyhow::Result<ExitCode> {
    let place = place(args)?;
    let mut node = Node::new(args, place);
    let mut ended = 0;
    if args.dry_run {
        node.survey = connections::survey(place)?;
    } else {
        let limits = Limits { rate: args.rate, only_first: args.force };
        let done = rounds::run(&mut node, limits);
        ended = done.ended;
        let so_far = || format!("{ended} connections were ended before");
        // Only an error after some were ended needs to say so.
        match done.failed {
            Some(error) if ended > 0 => return Err(error).with_context(so_far),
            Some(error) => return Err(error),
            None => {}
        }
    }
    // The line about the progress must be gone.
    node.progress = None;
    let report = Report::new(place.port, args, ended, &node.survey);
    let text = match args.output {
        Output::Text => report.text(Paint::stdout()),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(if report.connections.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LEFT) })
}

/// The port of kube-apiserver. Fails if connections would be ended, and no gateway steers new ones.
fn place(args: &AdoptArgs) -> anyhow::Result<Place> {
    let steered = steering::place(&args.gateway);
    let whole = |port| Place { port, address: None };
    match (steered, args.secure_port) {
        (Ok(steered), None) => Ok(steered),
        (Ok(steered), Some(given)) if steered.port == given => Ok(steered),
        (_, Some(given)) if args.force || args.dry_run => Ok(whole(given)),
        (Ok(steered), Some(given)) => {
            anyhow::bail!(
                "--secure-port: {given} is not the port that the gateway at {} steers; leave the flag \
                 out, or give {}",
                args.gateway,
                steered.port
            )
        }
        (Err(_), None) if args.force => Ok(whole(DEFAULT_PORT)),
        (Err(error), None) if args.dry_run => {
            writeln!(io::stderr(), "note: port {DEFAULT_PORT} is assumed: {error:#}")?;
            Ok(whole(DEFAULT_PORT))
        }
        (Err(error), _) => Err(error.context(REFUSED)),
    }
}

const REFUSED: &str = "nothing is ended, because clients would only come back to kube-apiserver \
                       (--force ends their connections all the same)";

/// This host.
struct Node<'a> {
    place: Place,
    idle: Duration,
    /// Asked in every round; none with `--force`.
    gateway: Option<&'a GatewayArgs>,
    begun: Instant,
    timeout: Duration,
    /// The last one.
    survey: Survey,
    progress: Option<Progress>,
    told: Instant,
}

impl<'a> Node<'a> {
    fn new(args: &'a AdoptArgs, place: Place) -> Node<'a> {
        let begun = Instant::now();
        Node {
            place,
            idle: args.idle,
            gateway: (!args.force).then_some(&args.gateway),
            begun,
            timeout: args.timeout,
            survey: Survey::default(),
            progress: Some(Progress::start("looking for connections")),
            told: begun,
        }
    }
}

impl Host for Node<'_> {
    type Connection = Connection;

    /// A gateway that stopped steering would get none of the clients.
    fn may_go_on(&mut self) -> anyhow::Result<()> {
        match self.gateway.map(steering::place) {
            None => Ok(()),
            Some(Ok(place)) if place == self.place => Ok(()),
            Some(Ok(Place { port, address: None })) => {
                anyhow::bail!("the gateway steers port {port} now; run it again")
            }
            Some(Ok(Place { port, address: Some(address) })) => {
                anyhow::bail!("the gateway steers {address}, port {port}, now; run it again")
            }
            Some(Err(error)) => Err(error.context(REFUSED)),
        }
    }

    fn look(&mut self) -> anyhow::Result<HashMap<u64, Found<Connection>>> {
        self.survey = connections::survey(self.place)?;
        let found = self.survey.unsteered.iter().map(|one| {
            let (at_rest, idle) = (one.is_at_rest(self.idle), one.idle());
            (one.cookie, Found { connection: one.clone(), at_rest, idle })
        });
        Ok(found.collect())
    }

    fn end(&mut self, connection: &Connection) -> anyhow::Result<bool> {
        Ok(connections::end(connection)?)
    }

    fn keep_only(&mut self, cookies: &dyn Fn(u64) -> bool) {
        self.survey.unsteered.retain(|one| cookies(one.cookie));
        self.survey.unclear.retain(|one| cookies(one.cookie));
    }

    fn wait(&mut self, ended: usize, left: usize) -> bool {
        let what = format!("{ended} connections ended, {left} left");
        if !io::stderr().is_terminal() && self.told.elapsed() >= TOLD_EVERY {
            self.told = Instant::now();
            let _ = writeln!(io::stderr(), "{what}");
        }
        if let Some(progress) = &self.progress {
            progress.now(what);
        }
        let left = self.timeout.saturating_sub(self.begun.elapsed());
        std::thread::sleep(ROUND.min(left));
        !left.is_zero()
    }
}
