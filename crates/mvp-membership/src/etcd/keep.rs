//! Our own key, under a lease that ends with us. Entry item: [`announce`].

use std::time::Duration;

use futures_util::stream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::connect::{Etcd, lasting, soon};
use super::proto::etcd::kv_client::KvClient;
use super::proto::etcd::lease_client::LeaseClient;
use super::proto::etcd::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest,
};
use super::stored::Said;
use super::{OWN, explained};
use crate::heartbeat::HEARTBEAT;
use crate::leases::Announcement;

/// As kube-apiserver has it for its own.
const TTL_SECONDS: i64 = 15;
const AGAIN: Duration = Duration::from_secs(1);
/// Leaving must not hold up the end.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

/// Keeps our key until we leave, and takes it back then. What an operator has to mend goes to
/// `problem`.
pub async fn announce(
    etcd: Etcd,
    announcement: Announcement,
    problem: watch::Sender<Option<String>>,
    leaving: CancellationToken,
) {
    let Announcement { id, address, instance } = announcement;
    let key = format!("{}{id}@{address}", etcd.folder(OWN));
    let said = Said { id, address: address.to_string(), instance };
    let value = serde_json::to_vec(&said).unwrap_or_default();
    let mut lease = None;
    while !leaving.is_cancelled() {
        let kept = keep(&etcd, &key, &value, &mut lease, &problem);
        let status = tokio::select! {
            () = leaving.cancelled() => break,
            status = kept => status,
        };
        let new = explained(&status);
        if new.is_some() && new != *problem.borrow() {
            tracing::warn!("{}", new.as_deref().unwrap_or_default());
        } else {
            tracing::debug!("our key in etcd is not kept: {}", status.message());
        }
        if new.is_some() {
            problem.send_replace(new);
        }
        tokio::select! {
            () = leaving.cancelled() => {}
            () = sleep(AGAIN) => {}
        }
    }
    if let Some(id) = lease {
        let revoke = async {
            let channel = etcd.connect().await?;
            LeaseClient::new(channel).lease_revoke(soon(LeaseRevokeRequest { id })).await
        };
        match timeout(LEAVES_WITHIN, revoke).await {
            Ok(Ok(_)) => tracing::info!("the other members know by etcd that we leave"),
            _ => tracing::debug!("our key in etcd ends by itself"),
        }
    }
}

/// Takes a lease, writes the key, and renews until that fails.
async fn keep(
    etcd: &Etcd,
    key: &str,
    value: &[u8],
    lease: &mut Option<i64>,
    problem: &watch::Sender<Option<String>>,
) -> Status {
    let kept = async {
        let channel = etcd.connect().await?;
        let mut leases = LeaseClient::new(channel.clone());
        // A lease that lives is renewed through whichever member of etcd there is.
        let id = match *lease {
            Some(id) => id,
            None => {
                let granted =
                    leases.lease_grant(soon(LeaseGrantRequest { ttl: TTL_SECONDS })).await?;
                let id = granted.into_inner().id;
                let put = PutRequest { key: key.into(), value: value.into(), lease: id };
                KvClient::new(channel.clone()).put(soon(put)).await?;
                *lease = Some(id);
                tracing::info!(key, "announced to the other members by etcd");
                id
            }
        };
        loop {
            let beat = stream::iter([LeaseKeepAliveRequest { id }]);
            let renewed = timeout(HEARTBEAT, async {
                leases.lease_keep_alive(lasting(beat)).await?.into_inner().message().await
            });
            let renewed = renewed.await.map_err(|_| Status::unavailable("etcd does not answer"))?;
            if renewed?.is_none_or(|renewed| renewed.ttl <= 0) {
                *lease = None;
                return Err(Status::not_found("our lease ended"));
            }
            problem.send_if_modified(|problem| problem.take().is_some());
            sleep(HEARTBEAT).await;
        }
    };
    let Err::<Never, Status>(status) = kept.await;
    status
}

enum Never {}
