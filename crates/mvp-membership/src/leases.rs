//! Members by Leases in `kube-system`: our own kind ([`read`], [`keep`]), and those by which
//! kube-apiservers know each other ([`read_identities`]).
//!
//! Of ours there is one for each ID and address, so that two members by one ID are seen as two, and
//! neither can take the other's. Its name never starts with `apiserver-` and it never has the label
//! of kube-apiservers' own: they would collect it, or dial it.

mod keep;
mod own;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

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
const IDENTITIES: &str = "kube-apiservers' own Leases in kube-system";
/// The label of ours.
const LABEL: &str = "mixed-version-proxy/member";
const ID: &str = "mixed-version-proxy/id";
const ADDRESS: &str = "mixed-version-proxy/address";
/// The label and the annotation of kube-apiservers' own.
const IDENTITY: &str = "apiserver.kubernetes.io/identity=kube-apiserver";
const PEER_ADDRESS: &str = "kubernetes.io/peer-advertise-address";

/// What was seen of Leases, by their names.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    /// What it is called where it cannot be read; nothing for the Leases of gateways.
    what: Option<&'static str>,
    beats: Heartbeats<Seen>,
    trouble: Trouble,
}

/// A Lease that was seen.
#[derive(Debug)]
struct Seen {
    said: Option<Said>,
    uid: String,
    version: String,
}

/// What a Lease says that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    id: Arc<str>,
    address: Option<Arc<str>>,
    kind: MemberKind,
    seniority: Arc<str>,
}

/// Reads the Leases of gateways, for good, and watches over our own.
pub async fn read(
    ask: impl Ask,
    clock: Clock,
    own: Arc<OwnLease>,
    board: Board,
    claims: watch::Sender<Claims>,
) {
    let selector = ("labelSelector", format!("{LABEL}=true"));
    let collection = Collection { path: PATH.to_owned(), selector };
    let one_host = own.is_loopback();
    watch(ask, collection, |change: Change<Lease>| {
        match &change {
            Change::Applied(lease) if lease.metadata.name == own.name => own.seen(lease),
            Change::Deleted(lease) if lease.metadata.name == own.name => own.wake(),
            _ => {}
        }
        let said = |lease: &Lease| said_by_gateway(lease, one_host);
        board.take(change, clock.now(), said, |name| name != own.name, &claims);
    })
    .await;
}

/// Reads the Leases by which kube-apiservers know each other, for good. One with an address is a
/// member with no gateway before it.
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
        let said = |lease: &Lease| said_by_server(lease, one_host);
        board.take(change, clock.now(), said, |_| true, &claims);
    })
    .await;
}

impl Board {
    fn new(what: &'static str) -> Board {
        Board(Arc::new(Mutex::new(Noted { what: Some(what), ..Noted::default() })))
    }

