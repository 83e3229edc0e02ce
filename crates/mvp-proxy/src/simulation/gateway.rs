//! A whole gateway of a simulation, assembled as `mvp serve` does. Entry item: [`Gateway`].

use std::sync::{Arc, Mutex};

use http::Request;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower_layer::Layer;

use super::log::{Log, Place, name};
use super::membership::{Board, Leases};
use super::network::{Interface, Network, Node, address};
use super::random::Random;
use super::serve::{pki, serve};
use super::server::{self, op_of, sender};
use crate::member::Member;
use crate::upstream::Dial;

/// The port of gateways.
pub(super) const PORT: u16 = 7443;

/// The gateway of a node. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Gateway(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    node: Node,
    network: Network,
    log: Log,
    board: Board,
    /// Servers without a gateway.
    bare: Vec<Node>,
    /// Whether there is a server on the same node. Else it is a load balancer.
    beside: bool,
    seed: u64,
    running: Mutex<Option<Running>>,
}

/// One run of its process.
#[derive(Debug)]
struct Running {
    interface: Interface,
    stop: CancellationToken,
    accepting: AbortHandle,
}

impl Gateway {
    pub(super) fn new(
        node: Node,
        (network, log, board): (&Network, &Log, &Board),
        bare: &[Node],
        beside: bool,
        seed: u64,
    ) -> Gateway {
        let (network, log, board) = (network.clone(), log.clone(), board.clone());
        let (bare, running) = (bare.to_vec(), Mutex::default());
        Gateway(Arc::new(Shared { node, network, log, board, bare, beside, seed, running }))
    }

    pub(super) fn node(&self) -> Node {
        self.0.node
    }

    pub(super) fn start(&self) {
        let Shared { node, network, log, board, bare, beside, seed, running } = &*self.0;
        let (node, stop) = (*node, CancellationToken::new());
        let interface = network.process(node);
        let member = Member::builder(name(node), pki().outbound.clone());
        let member = match beside {
            true => member.server_at(&address(node, server::PORT).to_string()),
            false => member.without_server(),
        };
        let member = member.over(Arc::new(interface.clone()) as Arc<dyn Dial>).build();
        let (sender_of_heard, heard) = watch::channel(None);
        // A load balancer reads Leases through any server.
        let (through, clock) = (if *beside { node } else { 0 }, member.reader().clock());
        let reading = board.clone().read(node, through, log.clone(), clock, sender_of_heard);
        tokio::spawn(stop.clone().run_until_cancelled_owned(reading));
        if *beside {
            let keeping = board.clone().keep(node, log.clone(), Random::new(*seed, node as u64));
            tokio::spawn(stop.clone().run_until_cancelled_owned(keeping));
        }
        let worker = member.start(Leases { heard, bare: bare.clone() }, stop.clone());
        let service = member.authenticate().layer(worker.gateway());
        let arrivals = log.clone();
        let service = service.map_request(move |request: Request<Incoming>| {
            let op = op_of(request.headers());
            arrivals.arrived(op, sender(&request), node, Place::Gateway);
            request
        });
        let accepting = serve(&interface, PORT, service);
        *running.lock().unwrap() = Some(Running { interface, stop, accepting });
        log.note(format_args!("{}: gateway starts", name(node)));
    }

    /// Kills it. If it vanishes, nobody is told.
    pub(super) fn kill(&self, vanishes: bool) {
        let running = self.0.running.lock().unwrap().take();
        if let Some(Running { interface, stop, accepting }) = running {
            self.0.log.note(format_args!("{}: gateway is gone", name(self.0.node)));
            stop.cancel();
            interface.kill(vanishes);
            accepting.abort();
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.0.running.lock().unwrap().is_some()
    }
}
