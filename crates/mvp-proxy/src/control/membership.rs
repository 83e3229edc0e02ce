//! Where members come from: the first step of the control loop. Entry item: [`Membership`].

use std::fmt;
use std::sync::Arc;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use tokio::sync::watch;

use crate::gateway::Who;

/// A source of members.
pub trait Membership: Send + 'static {
    /// The members at this moment, without the local server.
    fn roster(&self) -> Roster;

    /// Resolves when the members change.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// Reports who answered at an address. A source may use it to tell members apart.
    fn answered(&mut self, _address: &Arc<str>, _who: &Who) {}
}

/// The members of a cluster at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roster {
    /// The members, without the local server.
    pub members: Vec<MemberRecord>,
    /// Whether these are all members. False while a source has not been read yet.
    pub complete: bool,
}

impl Roster {
    /// A complete roster.
    pub fn complete(members: Vec<MemberRecord>) -> Roster {
        Roster { members, complete: true }
    }
}

/// What a source knows about a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRecord {
    /// The member's name.
    pub name: MemberName,
    /// The member's address as `HOST:PORT`, if known.
    pub address: Option<Arc<str>>,
    /// What answers at the address.
    pub kind: MemberKind,
    /// The time of the last heartbeat. `None` if the source has no heartbeats: the member then
    /// counts as alive for as long as the source names it.
    pub heard: Option<Timestamp>,
}

/// The name of a member: unique in a roster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberName {
    /// A member that holds its ID. A member without an ID has its address here.
    Id(Arc<str>),
    /// A member whose ID is held by another member: two members claim one ID, or a member moved and
    /// this is what it served at its former address.
    At {
        /// The claimed ID.
        id: Arc<str>,
        /// The address that tells it from the holder of the ID.
        address: Arc<str>,
    },
}

impl MemberName {
    /// Reads a name that an operator wrote: `ID`, `ADDRESS` or `ID@ADDRESS`.
    pub fn parse(text: &str) -> MemberName {
        match text.split_once('@') {
            Some((id, address)) => MemberName::At { id: id.into(), address: address.into() },
            None => MemberName::Id(text.into()),
        }
    }

    /// The name as it appears in snapshots, logs and metrics: `ID` or `ID@ADDRESS`.
    pub fn label(&self) -> Arc<str> {
        match self {
            MemberName::Id(id) => Arc::clone(id),
            MemberName::At { .. } => self.to_string().into(),
        }
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberName::Id(id) => f.write_str(id),
            MemberName::At { id, address } => write!(f, "{id}@{address}"),
        }
    }
}

impl From<&str> for MemberName {
    fn from(id: &str) -> MemberName {
        MemberName::Id(id.into())
    }
}

impl From<String> for MemberName {
    fn from(id: String) -> MemberName {
        MemberName::Id(id.into())
    }
}

impl From<Arc<str>> for MemberName {
    fn from(id: Arc<str>) -> MemberName {
        MemberName::Id(id)
    }
}

impl MemberRecord {
    /// A gateway, or a server with the layer inside, at this address (`HOST:PORT`).
    pub fn gateway(id: &str, address: &str) -> MemberRecord {
        let (name, address) = (id.into(), Some(address.into()));
        MemberRecord { name, address, kind: MemberKind::Mvp, heard: None }
    }
}

/// A fixed list of members.
#[derive(Debug, Clone, Default)]
pub struct StaticMembership(Vec<MemberRecord>);

impl StaticMembership {
    /// A source that names these members and never changes.
    pub fn new(members: Vec<MemberRecord>) -> StaticMembership {
        StaticMembership(members)
    }
}

impl Membership for StaticMembership {
    fn roster(&self) -> Roster {
        Roster::complete(self.0.clone())
    }

    async fn changed(&mut self) {
        std::future::pending().await
    }
}

/// A list of members that is replaced as a whole when it changes.
#[derive(Debug, Clone)]
pub struct WatchedMembership(watch::Receiver<Vec<MemberRecord>>);

impl WatchedMembership {
    /// A source that names the members that were sent last.
    pub fn new(members: watch::Receiver<Vec<MemberRecord>>) -> WatchedMembership {
        WatchedMembership(members)
    }
}

impl Membership for WatchedMembership {
    fn roster(&self) -> Roster {
        Roster::complete(self.0.borrow().clone())
    }

    async fn changed(&mut self) {
        // The sender is gone: the last list stays.
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for (text, name) in [
            ("b", MemberName::Id("b".into())),
            ("10.0.0.1:6443", MemberName::Id("10.0.0.1:6443".into())),
            ("b@[fd00::1]:1", MemberName::At { id: "b".into(), address: "[fd00::1]:1".into() }),
        ] {
            assert_eq!(MemberName::parse(text), name);
            assert_eq!(&*name.label(), text);
        }
    }
}
