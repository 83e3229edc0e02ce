//! Members by Leases in `kube-system`: those of gateways ([`read`], [`keep`]), and the identity
//! Leases of kube-apiservers ([`read_identities`]).
//!
//! A gateway has one Lease for each ID and address, so that two gateways with one ID are seen as
//! two, and neither can take the other's Lease. Its name never starts with `apiserver-`, and it
//! never has the label of identity Leases: kube-apiservers would delete it, or connect to it.
//!
//! All Leases of gateways have one owner, a Lease of deploy/rbac.yaml. When it is deleted with the
//! other objects of that file, Kubernetes deletes those of gateways, which no longer may.

mod keep;
mod own;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_proxy::control::{Ask, Clock};
use serde::Deserialize;
use tokio::sync::watch;

use crate::claim::{Claim, Claims, publish};
use crate::heartbeat::{Beat, Heartbeats};
use crate::kube::watch::{Change, Collection, watch};
use crate::kube::{Metadata, Object, Trouble};
pub use keep::keep;
pub use own::{Announcement, OwnLease};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const OBJECTS: &str = "Leases in kube-system";
const IDENTITIES: &str = "identity Leases in kube-system";
/// The label of gateways' Leases. Its value is `true`, and `owner` for the Lease that owns them.
const LABEL: &str = "mixed-version-proxy/member";
/// The name of the Lease that owns those of gateways.
const OWNER: &str = "mixed-version-proxy";
const ID: &str = "mixed-version-proxy/id";
const ADDRESS: &str = "mixed-version-proxy/address";
/// The label and the annotation of identity Leases.
const IDENTITY: &str = "apiserver.kubernetes.io/identity=kube-apiserver";
const PEER_ADDRESS: &str = "kubernetes.io/peer-advertise-address";

/// The Leases that were read, by name. Shared by the reader and the keeper of our own Lease.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    /// The name of the objects in messages. `None` for the Leases of gateways.
    objects: Option<&'static str>,
    beats: Heartbeats<Seen>,
    trouble: Trouble,
}

/// A Lease that was read.
#[derive(Debug)]
struct Seen {
    /// `None` for a Lease that names no member.
    entry: Option<LeaseEntry>,
    uid: String,
    version: String,
}

/// The member that a Lease names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LeaseEntry {
    id: Arc<str>,
    address: Option<Arc<str>>,
    kind: MemberKind,
    seniority: Arc<str>,
}

/// Reads the Leases of gateways forever, and wakes the keeper when ours is changed.
pub async fn read(
    ask: impl Ask,
    clock: Clock,
    own: Arc<OwnLease>,
    board: Board,
    claims: watch::Sender<Claims>,
) {
    let selector = ("labelSelector", format!("{LABEL} in (true,owner)"));
    let collection = Collection { path: PATH.to_owned(), selector };
    let one_host = own.is_loopback();
    let is_owner = |lease: &Lease| lease.metadata.name == OWNER;
    watch(ask, collection, |mut change: Change<Lease>| {
        match &mut change {
            Change::Listed(leases, _) => {
                own.set_owner(leases.extract_if(.., |lease| is_owner(lease)).next());
            }
            Change::Applied(lease) if is_owner(lease) => {
                return own.set_owner(Some(lease.clone()));
            }
            Change::Deleted(lease) if is_owner(lease) => return own.set_owner(None),
            Change::Applied(lease) if lease.metadata.name == own.name => own.seen(lease),
            Change::Deleted(lease) if lease.metadata.name == own.name => own.wake(),
            _ => {}
        }
        let read = |lease: &Lease| gateway_entry(lease, one_host);
        board.apply(change, clock.now(), read, |name| name != own.name, &claims);
    })
    .await;
}

/// Reads the identity Leases of kube-apiservers forever. One with an address is a member without a
/// gateway.
pub async fn read_identities(
    ask: impl Ask,
    clock: Clock,
    one_host: bool,
    claims: watch::Sender<Claims>,
) {
    let selector = ("labelSelector", IDENTITY.to_owned());
    let collection = Collection { path: PATH.to_owned(), selector };
    let board = Board::new(IDENTITIES);
    watch(ask, collection, |change: Change<Lease>| {
        let read = |lease: &Lease| server_entry(lease, one_host);
        board.apply(change, clock.now(), read, |_| true, &claims);
    })
    .await;
}

impl Board {
    fn new(objects: &'static str) -> Board {
        Board(Arc::new(Mutex::new(Noted { objects: Some(objects), ..Noted::default() })))
    }

