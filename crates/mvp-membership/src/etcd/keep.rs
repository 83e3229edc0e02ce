//! Our own key, under a lease that expires without us. Entry item: [`announce`].

use std::time::Duration;

use futures_util::future::select_ok;
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::OWN;
use super::connect::{Etcd, Line, TIMEOUT, lasting, soon};
use super::proto::etcd::event::EventType;
use super::proto::etcd::kv_client::KvClient;
use super::proto::etcd::lease_client::LeaseClient;
use super::proto::etcd::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
};
use super::read::{Watching, watch_from};
use super::stored::GatewayKey;
use super::trouble::{Reporter, Trouble};
use crate::leases::Announcement;
use crate::limits::{ETCD_LEASE, HEARTBEAT, REPAIR_INTERVAL, WITHDRAW_TIMEOUT};

/// The delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Keeps our key until `leaving` is cancelled, and deletes it then. Failures go to `trouble`.
pub async fn announce(
    etcd: Etcd,
    announcement: Announcement,
    trouble: watch::Sender<Trouble>,
    leaving: CancellationToken,
) {
    let Announcement { id, address, instance } = announcement;
    let key = format!("{}{id}@{address}", etcd.folder(OWN));
    let stored = GatewayKey { id, address: address.to_string(), instance };
    let value = serde_json::to_vec(&stored).unwrap_or_default();
    let use_case = "renewing our key in etcd fails, and other members may drop us";
    let mut own = Own { key, value, lease: None, reporter: Reporter::new(use_case, trouble) };
    while !leaving.is_cancelled() {
        let line = Line::default();
        let replaced = etcd.replaced();
        tokio::select! {
            () = leaving.cancelled() => break,
            // Reconnects with the new certificate at once.
            () = replaced => continue,
            Err(status) = own.keep(&etcd, &line) => {
                if status.code() == Code::NotFound {
                    own.lease = None;
                }
                own.reporter.failed(&status, &line);
            }
        }
        tokio::select! {
            () = leaving.cancelled() => {}
            () = sleep(RETRY_DELAY) => {}
        }
    }
    if let Some(id) = own.lease {
        match timeout(WITHDRAW_TIMEOUT, revoke(&etcd, id)).await {
            Ok(Ok(_)) => tracing::info!(key = own.key, "announcement withdrawn"),
            _ => tracing::debug!(key = own.key, "announcement not withdrawn; its lease expires"),
        }
    }
}

/// Revokes the lease through all etcd members at once: there is no time to wait for one that hangs.
async fn revoke(etcd: &Etcd, id: i64) -> Result<(), Status> {
    let each = etcd.each().map(|member| {
        Box::pin(async move {
            let mut leases = LeaseClient::new(member.connect(&Line::default()).await?);
            match leases.lease_revoke(soon(LeaseRevokeRequest { id })).await {
                // Another etcd member was faster.
                Err(status) if status.code() != Code::NotFound => Err(status),
                _ => Ok(()),
            }
        })
    });
    select_ok(each).await.map(|(done, _)| done)
}

enum Never {}

/// Our own key.
struct Own {
    key: String,
    value: Vec<u8>,
    /// The lease of the key, as long as it may be alive.
    lease: Option<i64>,
    reporter: Reporter,
}

impl Own {
    /// Writes the key under a lease, renews the lease and repairs the key, until an error.
    async fn keep(&mut self, etcd: &Etcd, line: &Line) -> Result<Never, Status> {
        let channel = etcd.connect(line).await?;
        let mut leases = LeaseClient::new(channel.clone());
        let (lease, revision) = match self.lease {
            // A lease can be renewed through any etcd member.
            Some(lease) => (lease, self.ensure(&channel, lease).await?),
            None => {
                let granted = leases.lease_grant(soon(LeaseGrantRequest {
                    ttl: ETCD_LEASE.as_secs().cast_signed(),
                }));
                let lease = granted.await?.into_inner().id;
                self.lease = Some(lease);
                let revision = self.put(&channel, lease).await?;
                tracing::info!(key = self.key, "announced");
                (lease, revision)
            }
        };
        let watched = watch_from(self.key.clone().into_bytes(), Vec::new(), revision + 1);
        let mut watching = Watching::start(channel.clone(), vec![watched]).await?;
        loop {
            let beat = stream::iter([LeaseKeepAliveRequest { id: lease }]);
            let renewed = timeout(TIMEOUT, async {
                leases.lease_keep_alive(lasting(beat)).await?.into_inner().message().await
            });
            let renewed =
                renewed.await.map_err(|_| Status::unavailable("the renewal timed out"))?;
            if renewed?.is_none_or(|renewed| renewed.ttl <= 0) {
                return Err(Status::not_found("the lease expired"));
            }
            self.reporter.recovered();
            let beats = sleep(HEARTBEAT);
            tokio::pin!(beats);
            loop {
                let events = tokio::select! {
                    () = &mut beats => break,
                    events = watching.next() => events?,
                };
                let gone = events.last().is_some_and(|event| event.r#type() == EventType::Delete);
                if gone {
                    sleep(REPAIR_INTERVAL).await;
                    let key = &self.key;
                    tracing::warn!(key, "announcement deleted by somebody else; repairing it");
                    self.ensure(&channel, lease).await?;
                }
            }
        }
    }

    /// Writes the key if it is missing. A key of another process, which takes over from us or from
    /// which we take over, stays.
    async fn ensure(&self, channel: &Channel, lease: i64) -> Result<i64, Status> {
        let range = RangeRequest { key: self.key.clone().into_bytes(), range_end: Vec::new() };
        let found = KvClient::new(channel.clone()).range(soon(range)).await?.into_inner();
        if found.kvs.is_empty() {
            return self.put(channel, lease).await;
        }
        Ok(found.header.map_or(0, |header| header.revision))
    }

    async fn put(&self, channel: &Channel, lease: i64) -> Result<i64, Status> {
        let (key, value) = (self.key.clone().into_bytes(), self.value.clone());
        let put = PutRequest { key, value, lease };
        let done = KvClient::new(channel.clone()).put(soon(put)).await?.into_inner();
        Ok(done.header.map_or(0, |header| header.revision))
    }
}
