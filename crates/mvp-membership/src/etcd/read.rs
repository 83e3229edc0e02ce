//! The keys of other members. Entry item: [`read`].

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_proxy::control::Clock;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::connect::{Etcd, Line, TIMEOUT, lasting, soon};
use super::proto::etcd::event::EventType;
use super::proto::etcd::kv_client::KvClient;
use super::proto::etcd::watch_client::WatchClient;
use super::proto::etcd::watch_request::RequestUnion;
use super::proto::etcd::{
    Event, KeyValue, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::stored::{self, GatewayKey};
use super::trouble::{Reporter, Trouble};
use super::{OWN, SERVERS};
use crate::claim::{Claim, Claims, publish};
use crate::leases::{dialable, is_id, start};
use crate::limits::Backoff;

/// Reads the keys of members forever: gateways to `gateways`, kube-apiservers with a proxy of their
/// own to `servers`. Failures go to `trouble`.
pub async fn read(
    etcd: Etcd,
    clock: Clock,
    one_host: bool,
    gateways: watch::Sender<Claims>,
    servers: watch::Sender<Claims>,
    trouble: watch::Sender<Trouble>,
) {
    let mut folders = [
        Folder::new(etcd.folder(OWN), gateways, move |_, value| gateway(value, one_host)),
        Folder::new(etcd.folder(SERVERS), servers, server),
    ];
    let use_case = "reading members from etcd fails, and the last known members stay in use";
    let mut reporter = Reporter::new(use_case, trouble);
    let mut backoff = Backoff::default();
    loop {
        let begun = Instant::now();
        let line = Line::default();
        let replaced = etcd.replaced();
        let status = tokio::select! {
            // Reconnects with the new certificate at once.
            () = replaced => continue,
            Err(status) = follow(&etcd, &line, clock, &mut folders, &mut reporter) => status,
        };
        reporter.failed(&status, &line);
        for folder in &folders {
            folder.deaf(clock.now());
        }
        backoff.wait(begun).await;
    }
}

enum Never {}

/// Reads all keys and then each change, until an error. After a compaction all keys are read again.
async fn follow(
    etcd: &Etcd,
    line: &Line,
    clock: Clock,
    folders: &mut [Folder; 2],
    reporter: &mut Reporter,
) -> Result<Never, Status> {
    let channel = etcd.connect(line).await?;
    let mut watches = Vec::new();
    for folder in folders.iter_mut() {
        let (key, range_end) = (folder.path.clone().into_bytes(), end(&folder.path));
        let range = RangeRequest { key: key.clone(), range_end: range_end.clone() };
        let all = KvClient::new(channel.clone()).range(soon(range)).await?.into_inner();
        let revision = all.header.map_or(0, |header| header.revision);
        folder.all(all.kvs, clock.now());
        watches.push(watch_from(key, range_end, revision + 1));
    }
    let mut watching = Watching::start(channel, watches).await?;
    reporter.recovered();
    for folder in folders.iter() {
        folder.publish(None);
    }
    loop {
        for event in watching.next().await? {
            let gone = event.r#type() == EventType::Delete;
            let Some(kv) = event.kv else { continue };
            for folder in folders.iter_mut() {
                folder.change(&kv, gone, clock.now());
            }
        }
    }
}

/// Watches that etcd has accepted, over one stream.
pub(super) struct Watching {
    answers: Streaming<WatchResponse>,
    /// Events that came before the last watch was accepted.
    early: Vec<Event>,
}

impl Watching {
    pub(super) async fn start(
        channel: Channel,
        watches: Vec<WatchCreateRequest>,
    ) -> Result<Watching, Status> {
        let mut missing = watches.len();
        let create =
            |create| WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let requests: Vec<WatchRequest> = watches.into_iter().map(create).collect();
        // The stream of requests must stay open.
        let requests = stream::iter(requests).chain(stream::pending());
        let begin = async {
            let answers = WatchClient::new(channel).watch(lasting(requests)).await?.into_inner();
            let mut watching = Watching { answers, early: Vec::new() };
            while missing > 0 {
                let answer = watching.answer().await?;
                missing -= usize::from(answer.created);
                watching.early.extend(answer.events);
            }
            Ok(watching)
        };
        let late = |_| Err(Status::unavailable("starting the watch timed out"));
        timeout(TIMEOUT, begin).await.unwrap_or_else(late)
    }

    /// The next events.
    pub(super) async fn next(&mut self) -> Result<Vec<Event>, Status> {
        if self.early.is_empty() {
            return Ok(self.answer().await?.events);
        }
        Ok(std::mem::take(&mut self.early))
    }

    async fn answer(&mut self) -> Result<WatchResponse, Status> {
        let answer = self.answers.message().await?;
        let answer = answer.ok_or_else(|| Status::unavailable("the watch ended"))?;
        if answer.canceled {
            let WatchResponse { cancel_reason, compact_revision, .. } = answer;
            return Err(Status::aborted(format!(
                "the watch ended: {cancel_reason} (compacted up to {compact_revision})"
            )));
        }
        Ok(answer)
    }
}

pub(super) fn watch_from(
    key: Vec<u8>,
    range_end: Vec<u8>,
    start_revision: i64,
) -> WatchCreateRequest {
    WatchCreateRequest { key, range_end, start_revision }
}

/// The end of the range of all keys with this prefix.
fn end(path: &str) -> Vec<u8> {
    let mut end = path.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// The ID, the address and the kind of a member, of the name and the value of its key.
type Read = Box<dyn Fn(&str, &[u8]) -> Result<(Arc<str>, Arc<str>, MemberKind), String> + Send>;

/// A folder of keys, and the claims that follow from them.
struct Folder {
    path: String,
    claims: watch::Sender<Claims>,
    read: Read,
    known: BTreeMap<String, Claim>,
    /// Whether the folder was read once.
    read_once: bool,
}

impl Folder {
    fn new(
        path: String,
        claims: watch::Sender<Claims>,
        read: impl Fn(&str, &[u8]) -> Result<(Arc<str>, Arc<str>, MemberKind), String> + Send + 'static,
    ) -> Folder {
        Folder { path, claims, read: Box::new(read), known: BTreeMap::new(), read_once: false }
    }

    fn all(&mut self, kvs: Vec<KeyValue>, now: Timestamp) {
        self.read_once = true;
        let mut before = std::mem::take(&mut self.known);
        for kv in kvs {
            if let Some((name, mut claim)) = self.claim(&kv, now) {
                if let Some(known) = before.remove(&name) {
                    claim.since = known.since;
                }
                self.known.insert(name, claim);
            }
        }
        let deaf_since = self.claims.borrow().deaf_since;
        self.publish(deaf_since);
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
        self.publish(None);
    }

    fn deaf(&self, now: Timestamp) {
        let since = self.claims.borrow().deaf_since.unwrap_or(now);
        self.publish(Some(since));
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
                // The key exists only as long as its lease: etcd vouches for it.
                let (id, address) = (Some(id), Some(address));
                let (heard, announced) = (None, kind == MemberKind::Mvp);
                let since = now;
                Some((name, Claim { id, address, kind, heard, announced, since, seniority }))
            }
            Err(error) => {
                tracing::warn!(key = start(&name), error, "invalid key ignored");
                None
            }
        }
    }

    fn publish(&self, deaf_since: Option<Timestamp>) {
        let claims = self.known.values().cloned().collect();
        let read = self.read_once;
        publish(&self.claims, Claims { claims, read, partial: false, deaf_since, problem: None });
    }
}

pub(super) fn gateway(
    value: &[u8],
    one_host: bool,
) -> Result<(Arc<str>, Arc<str>, MemberKind), String> {
    let stored: GatewayKey = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let address = dialable(&stored.address, one_host)?;
    Ok((is_id(&stored.id)?, address, MemberKind::Mvp))
}

pub(super) fn server(name: &str, value: &[u8]) -> Result<(Arc<str>, Arc<str>, MemberKind), String> {
    let address = stored::address(value).ok_or("the address is missing")?;
    Ok((is_id(name)?, dialable(&address, true)?, MemberKind::Bare))
}
