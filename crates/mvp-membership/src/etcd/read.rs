//! The keys of others. Entry item: [`read`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_proxy::control::Clock;
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::Status;

use super::connect::{Etcd, lasting, soon};
use super::proto::etcd::event::EventType;
use super::proto::etcd::kv_client::KvClient;
use super::proto::etcd::watch_client::WatchClient;
use super::proto::etcd::watch_request::RequestUnion;
use super::proto::etcd::{KeyValue, RangeRequest, WatchCreateRequest, WatchRequest};
use super::stored::{self, Said};
use super::{OWN, SERVERS, explained};
use crate::claim::{Claim, Claims, publish};
use crate::leases::{dialable, is_id};

const SOON: Duration = Duration::from_millis(250);
const LATE: Duration = Duration::from_secs(5);

/// Reads who is there, for good: gateways to the one, kube-apiservers with a proxy of their own to
/// the other.
pub async fn read(
    etcd: Etcd,
    clock: Clock,
    one_host: bool,
    gateways: watch::Sender<Claims>,
    servers: watch::Sender<Claims>,
) {
    let mut folders = [
        Folder::new(etcd.folder(OWN), gateways, move |_, value| gateway(value, one_host)),
        Folder::new(etcd.folder(SERVERS), servers, server),
    ];
    let mut wait = SOON;
    loop {
        let begun = tokio::time::Instant::now();
        let Err(status) = follow(&etcd, clock, &mut folders).await;
        tracing::debug!("etcd is not heard of: {}", status.message());
        for folder in &mut folders {
            folder.deaf(clock.now(), explained(&status));
        }
        if begun.elapsed() > LATE {
            wait = SOON;
        }
        sleep(wait).await;
        wait = (wait * 2).min(LATE);
    }
}

enum Never {}

/// Reads all and then each change, until something is wrong. What etcd does not remember any more
/// is read again.
async fn follow(etcd: &Etcd, clock: Clock, folders: &mut [Folder; 2]) -> Result<Never, Status> {
    let channel = etcd.connect().await?;
    let mut watches = Vec::new();
    for folder in folders.iter_mut() {
        let (key, range_end) = (folder.path.clone().into_bytes(), end(&folder.path));
        let range = RangeRequest { key: key.clone(), range_end: range_end.clone() };
        let all = KvClient::new(channel.clone()).range(soon(range)).await?.into_inner();
        let revision = all.header.map_or(0, |header| header.revision);
        folder.all(all.kvs, clock.now());
        let create = WatchCreateRequest { key, range_end, start_revision: revision + 1 };
        watches.push(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) });
    }
    // Asked for in this order, so that they are numbered by it; and kept open.
    let requests = stream::iter(watches).chain(stream::pending());
    let answers = WatchClient::new(channel).watch(lasting(requests)).await?;
    let mut answers = answers.into_inner();
    while let Some(answer) = answers.message().await? {
        if answer.canceled {
            return Err(Status::aborted(format!(
                "the watch ended: {} {}",
                answer.cancel_reason, answer.compact_revision
            )));
        }
        for event in answer.events {
            let gone = event.r#type() == EventType::Delete;
            let Some(kv) = event.kv else { continue };
            for folder in folders.iter_mut() {
                folder.change(&kv, gone, clock.now());
            }
        }
    }
    Err(Status::unavailable("the watch ended"))
}

/// The first key after all that begin so.
fn end(path: &str) -> Vec<u8> {
    let mut end = path.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

type Read = Box<dyn Fn(&str, &[u8]) -> Result<(Arc<str>, Arc<str>, MemberKind), String> + Send>;

/// Keys of one kind, and what they say.
struct Folder {
    path: String,
    claims: watch::Sender<Claims>,
    read: Read,
    known: BTreeMap<String, Claim>,
}

impl Folder {
    fn new(
        path: String,
        claims: watch::Sender<Claims>,
        read: impl Fn(&str, &[u8]) -> Result<(Arc<str>, Arc<str>, MemberKind), String> + Send + 'static,
    ) -> Folder {
        Folder { path, claims, read: Box::new(read), known: BTreeMap::new() }
    }

    fn all(&mut self, kvs: Vec<KeyValue>, now: Timestamp) {
        let mut before = std::mem::take(&mut self.known);
        for kv in kvs {
            if let Some((name, mut claim)) = self.claim(&kv, now) {
                if let Some(known) = before.remove(&name) {
                    claim.since = known.since;
                }
                self.known.insert(name, claim);
            }
        }
        self.publish(None, None);
    }

    fn change(&mut self, kv: &KeyValue, gone: bool, now: Timestamp) {
        if !kv.key.starts_with(self.path.as_bytes()) {
            return;
        }
        if gone {
            self.known.remove(&self.name(kv));
        } else if let Some((name, mut claim)) = self.claim(kv, now) {
            if let Some(known) = self.known.get(&name) {
                claim.since = known.since;
            }
            self.known.insert(name, claim);
        }
        self.publish(None, None);
    }

    fn deaf(&mut self, now: Timestamp, problem: Option<String>) {
        let (since, before) = {
            let claims = self.claims.borrow();
            (claims.deaf_since.unwrap_or(now), claims.problem.clone())
        };
        if problem.is_some() && problem != before {
            tracing::warn!("{}", problem.as_deref().unwrap_or_default());
        }
        self.publish(Some(since), problem.or(before));
    }

    fn name(&self, kv: &KeyValue) -> String {
        let name = kv.key.get(self.path.len()..).unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    fn claim(&self, kv: &KeyValue, now: Timestamp) -> Option<(String, Claim)> {
        let name = self.name(kv);
        match (self.read)(&name, &kv.value) {
            Ok((id, address, kind)) => {
                let seniority = format!("{:020}", kv.create_revision).into();
                // The key is there as long as its lease is: etcd vouches for it.
                let (id, address) = (Some(id), Some(address));
                let (heard, announced) = (None, kind == MemberKind::Mvp);
                let since = now;
                Some((name, Claim { id, address, kind, heard, announced, since, seniority }))
            }
            Err(what) => {
                tracing::warn!(key = name, "a key in etcd names no member: {what}");
                None
            }
        }
    }

    fn publish(&self, deaf_since: Option<Timestamp>, problem: Option<String>) {
        let claims = self.known.values().cloned().collect();
        let read = deaf_since.is_none() || self.claims.borrow().read;
        publish(&self.claims, Claims { claims, read, deaf_since, problem });
    }
}

fn gateway(value: &[u8], one_host: bool) -> Result<(Arc<str>, Arc<str>, MemberKind), String> {
    let said: Said = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let address = dialable(&said.address, one_host)?;
    Ok((is_id(&said.id)?, address, MemberKind::Mvp))
}

fn server(name: &str, value: &[u8]) -> Result<(Arc<str>, Arc<str>, MemberKind), String> {
    let address = stored::address(value).ok_or("there is no address in it")?;
    Ok((is_id(name)?, dialable(&address, true)?, MemberKind::Bare))
}
