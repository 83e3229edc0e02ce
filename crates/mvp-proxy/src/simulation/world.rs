//! A whole simulation: servers, gateways, clients and faults, in paused time on one thread. Entry
//! item: [`simulate`].

use std::sync::Arc;
use std::time::Duration;

use mvp_apiserver::Storage;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::{Ask, Client, NOBODY, Register};
use super::gateway::Gateway;
use super::invariants::{Violation, check};
use super::log::{How, Log, name};
use super::membership::Board;
use super::network::{CLIENTS, Network, Node};
use super::plan::{BALANCER, Fault, NODES, Plan};
use super::random::Random;
use super::server::{Discovery, Server, Version};
use crate::missing::{self, Fix};

/// The clients that send requests at the same time.
const CLIENT_COUNT: usize = 3;
/// The registers of each group.
const NAMES: usize = 2;
/// How long clients go on after the faults, so that gateways find out.
const SETTLES_FOR: Duration = Duration::from_secs(8);
const GROUPS: [&str; 4] = ["old.example", "new.example", "shared.example", NOBODY];

/// What came of a simulation.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) plan: Plan,
    pub(super) trace: Vec<String>,
    pub(super) violations: Vec<Violation>,
    pub(super) counts: Counts,
}

/// What happened, over all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: usize,
    pub(super) answered: usize,
    pub(super) refused: usize,
    pub(super) not_found: usize,
    pub(super) broken: usize,
    pub(super) hops: usize,
}

impl Counts {
    pub(super) fn add(&mut self, other: Counts) {
        self.requests += other.requests;
        self.answered += other.answered;
        self.refused += other.refused;
        self.not_found += other.not_found;
        self.broken += other.broken;
        self.hops += other.hops;
    }
}

/// Runs the simulation of a seed, without one of the fixes if that is wanted.
pub(super) fn simulate(seed: u64, without: Option<Fix>) -> Outcome {
    let _without = missing::take_out(without);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let world = runtime.block_on(async {
        let world = Arc::new(World::new(seed));
        Arc::clone(&world).run().await;
        world
    });
    // Every task ends here, before the log is read.
    drop(runtime);
    world.outcome()
}

struct World {
    seed: u64,
    plan: Plan,
    network: Network,
    log: Log,
    servers: Vec<Server>,
    gateways: Vec<Gateway>,
}

impl World {
    fn new(seed: u64) -> World {
        let plan = Plan::of(seed);
        let (network, log, storage) = (Network::new(seed), Log::new(NODES), Storage::default());
        let bare = plan.bare();
        let board = Board::of((0..NODES).filter(|node| !bare.contains(node)));
        let server =
            |node: Node| Server::new(node, plan.versions[node], &network, &storage, &log, seed);
        let gateway = |node: Node| {
            let parts = (&network, &log, &board);
            Gateway::new(node, parts, &bare, node != BALANCER, seed)
        };
        let servers = (0..NODES).map(server).collect();
        let gateways = plan.gateways().into_iter().map(gateway).collect();
        World { seed, network, log, servers, gateways, plan }
    }

    async fn run(self: Arc<Self>) {
        if let Some((node, by)) = self.plan.slow {
            self.servers[node].mood(|mood| mood.discovery = Discovery::Slow(by));
        }
        if let Some(node) = self.plan.vague {
            self.servers[node].mood(|mood| mood.vague = true);
        }
        for server in &self.servers {
            let server = server.clone();
            tokio::spawn(async move { server.begin().await });
        }
        self.gateways.iter().for_each(Gateway::start);
        let began = Instant::now();
        let mut faults = Vec::new();
        for planned in &self.plan.faults {
            let (world, planned) = (Arc::clone(&self), *planned);
            faults.push(tokio::spawn(async move {
                sleep_until(began + planned.begins).await;
                world.suffer(planned.fault, planned.lasts).await;
            }));
        }
        let mut clients = Vec::new();
        for number in 0..CLIENT_COUNT {
            let world = Arc::clone(&self);
            clients.push(tokio::spawn(async move { world.client(number, began).await }));
        }
        for task in faults.into_iter().chain(clients) {
            task.await.unwrap();
        }
        self.all_is_answered().await;
    }

    /// A client that reads and writes until the gateways have had time to recover.
    async fn client(&self, number: usize, began: Instant) {
        let mut random = Random::new(self.seed, 100 + number as u64);
        let interface = self.network.process(CLIENTS);
        let mut client = Client::new(number, interface, self.log.clone());
        sleep_until(began + self.plan.clients_from).await;
        while began.elapsed() < self.plan.faults_until + SETTLES_FOR {
            sleep(random.millis(self.plan.pause.clone())).await;
            let gateway = random.pick(&self.plan.gateways());
            let (group, name) = (random.pick(&GROUPS), random.below(NAMES));
            let asks = [
                Ask::Read,
                Ask::Read,
                Ask::Update,
                Ask::Update,
                Ask::Create,
                Ask::Write,
                Ask::Delete,
                Ask::Discover,
            ];
            client.ask(gateway, random.pick(&asks), Register { group, name }).await;
        }
    }

