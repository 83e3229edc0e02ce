//! Who is a member: the first step of the control loop.

use std::sync::Arc;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use tokio::sync::watch;

/// A source of members.
pub trait Membership: Send + 'static {
    /// The members as they are now, the local server not among them.
    fn members(&self) -> Vec<MemberRecord>;

    /// Whether these are all: a source that was not read yet may know more.
    fn complete(&self) -> bool {
        true
    }

    /// Ends when the members changed.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// Somebody answered at an address.
    fn answered(&mut self, _address: &Arc<str>, _who: &Who) {}
}

/// Who answered at an address, over a connection that proved it to be one of the cluster's. Where it
/// is, others may say; who it is, only itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// This process itself, by whatever way.
    Ourselves,
    /// A gateway, or a server with the layer inside.
    Gateway {
        /// The ID of its server.
        id: Arc<str>,
        /// Tells its process from all others.
        instance: Arc<str>,
    },
    /// A server with nothing before it, which does not say who it is.
    Server,
}

/// What a source knows of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRecord {
    /// Its ID.
    pub id: Arc<str>,
    /// `HOST:PORT`, where known.
    pub address: Option<Arc<str>>,
    /// What answers there.
    pub kind: MemberKind,
    /// Its last sign of life, where the source has one; else our own last contact counts.
    pub heard: Option<Timestamp>,
}

impl MemberRecord {
    /// A gateway, or a server with the layer inside, at this address (`HOST:PORT`).
    pub fn gateway(id: &str, address: &str) -> MemberRecord {
        let (id, address) = (id.into(), Some(address.into()));
        MemberRecord { id, address, kind: MemberKind::Mvp, heard: None }
    }
}

/// Members that somebody wrote down.
#[derive(Debug, Clone, Default)]
pub struct StaticMembership(Vec<MemberRecord>);

impl StaticMembership {
    /// These members, for good.
    pub fn new(members: Vec<MemberRecord>) -> StaticMembership {
        StaticMembership(members)
    }
}

impl Membership for StaticMembership {
    fn members(&self) -> Vec<MemberRecord> {
        self.0.clone()
    }

    async fn changed(&mut self) {
        std::future::pending().await
    }
}

/// Members that somebody writes down anew when they change.
#[derive(Debug, Clone)]
pub struct WatchedMembership(watch::Receiver<Vec<MemberRecord>>);

impl WatchedMembership {
    /// Whatever was sent last.
    pub fn new(members: watch::Receiver<Vec<MemberRecord>>) -> WatchedMembership {
        WatchedMembership(members)
    }
}

impl Membership for WatchedMembership {
    fn members(&self) -> Vec<MemberRecord> {
        self.0.borrow().clone()
    }

    async fn changed(&mut self) {
        // Nobody writes any more: what was written last stays.
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
