//! The search: every world that can be reached, breadth first, so that a counterexample is as short
//! as possible. Entry item: [`search`].

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::cluster::{IDS, Life, named};
use super::control::{STEP, first_world};
use super::invariants::{Invariant, Violation};
use super::key::{control_key, key};
use super::outcome::Came;
use super::request::Phase;
use super::rules::Rules;
use super::world::{Setup, Slot, Step, World};
use crate::control::model::Event;

/// What a complete search went through.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Explored {
    pub(super) states: usize,
    pub(super) steps: usize,
    pub(super) depth: usize,
    /// The states from which faults stopped.
    pub(super) healed: usize,
}

/// How an invariant is broken, step by step.
pub(super) struct Counterexample {
    pub(super) violation: Violation,
    setup: Arc<Setup>,
    trace: Vec<String>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "world {:?}: versions {:?}", self.setup.name, self.setup.versions)?;
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        writeln!(f, "broken: {}", self.violation)
    }
}

/// A state that was reached, and how.
struct Node {
    parent: usize,
    step: Option<Step>,
    depth: usize,
}

/// Searches everything that can happen in a world.
pub(super) fn search(setup: &Arc<Setup>, rules: Rules) -> Result<Explored, Box<Counterexample>> {
    let first = first_world(setup, rules);
    let mut seen = HashSet::from([key(&first)]);
    let mut healed = HashSet::new();
    let mut nodes = vec![Node { parent: 0, step: None, depth: 0 }];
    let mut next = VecDeque::from([(0, first)]);
    let mut explored = Explored::default();
    while let Some((at, world)) = next.pop_front() {
        let fail = |nodes: &[Node], step: Option<Step>, violation| {
            counterexample(setup, rules, nodes, at, step, violation)
        };
        // A missing rule is found where it matters, and not by what follows.
        let heals = setup.mute.is_none() && rules.without.is_none();
        if heals && healed.insert(control_key(&world)) {
            heal(&world).map_err(|violation| fail(&nodes, None, violation))?;
        }
        // Requests change nothing that others depend on: what follows the last one is searched without.
        if !world.slots.is_empty() && world.slots.iter().all(|slot| matches!(slot, Slot::Gone)) {
            continue;
        }
        let steps = world.steps().map_err(|violation| fail(&nodes, None, violation))?;
        for step in steps {
            let reached =
                world.apply(step, None).map_err(|violation| fail(&nodes, Some(step), violation))?;
            explored.steps += 1;
            if seen.insert(key(&reached)) {
                let depth = nodes[at].depth + 1;
                explored.depth = explored.depth.max(depth);
                next.push_back((nodes.len(), reached));
                nodes.push(Node { parent: at, step: Some(step), depth });
            }
        }
    }
    // Times are compared as if steps took no time.
    assert!(STEP * u32::try_from(explored.depth).unwrap() < std::time::Duration::from_secs(5));
    Ok(Explored { states: nodes.len(), healed: healed.len(), ..explored })
}

/// Goes the way to a violation again, and notes what happens.
fn counterexample(
    setup: &Arc<Setup>,
    rules: Rules,
    nodes: &[Node],
    mut at: usize,
    last: Option<Step>,
    violation: Violation,
) -> Box<Counterexample> {
    let mut steps: Vec<Step> = last.into_iter().collect();
    while let Some(step) = nodes[at].step {
        steps.push(step);
        at = nodes[at].parent;
    }
    let mut world = first_world(setup, rules);
    let mut trace = Vec::new();
    for step in steps.into_iter().rev() {
        let notes = RefCell::new(Vec::new());
        let reached = world.apply(step, Some(&notes));
        trace.push(described(setup, step));
        trace.extend(notes.into_inner().into_iter().map(|note| format!("    the gateway {note}")));
        match reached {
            Ok(reached) => world = reached,
            Err(_) => break,
        }
    }
    Box::new(Counterexample { violation, setup: Arc::clone(setup), trace })
}

/// A step in words.
fn described(setup: &Setup, step: Step) -> String {
    let id = |member: usize| IDS[member];
    match step {
        Step::Tick => "the gateway starts the fetches that are due".to_owned(),
        Step::Fetched(member, version) => format!("{} answers a fetch as {version:?}", id(member)),
        Step::FetchLost(member) => format!("a fetch from {} is lost", id(member)),
        Step::Change(member) => format!("{} changes its version", id(member)),
        Step::Crash(member) => format!("{} crashes", id(member)),
        Step::Start(member, version) => format!("{} starts as {version:?}", id(member)),
        Step::Ready => "a is ready".to_owned(),
        Step::Unlist(member) => format!("the sources no longer name {}", id(member)),
        Step::Complete => "the sources name all members".to_owned(),
        Step::Probe => "the gateway probes a".to_owned(),
        Step::Pass(seconds) => format!("{seconds} s pass"),
        Step::Arrive(slot) => format!("{:?} arrives", setup.asks[slot]),
        Step::Send(slot, member) => format!("{:?} is sent to {}", setup.asks[slot], id(member)),
        Step::Came(slot, came) => format!("{:?} comes back: {came:?}", setup.asks[slot]),
        Step::WaitOver(slot) => format!("{:?} has waited long enough", setup.asks[slot]),
    }
}

/// Once faults stop, everything is answered: all servers are up and answer.
fn heal(world: &World) -> Result<(), Violation> {
    let mut world = world.clone();
    (0..IDS.len()).for_each(|member| world.end_fetch(member, None));
    for server in &mut world.servers {
        (server.life, server.named) = (Life::Up(server.life.version()), true);
    }
    (world.complete, world.slots) = (true, Vec::new());
    world.health = mvp_core::decide::LocalHealth::Ready;
    round(&mut world)?;
    for ask in ["read new", "write new", "read old", "write shared"].map(named) {
        world.slots = vec![Slot::Awaited];
        world.now = world.now.after(STEP);
        world.arrive(0, ask, None)?;
        for _ in 0..20 {
            let Slot::Here(request) = &world.slots[0] else { break };
            match request.phase {
                Phase::Choosing { sending, .. } => {
                    let to = sending.left.iter().next().expect("a member");
                    world = world.apply(Step::Send(0, to), None)?;
                }
                Phase::Sent { to, seen, .. } => {
                    let came = world.comes_of(ask, to, seen, false)?;
                    let reply = came.iter().find(|came| matches!(came, Came::Reply(_)));
                    let reply = *reply.unwrap_or(&came[0]);
                    world = world.apply(Step::Came(0, reply), None)?;
                }
                _ => round(&mut world)?,
            }
        }
        let expected = if world.serving(ask).is_empty() { 404 } else { 200 };
        let status = world.last.take().map(|end| end.status);
        if status != Some(expected) {
            let text = format!("{:?} ends with {status:?} instead of {expected}", ask.name);
            return Err(Invariant::Answered.broken(text));
        }
    }
    Ok(())
}

/// All members answer a fetch.
fn round(world: &mut World) -> Result<(), Violation> {
    world.now = world.now.after(STEP);
    world.publish(None)?;
    world.step_roster(Event::RefreshWanted);
    world.step_roster(Event::Tick);
    for member in 0..IDS.len() {
        world.end_fetch(member, Some(world.servers[member].life.version()));
    }
    world.publish(None)
}
