//! What clients saw of shared objects, and whether a single server could have shown it. Pure: no
//! I/O and no clock, so real servers (`e2e`) and simulations use the same checks.
//!
//! [`Recorder`] collects the operations, [`linear`] judges the history of one object, and
//! [`watched`] judges what watches delivered. Entry item: [`Recorder`].

pub mod linear;
pub mod watched;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use linear::{Operation, Verdict};

/// A value that a client wrote. No two writes of a history have the same.
pub type Value = u64;

/// The value of an object; none if it does not exist.
pub type State = Option<Value>;

/// A moment of a history. Events of the same time, as in paused time, are in the order in which
/// they were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The time since the start of the history.
    pub at: Duration,
    /// The number of events recorded before.
    pub event: u64,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s", self.at.as_secs_f64())
    }
}

/// The operations on each object, by its name.
///
/// ```
/// use std::time::Duration;
/// use testkit::history::Recorder;
/// use testkit::history::linear::{Action, Operation, Reply};
///
/// let mut recorder = Recorder::default();
/// let called = recorder.moment(Duration::from_millis(3));
/// let returned = recorder.moment(Duration::from_millis(5));
/// let (action, reply) = (Action::Create(1), Reply::Done);
/// recorder.add("x", Operation { client: 0, action, reply, called, returned });
/// assert_eq!(recorder.check().expect("one write").operations, 1);
/// ```
#[derive(Debug, Clone)]
pub struct Recorder<K> {
    events: u64,
    objects: BTreeMap<K, Vec<Operation>>,
}

impl<K> Default for Recorder<K> {
    fn default() -> Recorder<K> {
        Recorder { events: 0, objects: BTreeMap::new() }
    }
}

/// The extent of a check that found nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Objects with at least one operation.
    pub objects: usize,
    /// Operations on all of them.
    pub operations: usize,
    /// Operations of which nobody can tell whether they happened.
    pub unclear: usize,
    /// Configurations that the searches visited.
    pub visited: usize,
}

impl<K: Ord + fmt::Debug> Recorder<K> {
    /// Records that something happens now: a request is about to be sent, or a response has come.
    pub fn moment(&mut self, at: Duration) -> Moment {
        self.events += 1;
        Moment { at, event: self.events }
    }

    /// Adds an operation that has ended. What certainly did not happen is no operation.
    pub fn add(&mut self, object: K, operation: Operation) {
        self.objects.entry(object).or_default().push(operation);
    }

    /// The operations on each object, in the order in which they ended.
    pub fn objects(&self) -> impl Iterator<Item = (&K, &[Operation])> {
        self.objects.iter().map(|(object, operations)| (object, operations.as_slice()))
    }

    /// Checks each object, none of which existed at first. Fails with the first object whose
    /// history is not linearizable.
    pub fn check(&self) -> Result<Checked, Fault> {
        let mut checked = Checked::default();
        for (object, operations) in &self.objects {
            let visited = linear::check(operations)
                .map_err(|verdict| Fault { object: format!("{object:?}"), verdict })?;
            checked.objects += 1;
            checked.operations += operations.len();
            checked.unclear += operations.iter().filter(|one| !one.is_clear()).count();
            checked.visited += visited;
        }
        Ok(checked)
    }
}

/// An object whose history is not linearizable.
#[derive(Debug)]
pub struct Fault {
    /// The name of the object.
    pub object: String,
    /// What was found.
    pub verdict: Verdict,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.verdict)
    }
}

impl std::error::Error for Fault {}
