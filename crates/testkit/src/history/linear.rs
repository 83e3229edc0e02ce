//! Whether the history of one object is linearizable: whether each operation can have happened at
//! one moment between its request and its response, so that all responses are right. Entry item:
//! [`check`].
//!
//! The search is that of Wing and Gong with Lowe's memory: it takes any operation that can be next,
//! and never continues twice from the same operations with the same state. An operation whose
//! outcome nobody knows may be taken at any time after its request, or never. So the search does not
//! go on where it was with the same clear operations, the same state and a subset of the unclear
//! ones: whatever can follow the one can follow the other. Without this, each unclear operation
//! could double the search.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;

use super::{Moment, State, Value};

/// The request of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A quorum read.
    Read,
    /// A create, which an object of this name refuses.
    Create(Value),
    /// A write on condition that the object still has the value `from`.
    Update {
        /// The value that the client saw before.
        from: Value,
        /// The new one.
        to: Value,
    },
    /// A write of an existing object without a condition.
    Write(Value),
    /// A delete without a condition.
    Delete,
    /// A delete on condition that the object still has this value.
    DeleteIf(Value),
}

/// The response of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// What a read saw.
    Saw(State),
    /// The write happened.
    Done,
    /// 409: the object exists already, or has another value.
    Conflict,
    /// 404.
    Missing,
    /// It may have happened, may happen later, or never.
    Unclear,
}

/// An operation and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The client, for messages.
    pub client: usize,
    /// The request.
    pub action: Action,
    /// The response.
    pub reply: Reply,
    /// Before the request was sent.
    pub called: Moment,
    /// After the response arrived, or the client gave up.
    pub returned: Moment,
}

impl Operation {
    /// Whether its outcome is known.
    pub fn is_clear(&self) -> bool {
        self.reply != Reply::Unclear
    }

    /// The state after this operation; none if its response would be wrong. An unclear one that
    /// would change nothing counts as wrong: nothing is gained by taking it.
    fn apply(&self, state: State) -> Option<State> {
        let right = match (self.action, self.reply) {
            (Action::Read, Reply::Saw(saw)) => saw == state,
            (Action::Create(_), Reply::Done | Reply::Unclear) => state.is_none(),
            (Action::Create(_), Reply::Conflict) => state.is_some(),
            (Action::Write(_) | Action::Delete, Reply::Done | Reply::Unclear) => state.is_some(),
            (Action::Update { from, .. } | Action::DeleteIf(from), reply) => match reply {
                Reply::Done | Reply::Unclear => state == Some(from),
                Reply::Conflict => state.is_some_and(|value| value != from),
                Reply::Missing => state.is_none(),
                Reply::Saw(_) => false,
            },
            (Action::Write(_) | Action::Delete, Reply::Missing) => state.is_none(),
            _ => false,
        };
        let after = match (self.reply, self.action) {
            (Reply::Done | Reply::Unclear, Action::Create(value) | Action::Write(value)) => {
                Some(value)
            }
            (Reply::Done | Reply::Unclear, Action::Update { to, .. }) => Some(to),
            (Reply::Done | Reply::Unclear, Action::Delete | Action::DeleteIf(_)) => None,
            _ => state,
        };
        right.then_some(after)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { client, action, reply, called, returned } = self;
        write!(f, "[{client}: {action:?} → {reply:?}, {called}–{returned}]")
    }
}

/// The most configurations that a search visits.
pub const MOST: usize = 500_000;

/// Why a history is not known to be linearizable.
#[derive(Debug)]
pub enum Verdict {
    /// No order explains the history.
    Broken {
        /// How many clear operations the longest order that was found explains.
        explained: usize,
        /// The state after it.
        state: State,
        /// The operations that could be next, each of which contradicts that state.
        next: Vec<Operation>,
        /// The last operations of that order.
        last: Vec<Operation>,
    },
    /// The search was given up after [`MOST`] configurations.
    Undecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Broken { explained, state, next, last } => {
                write!(f, "no order explains it: after {explained} operations the object is ")?;
                match state {
                    Some(value) => write!(f, "{value}")?,
                    None => f.write_str("absent")?,
                }
                f.write_str(", which contradicts each that could be next:")?;
                next.iter().take(8).try_for_each(|operation| write!(f, " {operation}"))?;
                f.write_str("; the last before:")?;
                last.iter().try_for_each(|operation| write!(f, " {operation}"))
            }
            Verdict::Undecided => write!(f, "undecided after {MOST} configurations"),
        }
    }
}

/// Searches for an order that explains the history of an object that did not exist at first.
/// Returns the number of visited configurations.
pub fn check(history: &[Operation]) -> Result<usize, Verdict> {
    let mut operations = history.to_vec();
    operations.sort_by_key(|operation| operation.called);
    let (clear, unclear) = operations.into_iter().partition(Operation::is_clear);
    let visited = HashMap::new();
    Search { clear, unclear, steps: Vec::new(), open: BinaryHeap::new(), visited }.run()
}

/// What an order has taken so far, and the state after it.
#[derive(Debug, Clone, Default)]
struct Configuration {
    clear: Taken,
    /// A bit for each unclear operation.
    unclear: Vec<u64>,
    state: State,
}

/// The clear operations that are taken: all before `all`, and these after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Taken {
    all: usize,
    also: Vec<usize>,
}

impl Taken {
    fn count(&self) -> usize {
        self.all + self.also.len()
    }

    fn has(&self, index: usize) -> bool {
        index < self.all || self.also.binary_search(&index).is_ok()
    }

