//! The simulated network: nodes, the ways between them, and what goes wrong there. Entry item:
//! [`Network`].
//!
//! It carries streams, as TCP does: a lost packet is a delay, and what is sent during a cut arrives
//! after it. Different connections overtake each other. Each connection has random numbers of its
//! own, so that its delays do not depend on the order in which others send.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

use super::pipe::{End, Item, Pipe, Reader};
use super::random::Random;
use crate::upstream::{Dial, Dialing};

/// A machine. Its address is `10.0.0.NODE+1`.
pub(super) type Node = usize;
/// Where clients run.
pub(super) const CLIENTS: Node = 9;

/// A connection that was accepted, and the address of the other end.
pub(super) type Accepted = (End, SocketAddr);

/// The network. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something changed that those who connect may wait for.
    changed: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    seed: u64,
    pipes: Vec<Pipe>,
    connections: Vec<Connection>,
    processes: Vec<Process>,
    listeners: BTreeMap<SocketAddr, (usize, mpsc::UnboundedSender<Accepted>)>,
    /// The ways on which nothing arrives.
    cut: BTreeSet<(Node, Node)>,
    /// Nodes that are off.
    off: BTreeSet<Node>,
    /// The percentage of packets that are lost, and sent again later.
    loss: u64,
}

/// A connection: its processes, and the pipe that each of them reads from.
#[derive(Debug, Clone, Copy)]
struct Connection {
    ends: [(usize, usize); 2],
}

#[derive(Debug)]
struct Process {
    node: Node,
    alive: bool,
}

/// The network as one process sees it.
#[derive(Debug, Clone)]
pub(super) struct Interface {
    network: Network,
    process: usize,
    node: Node,
}

pub(super) fn address(node: Node, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], port))
}

fn node_of(address: SocketAddr) -> Node {
    match address.ip() {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
        std::net::IpAddr::V6(_) => panic!("{address}"),
    }
}