    /// Notes a change, and publishes what all of them say now.
    fn take(
        &self,
        change: Change<Lease>,
        now: Timestamp,
        said: impl Fn(&Lease) -> Result<Said, String>,
        counts: impl Fn(&str) -> bool,
        claims: &watch::Sender<Claims>,
    ) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Noted { what, beats, trouble } = &mut *noted;
        let what = what.unwrap_or(OBJECTS);
        let (mut problem, mut read, mut partial) = {
            let claims = claims.borrow();
            (claims.problem.clone(), claims.read, claims.partial)
        };
        let see = |beats: &mut Heartbeats<Seen>, lease: Lease| {
            let said = said(&lease);
            let Metadata { name, uid, resource_version: version, .. } = lease.metadata;
            if let Err(what) = &said
                && beats.get(&name).is_none_or(|seen| seen.said.is_some())
            {
                tracing::warn!(lease = %name, "a Lease names no member: {what}");
            }
            let seen = Seen { said: said.ok(), uid, version };
            beats.see(&name, &lease.spec.renew_time, seen, now);
        };
        match change {
            Change::Listed(leases, is_all) => {
                (read, partial) = (true, !is_all);
                let names: BTreeSet<&str> =
                    leases.iter().map(|lease| lease.metadata.name.as_str()).collect();
                beats.retain(|name| names.contains(name));
                leases.into_iter().for_each(|lease| see(beats, lease));
            }
            Change::Applied(lease) => see(beats, lease),
            Change::Deleted(lease) => beats.remove(&lease.metadata.name),
            Change::Hears => {
                problem = None;
                trouble.hears(what);
                beats.hears(now);
            }
            Change::Deaf(error) => {
                beats.deaf(now);
                problem = trouble.cannot("read", what, &error).or(problem);
            }
        }
        let all = beats.iter().filter(|(name, _)| counts(name)).filter_map(|(_, beat)| {
            let said = beat.value.said.as_ref()?;
            Some(Claim {
                id: Some(Arc::clone(&said.id)),
                address: said.address.clone(),
                kind: said.kind,
                heard: Some(beat.heard),
                // A Lease that was left behind claims nothing.
                announced: said.kind == MemberKind::Mvp && beat.renewed,
                since: beat.since,
                seniority: Arc::clone(&said.seniority),
            })
        });
        let all = all.collect();
        publish(
            claims,
            Claims { claims: all, read, partial, deaf_since: beats.deaf_since(), problem },
        );
    }

    /// The Leases that nobody renewed for so long, as far as could be heard: name, UID and version.
    fn lapsed(&self, now: Timestamp, after: std::time::Duration) -> Vec<(String, String, String)> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.beats.deaf_since().is_some() {
            return Vec::new();
        }
        let lapsed = noted.beats.iter().filter(|(_, beat)| now.since(beat.heard) > after);
        let named = |(name, beat): (&str, &Beat<Seen>)| {
            (name.to_owned(), beat.value.uid.clone(), beat.value.version.clone())
        };
        lapsed.map(named).collect()
    }
}

/// A Lease, as far as it matters here.
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

fn said_by_gateway(lease: &Lease, one_host: bool) -> Result<Said, String> {
    let annotation = |key: &str| {
        let value = lease.metadata.annotations.get(key);
        value.ok_or_else(|| format!("it has no annotation {key}"))
    };
    let (id, address) = (annotation(ID)?, annotation(ADDRESS)?);
    Ok(Said {
        id: is_id(id)?,
        address: Some(dialable(address, one_host)?),
        kind: MemberKind::Mvp,
        seniority: lease.metadata.creation_timestamp.as_str().into(),
    })
}

fn said_by_server(lease: &Lease, one_host: bool) -> Result<Said, String> {
    // Where its gate is off it says no address: then it is somebody else's to say where it is.
    let address = lease.metadata.annotations.get(PEER_ADDRESS);
    Ok(Said {
        id: lease.metadata.name.as_str().into(),
        address: address.map(|address| dialable(address, one_host)).transpose()?,
        kind: MemberKind::Bare,
        seniority: lease.metadata.creation_timestamp.as_str().into(),
    })
}

/// An ID, if it is one.
pub(crate) fn is_id(text: &str) -> Result<Arc<str>, String> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || text.len() > 253 || !text.bytes().all(usable) {
        return Err(format!("{text:?} is no ID"));
    }
    Ok(text.into())
}

/// An address that can be one of a peer's. One on loopback can be where we are on loopback, too.
pub(crate) fn dialable(text: &str, one_host: bool) -> Result<Arc<str>, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| format!("{text:?} is no address as IP:PORT"))?;
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() || ip.is_multicast() || address.port() == 0 {
        return Err(format!("nobody can be reached at {text}"));
    }
    if ip.is_loopback() && !one_host {
        return Err(format!("{text} is on loopback, where only its own host reaches it"));
    }
    Ok(address.to_string().into())
}

#[cfg(test)]
mod tests;
