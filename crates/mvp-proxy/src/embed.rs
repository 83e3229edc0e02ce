//! All of it in one piece, for authors of API servers: a layer, and the control loop behind it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::control::{self, Clock, ControlSettings, Membership, SnapshotReader, channel};
use crate::gateway::Instance;
use crate::layer::MixedVersionLayer;
use crate::local::LocalSlot;
use crate::metrics::Metrics;
use crate::peers::{Health, Peers, Reachable};
use crate::upstream::{Forwarder, OutboundTls};

/// An API server that is to become a member.
#[derive(Debug)]
pub struct Embed<M> {
    /// Where the other members come from.
    pub membership: M,
    /// Whom it trusts as peers, and the certificate by which they trust it.
    pub outbound: OutboundTls,
    /// Its ID, and how often and how long what is done.
    pub settings: ControlSettings,
    /// Whether requests that it answers itself are logged too.
    pub log_local: bool,
}

/// What a member is made of.
#[derive(Debug)]
pub struct Embedded {
    /// Goes before the API server.
    pub layer: MixedVersionLayer,
    /// What the cluster is and serves.
    pub reader: SnapshotReader,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl<M: Membership> Embed<M> {
    /// A member of that ID.
    pub fn new(id: &str, membership: M, outbound: OutboundTls) -> Embed<M> {
        let settings = ControlSettings { local: Some(id.into()), ..ControlSettings::default() };
        Embed { membership, outbound, settings, log_local: false }
    }

    /// Starts the control loop on the current runtime. It asks the API server as soon as the layer
    /// is put before it.
    pub fn start(self, stop: CancellationToken) -> Embedded {
        let Embed { membership, outbound, mut settings, log_local } = self;
        let id = settings.local.as_deref().unwrap_or_default();
        // An ID that cannot be told is not: then nobody knows us by it.
        settings.instance = settings.instance.or_else(|| Instance::new(id).ok());
        let clock = Clock::start();
        let (writer, reader) = channel(clock, control::first_snapshot(&settings, clock));
        let metrics = Arc::new(Metrics::new(log_local));
        let slot = LocalSlot::default();
        let forwarder = Forwarder::new(outbound.clone(), outbound).with_metrics(&metrics);
        let forwarder = Arc::new(forwarder);
        let health = Health::new(clock, Arc::clone(&metrics));
        let peers = Peers::new(Arc::clone(&forwarder), health.clone(), Arc::clone(&metrics));
        let layer =
            MixedVersionLayer::new(reader.clone(), Some(peers), slot.clone(), Arc::clone(&metrics));
        let layer = match &settings.instance {
            Some(instance) => layer.with_instance(instance),
            None => layer,
        };
        let local = settings.local.clone().map(|id| (id, slot));
        let reach = Reachable { local, peers: Some((forwarder, health)) };
        tokio::spawn(control::run(membership, reach, settings, writer, Arc::clone(&metrics), stop));
        Embedded { layer, reader, metrics }
    }
}
