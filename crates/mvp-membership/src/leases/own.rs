//! The content of our own Lease. Entry item: [`OwnLease`].

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use mvp_core::snapshot::Policy;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{ADDRESS, ID, LABEL, Lease, OWNER};
use crate::limits::SILENT_AFTER;

const VERSION: &str = "coordination.k8s.io/v1";
/// The most characters of an ID in the name of a Lease, which must be a DNS label.
const READABLE: usize = 40;

/// What a gateway announces about itself.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// The ID of its server.
    pub id: String,
    /// Its address for peers.
    pub address: SocketAddr,
    /// The unique name of its process. Another process may have the same ID and address before or
    /// after.
    pub instance: String,
}

/// Our own Lease.
#[derive(Debug)]
pub struct OwnLease {
    pub(super) name: String,
    announcement: Announcement,
    holder: String,
    begun: String,
    /// Wakes the keeper after a change by somebody else.
    pub(super) touched: Notify,
    /// When another process last renewed it: one that takes over from us, or from which we take
    /// over.
    other: Mutex<Option<Instant>>,
    /// The UID of the Lease that owns it, if there is one.
    owner: Mutex<Option<String>>,
}

impl OwnLease {
    /// A Lease with this announcement.
    pub fn new(announcement: Announcement) -> OwnLease {
        let Announcement { id, address, instance } = &announcement;
        let mut hash = Sha256::new();
        hash.update(id);
        hash.update([0]);
        hash.update(address.to_string());
        let mut name = String::from("mvp-");
        let readable =
            id.chars().map(|c| c.to_ascii_lowercase()).filter(char::is_ascii_alphanumeric);
        name.extend(readable.take(READABLE));
        name.push('-');
        for byte in hash.finalize().iter().take(6) {
            let _ = write!(name, "{byte:02x}");
        }
        OwnLease {
            name,
            holder: format!("{id}_{instance}"),
            announcement,
            begun: now(),
            touched: Notify::new(),
            other: Mutex::default(),
            owner: Mutex::default(),
        }
    }

    /// Whether we advertise a loopback address: then all members are on this host.
    pub(super) fn is_loopback(&self) -> bool {
        self.announcement.address.ip().to_canonical().is_loopback()
    }

    /// The Lease that owns it from now on. The next renewal writes it.
    pub(super) fn set_owner(&self, owner: Option<Lease>) {
        let uid = owner.map(|owner| owner.metadata.uid);
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = uid;
    }

    /// Observes a write of the Lease, by us or by somebody else.
    pub(super) fn seen(&self, lease: &Lease) {
        let says = |key: &str| lease.metadata.annotations.get(key).map(String::as_str);
        let Announcement { id, address, .. } = &self.announcement;
        if lease.spec.holder_identity != self.holder {
            *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        let changed = says(ID) != Some(id) || says(ADDRESS) != Some(&address.to_string());
        if changed {
            tracing::warn!(
                lease = self.name,
                "announcement changed by somebody else; repairing it"
            );
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        self.touched.notify_one();
    }

    /// Whether another process renews it, too.
    pub(super) fn is_shared(&self) -> bool {
        let other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        other.is_some_and(|at| at.elapsed() < SILENT_AFTER)
    }

    /// The Lease to write, renewed now.
    pub(super) fn renewed(&self, server_version: Option<String>) -> Value {
        let Announcement { id, address, .. } = &self.announcement;
        let mut annotations = json!({
            ID: id,
            ADDRESS: address.to_string(),
            "mixed-version-proxy/version": env!("CARGO_PKG_VERSION"),
        });
        if let (Some(annotations), Some(version)) = (annotations.as_object_mut(), server_version) {
            annotations.insert("mixed-version-proxy/server-version".to_owned(), version.into());
        }
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let owners = owner.iter().map(
            |uid| json!({ "apiVersion": VERSION, "kind": "Lease", "name": OWNER, "uid": uid }),
        );
        json!({
            "apiVersion": VERSION,
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "namespace": "kube-system",
                "labels": { LABEL: "true" },
                "annotations": annotations,
                "ownerReferences": owners.collect::<Vec<Value>>(),
            },
            "spec": {
                "holderIdentity": self.holder,
                // Only for people: members do not compare clocks.
                "leaseDurationSeconds": Policy::HEARD_WITHIN.as_secs(),
                "acquireTime": self.begun,
                "renewTime": now(),
            },
        })
    }
}

/// The time in the format of Leases.
fn now() -> String {
    let format =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    OffsetDateTime::from(SystemTime::now()).format(format).unwrap_or_default()
}
