//! Our own Lease: what it says of us.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{ADDRESS, ID, LABEL, Lease};
use crate::heartbeat::HEARTBEAT;

/// How long others may take us for alive without a renewal: for whoever reads Leases by hand.
const DURATION_SECONDS: u32 = 40;
/// Names are DNS labels; what is left of an ID in one is for people to read.
const READABLE: usize = 40;

/// What we say of ourselves.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// Our ID.
    pub id: String,
    /// Where peers reach us.
    pub address: SocketAddr,
    /// Tells this process from others that have the same ID and address before or after it.
    pub instance: String,
}

/// Our Lease.
#[derive(Debug)]
pub struct OwnLease {
    pub(super) name: String,
    announcement: Announcement,
    holder: String,
    begun: String,
    /// Somebody changed it.
    pub(super) touched: Notify,
    /// When another process last kept it: one that takes over from us, or from which we do.
    other: Mutex<Option<Instant>>,
}

impl OwnLease {
    /// Says this.
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
        }
    }

    /// Whether only this host reaches us, as when all members are on it.
    pub(super) fn is_loopback(&self) -> bool {
        self.announcement.address.ip().to_canonical().is_loopback()
    }

    /// Somebody wrote it: we, or another.
    pub(super) fn seen(&self, lease: &Lease) {
        let says = |key: &str| lease.metadata.annotations.get(key).map(String::as_str);
        let Announcement { id, address, .. } = &self.announcement;
        if lease.spec.holder_identity != self.holder {
            *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        let changed = says(ID) != Some(id) || says(ADDRESS) != Some(&address.to_string());
        if changed {
            tracing::warn!(lease = self.name, "somebody changed what our Lease says; it is mended");
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        self.touched.notify_one();
    }

    /// Whether another process keeps it, too.
    pub(super) fn is_shared(&self) -> bool {
        let other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        other.is_some_and(|at| at.elapsed() < HEARTBEAT * 3)
    }

    /// The Lease as it is to be, renewed now.
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
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "namespace": "kube-system",
                "labels": { LABEL: "true" },
                "annotations": annotations,
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": self.begun,
                "renewTime": now(),
            },
        })
    }
}

/// The time as Leases have it. Nobody compares it with another clock's.
fn now() -> String {
    let format =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    OffsetDateTime::from(SystemTime::now()).format(format).unwrap_or_default()
}