impl Network {
    pub(super) fn new(seed: u64) -> Network {
        let state = State {
            seed,
            pipes: Vec::new(),
            connections: Vec::new(),
            processes: Vec::new(),
            listeners: BTreeMap::new(),
            cut: BTreeSet::new(),
            off: BTreeSet::new(),
            loss: 0,
        };
        Network(Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// A process starts.
    pub(super) fn process(&self, node: Node) -> Interface {
        let mut state = self.state();
        state.processes.push(Process { node, alive: true });
        let process = state.processes.len() - 1;
        Interface { network: self.clone(), process, node }
    }

    /// Nothing arrives on this way, until [`heal`](Self::heal).
    pub(super) fn cut(&self, from: Node, to: Node) {
        self.state().cut.insert((from, to));
    }

    pub(super) fn heal(&self, from: Node, to: Node) {
        self.change(|state| {
            state.cut.remove(&(from, to));
            state.pipes.iter_mut().filter(|pipe| pipe.way == (from, to)).for_each(Pipe::wake);
        });
    }

    pub(super) fn lose(&self, percent: u64) {
        self.state().loss = percent;
    }

    /// Resets all connections between two nodes.
    pub(super) fn reset(&self, one: Node, other: Node) {
        let mut state = self.state();
        for pipe in 0..state.pipes.len() {
            let (from, to) = state.pipes[pipe].way;
            if (from, to) == (one, other) || (from, to) == (other, one) {
                state.send(pipe, Item::Reset);
            }
        }
    }

    /// A node loses power, or gets it back. Its processes must be ended as well.
    pub(super) fn power(&self, node: Node, on: bool) {
        self.change(|state| {
            if !on {
                state.off.insert(node);
                return;
            }
            state.off.remove(&node);
            for pipe in state.pipes.iter_mut().filter(|pipe| pipe.way.1 == node) {
                if pipe.reader == Reader::Vanished {
                    pipe.reader = Reader::Gone;
                }
            }
        });
    }

    pub(super) fn is_off(&self, node: Node) -> bool {
        self.state().off.contains(&node)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.notify_waiters();
    }
}

impl State {
    pub(super) fn pipe(&mut self, pipe: usize) -> &mut Pipe {
        &mut self.pipes[pipe]
    }

    pub(super) fn is_cut(&self, pipe: usize) -> bool {
        self.cut.contains(&self.pipes[pipe].way)
    }

    /// Sends something behind all that is under way.
    pub(super) fn send(&mut self, pipe: usize, item: Item) {
        let loss = self.loss;
        let pipe = &mut self.pipes[pipe];
        let (from, to) = pipe.way;
        let mut at = Instant::now();
        if from != to {
            at += pipe.random.millis(1..4);
            if pipe.random.percent(loss) {
                at += pipe.random.millis(200..900);
            }
        }
        let last = pipe.queue.back().map_or(at, |(last, _)| *last);
        pipe.queue.push_back((at.max(last), item));
        pipe.wake();
    }

    pub(super) fn finish(&mut self, pipe: usize) {
        if !std::mem::replace(&mut self.pipes[pipe].finished, true) {
            self.send(pipe, Item::Fin);
        }
    }

    fn connect(&mut self, from: usize, to: usize) -> [(usize, usize); 2] {
        let nodes = [self.processes[from].node, self.processes[to].node];
        let first = self.pipes.len();
        let between = |one: &&Connection| one.ends.map(|(process, _)| process) == [from, to];
        let before = self.connections.iter().filter(between).count();
        for (number, way) in [(0, (nodes[1], nodes[0])), (1, (nodes[0], nodes[1]))] {
            let sequence = ((from * 1_000 + to) * 1_000 + before) * 2 + number;
            self.pipes.push(Pipe::new(way, Random::new(self.seed, 1 << 40 | sequence as u64)));
        }
        self.connections.push(Connection { ends: [(from, first), (to, first + 1)] });
        [(first, first + 1), (first + 1, first)]
    }
}

impl Interface {
    pub(super) fn is_alive(&self) -> bool {
        self.network.state().processes[self.process].alive
    }

    pub(super) fn listen(&self, port: u16) -> mpsc::UnboundedReceiver<Accepted> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let listener = (self.process, sender);
        self.network.change(|state| {
            state.listeners.insert(address(self.node, port), listener);
        });
        receiver
    }

    /// The process is killed, or vanishes with its node: then nobody is told.
    pub(super) fn kill(&self, vanishes: bool) {
        let mut state = self.network.state();
        state.processes[self.process].alive = false;
        state.listeners.retain(|_, (process, _)| *process != self.process);
        for Connection { ends } in state.connections.clone() {
            for (own, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
                if own.0 != self.process || state.pipe(own.1).reader != Reader::Reads {
                    continue;
                }
                if !vanishes {
                    state.send(other.1, Item::Reset);
                }
                state.pipe(other.1).finished = true;
                let incoming = state.pipe(own.1);
                incoming.reader = if vanishes { Reader::Vanished } else { Reader::Gone };
                incoming.wake();
            }
        }
    }

    pub(super) async fn connect(&self, to: SocketAddr) -> io::Result<End> {
        let node = node_of(to);
        let is_far = node != self.node;
        let trip = Random::new(self.network.state().seed, 7).millis(1..4) * u32::from(is_far);
        sleep(trip).await;
        loop {
            let changed = self.network.0.changed.notified();
            {
                let mut state = self.network.state();
                let ways = [(self.node, node), (node, self.node)];
                if !state.processes[self.process].alive {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                if !state.off.contains(&node) && !ways.iter().any(|way| state.cut.contains(way)) {
                    let Some((process, accept)) = state.listeners.get(&to).cloned() else {
                        return Err(ErrorKind::ConnectionRefused.into());
                    };
                    let [own, other] = state.connect(self.process, process);
                    let port = 20_000 + (state.connections.len() % 40_000) as u16;
                    drop(state);
                    let accepted = End::new(self.network.clone(), other.0, other.1);
                    let end = End::new(self.network.clone(), own.0, own.1);
                    if accept.send((accepted, address(self.node, port))).is_err() {
                        return Err(ErrorKind::ConnectionRefused.into());
                    }
                    return Ok(end);
                }
            }
            changed.await;
            // The first packet is sent again after a second, and so on.
            sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Dial for Interface {
    fn dial<'a>(&'a self, address: &'a str) -> Dialing<'a> {
        Box::pin(async move {
            let to = address.parse().map_err(io::Error::other)?;
            Ok(Box::new(self.connect(to).await?) as Box<_>)
        })
    }
}