    /// Once faults have stopped, every gateway answers everything.
    async fn all_is_answered(&self) {
        self.log.note("faults have stopped");
        let interface = self.network.process(CLIENTS);
        let mut client = Client::new(CLIENT_COUNT, interface, self.log.clone());
        client.calm = true;
        for gateway in self.plan.gateways() {
            for group in GROUPS {
                for ask in [Ask::Discover, Ask::Read, Ask::Create, Ask::Write] {
                    client.ask(gateway, ask, Register { group, name: 0 }).await;
                }
            }
        }
    }

    async fn suffer(&self, fault: Fault, lasts: Duration) {
        self.log.note(format_args!("{fault:?} for {lasts:?}"));
        let network = &self.network;
        match fault {
            Fault::Cut(one, other) => {
                let ways = [(one, other), (other, one)];
                ways.iter().for_each(|(from, to)| network.cut(*from, *to));
                sleep(lasts).await;
                ways.iter().for_each(|(from, to)| network.heal(*from, *to));
            }
            Fault::OneWay(from, to) => {
                network.cut(from, to);
                sleep(lasts).await;
                network.heal(from, to);
            }
            Fault::Reset(one, other) => network.reset(one, other),
            Fault::Loss(percent) => {
                network.lose(percent);
                sleep(lasts).await;
                network.lose(0);
            }
            Fault::KillServer(node, version) => {
                self.servers[node].kill(false);
                sleep(lasts).await;
                self.restart(node, version).await;
            }
            Fault::StopServer(node, version) => {
                if self.servers[node].is_running() {
                    self.servers[node].stop().await;
                    sleep(lasts).await;
                }
                self.restart(node, version).await;
            }
            Fault::KillGateway(node) => {
                let Some(gateway) = self.gateway(node) else { return };
                gateway.kill(false);
                sleep(lasts).await;
                self.restart_gateway(gateway);
            }
            Fault::PowerOff(node, version) => self.power_off(node, version, lasts).await,
            _ => self.misbehave(fault, lasts).await,
        }
    }

    async fn misbehave(&self, fault: Fault, lasts: Duration) {
        let node = match fault {
            Fault::SlowDiscovery(node, _)
            | Fault::NoDiscovery(node)
            | Fault::Lies(node)
            | Fault::Denies(node)
            | Fault::Busy(node) => node,
            _ => return,
        };
        let server = &self.servers[node];
        let before = self.plan.slow.filter(|(slow, _)| *slow == node);
        let before = before.map_or(Discovery::Prompt, |(_, by)| Discovery::Slow(by));
        let set = |wrong: bool| {
            server.mood(|mood| match fault {
                Fault::SlowDiscovery(_, by) if wrong => mood.discovery = Discovery::Slow(by),
                Fault::NoDiscovery(_) if wrong => mood.discovery = Discovery::Fails,
                Fault::SlowDiscovery(..) | Fault::NoDiscovery(_) => mood.discovery = before,
                Fault::Lies(_) => mood.lies = wrong,
                Fault::Denies(_) => mood.denies = wrong,
                _ => mood.busy = wrong,
            });
        };
        set(true);
        sleep(lasts).await;
        set(false);
    }

    async fn power_off(&self, node: Node, version: Version, lasts: Duration) {
        self.network.power(node, false);
        self.servers[node].kill(true);
        let gateway = self.gateway(node);
        gateway.inspect(|gateway| gateway.kill(true));
        sleep(lasts).await;
        self.network.power(node, true);
        gateway.inspect(|gateway| self.restart_gateway(gateway));
        self.restart(node, version).await;
    }

    /// Starts a server, unless another fault has done so, or its node is off.
    async fn restart(&self, node: Node, version: Version) {
        if !self.servers[node].is_running() && !self.network.is_off(node) {
            self.servers[node].start(version).await;
        }
    }

    fn restart_gateway(&self, gateway: &Gateway) {
        if !gateway.is_running() && !self.network.is_off(gateway.node()) {
            gateway.start();
        }
    }

    fn gateway(&self, node: Node) -> Option<&Gateway> {
        self.gateways.iter().find(|gateway| gateway.node() == node)
    }

    fn outcome(&self) -> Outcome {
        let entries = self.log.entries();
        let violations = check(&entries);
        let count =
            |which: fn(How) -> bool| entries.ended.iter().filter(|ended| which(ended.how)).count();
        let counts = Counts {
            requests: entries.ended.len(),
            answered: count(|how| matches!(how, How::Status(200..=299 | 409) | How::NoObject)),
            refused: count(|how| matches!(how, How::Status(503))),
            not_found: count(|how| matches!(how, How::Status(404))),
            broken: count(|how| matches!(how, How::Broken)),
            hops: entries.hops(),
        };
        drop(entries);
        let trace = self.log.trace();
        Outcome { plan: self.plan.clone(), trace, violations, counts }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { versions, slow, vague, .. } = &self.plan;
        writeln!(
            f,
            "servers: {versions:?}, gateways: {:?}",
            self.plan.gateways().iter().map(|node| name(*node)).collect::<Vec<_>>()
        )?;
        writeln!(f, "slow: {slow:?}, vague: {vague:?}")?;
        self.trace.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}
