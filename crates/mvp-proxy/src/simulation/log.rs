//! Everything that happens in a simulation: what servers served when, where requests arrived, how
//! they ended, and the trace for people. Entry item: [`Log`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use testkit::history::Recorder;
use tokio::time::Instant;

use super::network::{CLIENTS, Node};

/// The number of a request of a client. Nobody else sends `User-Agent: op-NUMBER`.
pub(super) type Op = u64;

/// A member that was silent for this long is not waited for, until its next heartbeat was read.
const SILENT: Duration = Duration::from_secs(40);
/// Within this time it was.
const HEARTBEAT_READ: Duration = Duration::from_secs(2);

/// The log. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Log(Arc<Mutex<Entries>>);

#[derive(Debug)]
pub(super) struct Entries {
    began: Instant,
    events: Vec<Event>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) ended: Vec<Ended>,
    pub(super) registers: Recorder<String>,
    /// By node: from when on its server served and told these groups.
    lives: Vec<Vec<(Duration, BTreeSet<&'static str>)>>,
}

/// A line of the trace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    at: Duration,
    text: String,
}

/// A request that arrived somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) op: Op,
    pub(super) from: Node,
    pub(super) to: Node,
    pub(super) place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Gateway,
    Server,
    /// The storage behind a server: it processes a write.
    Storage,
}

/// A request of a client that ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) op: Op,
    pub(super) what: String,
    /// The group that it is about.
    pub(super) group: &'static str,
    pub(super) called: Duration,
    pub(super) returned: Duration,
    pub(super) how: How,
    /// Whether faults had stopped when it was sent.
    pub(super) calm: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Status(u16),
    /// 404, and it names the object: the server has the API.
    NoObject,
    /// The connection to the gateway ended.
    Broken,
    /// Nothing came for [`super::client::PATIENCE`].
    Never,
}

impl Log {
    pub(super) fn new(nodes: usize) -> Log {
        Log(Arc::new(Mutex::new(Entries {
            began: Instant::now(),
            events: Vec::new(),
            arrivals: Vec::new(),
            ended: Vec::new(),
            registers: Recorder::default(),
            lives: vec![vec![(Duration::ZERO, BTreeSet::new())]; nodes],
        })))
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap()
    }

    pub(super) fn now(&self) -> Duration {
        self.entries().now()
    }

    /// Adds a line to the trace.
    pub(super) fn note(&self, text: impl fmt::Display) {
        let mut entries = self.entries();
        let event = Event { at: entries.now(), text: text.to_string() };
        entries.events.push(event);
    }

    /// From now on the server of a node serves these groups, and says so.
    pub(super) fn serves(&self, node: Node, groups: BTreeSet<&'static str>) {
        let mut entries = self.entries();
        let now = entries.now();
        entries.lives[node].push((now, groups));
    }

    /// Whether the server of a node serves anything.
    pub(super) fn is_up(&self, node: Node) -> bool {
        self.entries().lives[node].last().is_some_and(|(_, groups)| !groups.is_empty())
    }

    pub(super) fn arrived(&self, op: Option<Op>, from: Node, to: Node, place: Place) {
        if let Some(op) = op {
            self.entries().arrivals.push(Arrival { op, from, to, place });
        }
    }

    pub(super) fn ended(&self, ended: Ended) {
        let Ended { op, what, called, how, .. } = &ended;
        self.note(format_args!("op-{op} {what}: {how:?}, sent at {:.3} s", called.as_secs_f64()));
        self.entries().ended.push(ended);
    }

    /// The trace in the order of time. Within a millisecond lines are sorted: which of several tasks
    /// that wake at the same time runs first is not part of a seed.
    pub(super) fn trace(&self) -> Vec<String> {
        let mut events = self.entries().events.clone();
        events.sort();
        let line = |Event { at, text }: &Event| format!("{:8.3} s {text}", at.as_secs_f64());
        events.iter().map(line).collect()
    }
}

impl Entries {
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The servers that served this group, and said so, all the time.
    pub(super) fn serving(&self, group: &str, from: Duration, to: Duration) -> Vec<Node> {
        let has = |lives: &Vec<(Duration, BTreeSet<&'static str>)>| {
            lives.iter().enumerate().all(|(index, (begin, groups))| {
                let end = lives.get(index + 1).map_or(Duration::MAX, |(end, _)| *end);
                let silence =
                    if groups.is_empty() { end.saturating_sub(*begin) } else { Duration::ZERO };
                let end = if silence > SILENT { end.saturating_add(HEARTBEAT_READ) } else { end };
                *begin > to || end < from || groups.contains(group)
            })
        };
        (0..self.lives.len()).filter(|node| has(&self.lives[*node])).collect()
    }

    /// The requests that went from one node to the gateway or the server of another one.
    pub(super) fn hops(&self) -> usize {
        let is_hop = |arrival: &&Arrival| {
            arrival.from != CLIENTS && arrival.from != arrival.to && arrival.place != Place::Storage
        };
        self.arrivals.iter().filter(is_hop).count()
    }

    pub(super) fn arrivals_of(&self, op: Op) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(move |arrival| arrival.op == op)
    }
}

/// The name of a node.
pub(super) fn name(node: Node) -> &'static str {
    match node {
        0 => "a",
        1 => "b",
        2 => "c",
        3 => "balancer",
        CLIENTS => "clients",
        _ => "unknown",
    }
}
