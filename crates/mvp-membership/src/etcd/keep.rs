//! Our own key, under a lease that ends with us. Entry item: [`announce`].

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
use super::stored::Said;
use super::trouble::{Teller, Trouble};
use crate::heartbeat::HEARTBEAT;
use crate::leases::Announcement;

/// As kube-apiserver has it for its own.
const TTL_SECONDS: i64 = 15;
const AGAIN: Duration = Duration::from_secs(1);
/// Whoever deletes our key again and again is not answered more often than this.
const MEND_INTERVAL: Duration = Duration::from_millis(500);
/// Leaving must not hold up the end.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

/// Keeps our key until we leave, and takes it back then. Why it cannot goes to `trouble`.
pub async fn announce(
    etcd: Etcd,
    announcement: Announcement,
    trouble: watch::Sender<Trouble>,
    leaving: CancellationToken,
) {
    let Announcement { id, address, instance } = announcement;
    let key = format!("{}{id}@{address}", etcd.folder(OWN));
    let said = Said { id, address: address.to_string(), instance };
    let value = serde_json::to_vec(&said).unwrap_or_default();
    let what = "our key in etcd is not renewed, so that the others may take us for gone";
    let mut own = Own { key, value, lease: None, teller: Teller::new(what, trouble) };
    while !leaving.is_cancelled() {
        let line = Line::default();
        let replaced = etcd.replaced();
        tokio::select! {
            () = leaving.cancelled() => break,
            // With the new certificate, at once.
            () = replaced => continue,
            Err(status) = own.keep(&etcd, &line) => {
                if status.code() == Code::NotFound {
                    own.lease = None;
                }
                own.teller.failed(&status, &line);
            }
        }
        tokio::select! {
            () = leaving.cancelled() => {}
            () = sleep(AGAIN) => {}
        }
    }
    if let Some(id) = own.lease {
        match timeout(LEAVES_WITHIN, revoke(&etcd, id)).await {
            Ok(Ok(_)) => tracing::info!("the other members know by etcd that we leave"),
            _ => tracing::debug!("our key in etcd ends by itself"),
        }
    }
}

/// Asks all members of etcd at once: there is no time to wait for one that hangs.
async fn revoke(etcd: &Etcd, id: i64) -> Result<(), Status> {
    let each = etcd.each().map(|member| {
        Box::pin(async move {
            let mut leases = LeaseClient::new(member.connect(&Line::default()).await?);
            match leases.lease_revoke(soon(LeaseRevokeRequest { id })).await {
                // Another was faster.
                Err(status) if status.code() != Code::NotFound => Err(status),
                _ => Ok(()),
            }
        })
    });
    select_ok(each).await.map(|(done, _)| done)
}

enum Never {}

/// Our key.
struct Own {
    key: String,
    value: Vec<u8>,
    /// The lease that it is under, as long as that may live.
    lease: Option<i64>,
    teller: Teller,
}

impl Own {
    /// Takes a lease, writes the key, and renews the one and looks after the other until that fails.
    async fn keep(&mut self, etcd: &Etcd, line: &Line) -> Result<Never, Status> {
        let channel = etcd.connect(line).await?;
        let mut leases = LeaseClient::new(channel.clone());
        let (lease, revision) = match self.lease {
            // A lease that lives is renewed through whichever member of etcd there is.
            Some(lease) => (lease, self.look(&channel, lease).await?),
            None => {
                let granted = leases.lease_grant(soon(LeaseGrantRequest { ttl: TTL_SECONDS }));
                let lease = granted.await?.into_inner().id;
                self.lease = Some(lease);
                let revision = self.put(&channel, lease).await?;
                tracing::info!(key = self.key, "announced to the other members by etcd");
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
            let renewed = renewed.await.map_err(|_| Status::unavailable("etcd does not answer"))?;
            if renewed?.is_none_or(|renewed| renewed.ttl <= 0) {
                return Err(Status::not_found("our lease ended"));
            }
            self.teller.well();
            let beats = sleep(HEARTBEAT);
            tokio::pin!(beats);
            loop {
                let events = tokio::select! {
                    () = &mut beats => break,
                    events = watching.next() => events?,
                };
                let gone = events.last().is_some_and(|event| event.r#type() == EventType::Delete);
                if gone {
                    sleep(MEND_INTERVAL).await;
                    tracing::warn!(
                        key = self.key,
                        "somebody deleted our key in etcd; it is mended"
                    );
                    self.look(&channel, lease).await?;
                }
            }
        }
    }

    /// Writes the key if it is not there. One that another process of ours wrote, which takes over
    /// from us or from which we do, is left as it is.
    async fn look(&self, channel: &Channel, lease: i64) -> Result<i64, Status> {
        let range = RangeRequest { key: self.key.clone().into_bytes(), range_end: Vec::new() };
        let there = KvClient::new(channel.clone()).range(soon(range)).await?.into_inner();
        if there.kvs.is_empty() {
            return self.put(channel, lease).await;
        }
        Ok(there.header.map_or(0, |header| header.revision))
    }

    async fn put(&self, channel: &Channel, lease: i64) -> Result<i64, Status> {
        let (key, value) = (self.key.clone().into_bytes(), self.value.clone());
        let put = PutRequest { key, value, lease };
        let done = KvClient::new(channel.clone()).put(soon(put)).await?.into_inner();
        Ok(done.header.map_or(0, |header| header.revision))
    }
}