    fn take(&mut self, index: usize) {
        if let Err(place) = self.also.binary_search(&index) {
            self.also.insert(place, index);
        }
        let in_a_row = self.also.iter().zip(self.all..).take_while(|(one, next)| *one == next);
        let in_a_row = in_a_row.count();
        self.also.drain(..in_a_row);
        self.all += in_a_row;
    }
}

#[derive(Debug, Clone, Copy)]
enum Choice {
    Clear(usize),
    Unclear(usize),
}

/// The last step of an order.
struct Step {
    here: Configuration,
    /// The operation that led here, and the step before it.
    by: Option<(Operation, usize)>,
}

/// The order of the search: many clear operations first, then few unclear ones, then the latest step.
type Rank = (usize, Reverse<usize>, usize);

struct Search {
    /// By the time of their requests.
    clear: Vec<Operation>,
    unclear: Vec<Operation>,
    steps: Vec<Step>,
    /// The steps from which the search has not gone on, the best first. The last of a rank is the
    /// index of the step.
    open: BinaryHeap<Rank>,
    /// The sets of unclear operations with which the search was there.
    visited: HashMap<(Taken, State), Vec<Vec<u64>>>,
}

impl Search {
    fn run(mut self) -> Result<usize, Verdict> {
        let start = Configuration {
            unclear: vec![0; self.unclear.len().div_ceil(64)],
            ..Configuration::default()
        };
        self.add(start, None);
        let (mut best, mut visited) = ((0, 0), 0);
        while let Some((count, _, index)) = self.open.pop() {
            let Some(here) = self.steps.get(index).map(|step| step.here.clone()) else { break };
            if !self.is_new(&here) {
                continue;
            }
            if count == self.clear.len() {
                return Ok(visited);
            }
            best = best.max((count, index));
            visited += 1;
            if visited > MOST {
                return Err(Verdict::Undecided);
            }
            for choice in self.choices(&here) {
                if let Some((by, next)) = self.after(&here, choice) {
                    self.add(next, Some((by, index)));
                }
            }
        }
        Err(self.broken(best))
    }

    fn add(&mut self, here: Configuration, by: Option<(Operation, usize)>) {
        let unclear = here.unclear.iter().map(|word| word.count_ones() as usize).sum();
        self.open.push((here.clear.count(), Reverse(unclear), self.steps.len()));
        self.steps.push(Step { here, by });
    }

    /// Whether the search was not there yet with these unclear operations or fewer. Notes it.
    fn is_new(&mut self, here: &Configuration) -> bool {
        let place = self.visited.entry((here.clear.clone(), here.state)).or_default();
        let is_within = |fewer: &Vec<u64>| {
            fewer.iter().zip(&here.unclear).all(|(fewer, these)| fewer & !these == 0)
        };
        let is_new = !place.iter().any(is_within);
        if is_new {
            place.push(here.unclear.clone());
        }
        is_new
    }

    /// The operation of a choice and the configuration after it; none if it contradicts the state.
    fn after(&self, here: &Configuration, choice: Choice) -> Option<(Operation, Configuration)> {
        let by = match choice {
            Choice::Clear(index) => self.clear.get(index),
            Choice::Unclear(index) => self.unclear.get(index),
        }?;
        let state = by.apply(here.state)?;
        let mut next = Configuration { state, ..here.clone() };
        match choice {
            Choice::Clear(index) => next.clear.take(index),
            Choice::Unclear(index) => *next.unclear.get_mut(index / 64)? |= 1 << (index % 64),
        }
        Some((*by, next))
    }

    /// The operations that can be next: those that began before any clear one that is left had
    /// ended. The clear one that ended first is the last. Of unclear deletes, the first stands for
    /// all: they have the same effect at any time.
    fn choices(&self, here: &Configuration) -> Vec<Choice> {
        let mut clear = Vec::new();
        let mut earliest_end: Option<Moment> = None;
        for (index, operation) in self.clear.iter().enumerate().skip(here.clear.all) {
            if here.clear.has(index) {
                continue;
            }
            if earliest_end.is_some_and(|end| operation.called > end) {
                break;
            }
            let end = earliest_end.map_or(operation.returned, |end| end.min(operation.returned));
            earliest_end = Some(end);
            clear.push((Reverse(operation.returned), index));
        }
        clear.sort_unstable();
        let (mut choices, mut has_delete) = (Vec::new(), false);
        for (index, operation) in self.unclear.iter().enumerate() {
            let taken =
                here.unclear.get(index / 64).is_none_or(|word| word >> (index % 64) & 1 == 1);
            if earliest_end.is_none_or(|end| operation.called > end) {
                break;
            }
            let is_delete = operation.action == Action::Delete;
            if !taken && !(is_delete && has_delete) {
                choices.push(Choice::Unclear(index));
                has_delete |= is_delete;
            }
        }
        choices.extend(clear.into_iter().map(|(_, index)| Choice::Clear(index)));
        choices
    }

    /// What contradicts the longest order.
    fn broken(&self, (explained, mut index): (usize, usize)) -> Verdict {
        let here = self.steps.get(index).map(|step| step.here.clone()).unwrap_or_default();
        let is_next = |choice: &Choice| match choice {
            Choice::Clear(index) => self.clear.get(*index).copied(),
            Choice::Unclear(_) => None,
        };
        let next = self.choices(&here).iter().rev().filter_map(is_next).collect();
        let mut last = Vec::new();
        while let Some((by, before)) = self.steps.get(index).and_then(|step| step.by) {
            last.push(by);
            index = before;
            if last.len() == 6 {
                break;
            }
        }
        last.reverse();
        Verdict::Broken { explained, state: here.state, next, last }
    }
}

#[cfg(test)]
mod tests;