    /// Applies a change, and publishes the claims of all Leases that count.
    fn apply(
        &self,
        change: Change<Lease>,
        now: Timestamp,
        read: impl Fn(&Lease) -> Result<LeaseEntry, String>,
        counts: impl Fn(&str) -> bool,
        claims: &watch::Sender<Claims>,
    ) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Noted { objects, beats, trouble } = &mut *noted;
        let objects = objects.unwrap_or(OBJECTS);
        let (mut problem, mut was_read, mut partial) = {
            let claims = claims.borrow();
            (claims.problem.clone(), claims.read, claims.partial)
        };
        let see = |beats: &mut Heartbeats<Seen>, lease: Lease| {
            let entry = read(&lease);
            let Metadata { name, uid, resource_version: version, .. } = lease.metadata;
            if let Err(error) = &entry
                && beats.get(&name).is_none_or(|seen| seen.entry.is_some())
            {
                tracing::warn!(lease = name, error, "invalid Lease ignored");
            }
            let seen = Seen { entry: entry.ok(), uid, version };
            beats.see(&name, &lease.spec.renew_time, seen, now);
        };
        match change {
            Change::Listed(leases, is_all) => {
                (was_read, partial) = (true, !is_all);
                let names: BTreeSet<&str> =
                    leases.iter().map(|lease| lease.metadata.name.as_str()).collect();
                beats.retain(|name| names.contains(name));
                leases.into_iter().for_each(|lease| see(beats, lease));
            }
            Change::Applied(lease) => see(beats, lease),
            Change::Deleted(lease) => beats.remove(&lease.metadata.name),
            Change::Connected => {
                problem = None;
                trouble.recovered(objects);
                beats.hears(now);
            }
            Change::Disconnected(error) => {
                beats.deaf(now);
                problem = trouble.failed("read", objects, &error).or(problem);
            }
        }
        let all = beats.iter().filter(|(name, _)| counts(name)).filter_map(|(_, beat)| {
            let entry = beat.value.entry.as_ref()?;
            Some(Claim {
                id: Some(Arc::clone(&entry.id)),
                address: entry.address.clone(),
                kind: entry.kind,
                heard: Some(beat.heard),
                // The leftover Lease of a dead gateway announces nothing.
                announced: entry.kind == MemberKind::Mvp && beat.renewed,
                since: beat.since,
                seniority: Arc::clone(&entry.seniority),
            })
        });
        let (all, deaf_since) = (all.collect(), beats.deaf_since());
        publish(claims, Claims { claims: all, read: was_read, partial, deaf_since, problem });
    }

    /// The Leases that were not renewed for this long: name, UID and version. None while Leases
    /// cannot be read.
    fn expired(&self, now: Timestamp, after: Duration) -> Vec<(String, String, String)> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.beats.deaf_since().is_some() {
            return Vec::new();
        }
        let expired = noted.beats.iter().filter(|(_, beat)| now.since(beat.heard) > after);
        let named = |(name, beat): (&str, &Beat<Seen>)| {
            (name.to_owned(), beat.value.uid.clone(), beat.value.version.clone())
        };
        expired.map(named).collect()
    }
}

/// The fields of a Lease that sources use.
#[derive(Debug, Clone, Deserialize)]
struct Lease {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: String,
    renew_time: String,
}

impl Object for Lease {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

fn gateway_entry(lease: &Lease, one_host: bool) -> Result<LeaseEntry, String> {
    let annotation = |key: &str| {
        let value = lease.metadata.annotations.get(key);
        value.ok_or_else(|| format!("the annotation {key} is missing"))
    };
    let (id, address) = (annotation(ID)?, annotation(ADDRESS)?);
    Ok(LeaseEntry {
        id: is_id(id)?,
        address: Some(dialable(address, one_host)?),
        kind: MemberKind::Mvp,
        seniority: lease.metadata.creation_timestamp.as_str().into(),
    })
}

fn server_entry(lease: &Lease, one_host: bool) -> Result<LeaseEntry, String> {
    // Without the feature gate there is no address, and another source may know it.
    let address = lease.metadata.annotations.get(PEER_ADDRESS);
    Ok(LeaseEntry {
        id: lease.metadata.name.as_str().into(),
        address: address.map(|address| dialable(address, one_host)).transpose()?,
        kind: MemberKind::Bare,
        seniority: lease.metadata.creation_timestamp.as_str().into(),
    })
}

/// Checks an ID.
pub(crate) fn is_id(text: &str) -> Result<Arc<str>, String> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || text.len() > 253 || !text.bytes().all(usable) {
        return Err(format!("{:?} is not a valid ID", start(text)));
    }
    Ok(text.into())
}

/// The start of a text that may be very long: who writes it must not fill the log.
pub(crate) fn start(text: &str) -> &str {
    let end = text.char_indices().nth(100).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or(text)
}

/// Checks the address of a peer. A loopback address is valid only if we advertise one ourselves.
pub(crate) fn dialable(text: &str, one_host: bool) -> Result<Arc<str>, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| format!("{:?} is not an address as IP:PORT", start(text)))?;
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() || ip.is_multicast() || address.port() == 0 {
        return Err(format!("{text} is not an address that peers can connect to"));
    }
    if ip.is_loopback() && !one_host {
        return Err(format!("{text} is a loopback address"));
    }
    Ok(address.to_string().into())
}

#[cfg(test)]
mod tests;
