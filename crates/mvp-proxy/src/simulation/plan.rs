//! What a seed decides: the cluster, and what goes wrong when. Entry item: [`Plan::of`].

use std::ops::Range;
use std::time::Duration;

use super::network::{CLIENTS, Node};
use super::random::Random;
use super::server::Version;

/// The nodes with an API server.
pub(super) const NODES: usize = 3;
/// The node of the load balancer.
pub(super) const BALANCER: Node = 3;
/// All faults end before this time.
const FAULTS_UNTIL: Duration = Duration::from_secs(8);
/// A gateway answers for discovery after this time, whether it knows anything or not.
const START: Duration = Duration::from_secs(30);

/// The world of a seed.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) versions: [Version; NODES],
    /// Whether the last node has no gateway.
    pub(super) has_bare: bool,
    pub(super) has_balancer: bool,
    pub(super) faults: Vec<Planned>,
    /// The server whose discovery is slow all the time, and how slow.
    pub(super) slow: Option<(Node, Duration)>,
    /// The server whose 404s for what it does not serve prove nothing.
    pub(super) vague: Option<Node>,
    /// Whether no server tells what it serves, until the gateways no longer wait for it.
    pub(super) blind: bool,
    pub(super) faults_until: Duration,
    /// When clients begin.
    pub(super) clients_from: Duration,
    /// The milliseconds between two requests of a client.
    pub(super) pause: Range<u64>,
}

/// A fault, and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) fault: Fault,
    pub(super) begins: Duration,
    pub(super) lasts: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing arrives between two nodes.
    Cut(Node, Node),
    /// Nothing arrives on one way between two nodes.
    OneWay(Node, Node),
    /// All connections between two nodes are reset.
    Reset(Node, Node),
    /// This percentage of all packets comes late.
    Loss(u64),
    /// A server's process is killed, and starts again as this version.
    KillServer(Node, Version),
    /// A server shuts down, and starts again as this version.
    StopServer(Node, Version),
    KillGateway(Node),
    /// A node loses power. Nobody is told, so connections to it stay half open.
    PowerOff(Node, Version),
    SlowDiscovery(Node, Duration),
    NoDiscovery(Node),
    /// A server's discovery is that of the other version.
    Lies(Node),
    /// A server answers 404 for what it serves.
    Denies(Node),
    /// A server answers 503.
    Busy(Node),
}

impl Plan {
    pub(super) fn of(seed: u64) -> Plan {
        let mut random = Random::new(seed, 1);
        let version = |random: &mut Random| random.pick(&[Version::Old, Version::New]);
        let versions = [version(&mut random), version(&mut random), version(&mut random)];
        let from_the_start = random.percent(30);
        let first = if from_the_start { 0 } else { 1_500 };
        let faults = 1 + random.below(5);
        let faults = (0..faults).map(|_| {
            let begins = random.millis(first..6_000);
            let most = (FAULTS_UNTIL - begins).as_millis() as u64;
            let lasts = random.millis(200..most.min(4_000));
            Planned { fault: Fault::any(&mut random), begins, lasts }
        });
        let faults = faults.collect();
        let slow = random.percent(25).then(|| (random.below(NODES), random.millis(1_100..2_500)));
        let vague = random.percent(25).then(|| random.below(NODES));
        let clients_from = Duration::from_millis(if from_the_start { 50 } else { 1_500 });
        let (has_bare, has_balancer) = (random.percent(30), random.percent(20));
        let faults_until = FAULTS_UNTIL;
        let plan = Plan {
            versions,
            has_bare,
            has_balancer,
            faults,
            slow,
            vague,
            blind: random.percent(3),
            faults_until,
            clients_from,
            pause: 20..300,
        };
        match plan.blind {
            true => plan.blinded(),
            false if random.percent(2) => plan.long(&mut random),
            false => plan,
        }
    }

    /// One more node is without power, for longer than gateways wait for a silent member.
    fn long(mut self, random: &mut Random) -> Plan {
        let version = random.pick(&[Version::Old, Version::New]);
        let (begins, lasts) = (random.millis(1_000..5_000), random.millis(42_000..70_000));
        let fault = Fault::PowerOff(random.below(NODES), version);
        self.faults.push(Planned { fault, begins, lasts });
        Plan { faults_until: begins + lasts + Duration::from_secs(3), pause: 200..1_500, ..self }
    }

    fn blinded(self) -> Plan {
        let blind = |node| Planned {
            fault: Fault::NoDiscovery(node),
            begins: Duration::ZERO,
            lasts: START + Duration::from_secs(4),
        };
        Plan {
            faults: (0..NODES).map(blind).collect(),
            faults_until: START + Duration::from_secs(5),
            clients_from: START,
            ..self
        }
    }

    /// The nodes with a gateway.
    pub(super) fn gateways(&self) -> Vec<Node> {
        let beside = if self.has_bare { NODES - 1 } else { NODES };
        (0..beside).chain(self.has_balancer.then_some(BALANCER)).collect()
    }

    /// The nodes whose server has no gateway.
    pub(super) fn bare(&self) -> Vec<Node> {
        if self.has_bare { vec![NODES - 1] } else { Vec::new() }
    }
}

impl Fault {
    fn any(random: &mut Random) -> Fault {
        let node = random.below(NODES);
        let other = (node + 1 + random.below(NODES - 1)) % NODES;
        let version = random.pick(&[Version::Old, Version::New]);
        match random.below(15) {
            0 | 1 => Fault::Cut(node, other),
            2 => Fault::OneWay(node, other),
            3 => Fault::Reset(node, random.pick(&[other, CLIENTS])),
            4 => Fault::Loss(5 + random.below(30) as u64),
            5 | 6 => Fault::KillServer(node, version),
            7 | 8 => Fault::StopServer(node, version),
            9 => Fault::KillGateway(node),
            10 => Fault::PowerOff(node, version),
            11 => Fault::SlowDiscovery(node, random.millis(300..4_000)),
            12 => Fault::NoDiscovery(node),
            13 => Fault::Lies(node),
            _ => random.pick(&[Fault::Denies(node), Fault::Busy(node)]),
        }
    }
}
