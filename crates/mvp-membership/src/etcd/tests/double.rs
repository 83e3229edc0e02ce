//! An etcd with one member in this process, controlled by the test. Entry item: [`Double`].

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::stream::{self, StreamExt};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic)]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/double/etcdserverpb.rs"));
}

use proto::event::EventType;
use proto::kv_server::{Kv, KvServer};
use proto::lease_server::{Lease, LeaseServer};
use proto::watch_request::RequestUnion;
use proto::watch_server::{Watch, WatchServer};
use proto::{
    Event, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, ResponseHeader, WatchRequest, WatchResponse,
};

/// Ends when its last clone is dropped.
#[derive(Clone)]
pub(super) struct Double {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<WatchResponse>,
    _task: Arc<Ends>,
}

struct Ends(JoinHandle<()>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Default)]
struct State {
    revision: i64,
    keys: BTreeMap<Vec<u8>, KeyValue>,
    /// The keys under each lease.
    leases: BTreeMap<i64, BTreeSet<Vec<u8>>>,
    granted: i64,
    forbids: bool,
    /// All changes so far, for watches from an earlier revision on.
    log: Vec<WatchResponse>,
}

impl Double {
    pub(super) async fn start() -> Double {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (changes, _) = broadcast::channel(64);
        let state = Arc::new(Mutex::new(State { revision: 1, ..State::default() }));
        let service = Service { state: Arc::clone(&state), changes: changes.clone() };
        let served = Server::builder()
            .add_service(KvServer::new(service.clone()))
            .add_service(WatchServer::new(service.clone()))
            .add_service(LeaseServer::new(service))
            .serve_with_incoming(TcpIncoming::from(listener));
        let task = tokio::spawn(async { served.await.unwrap() });
        Double { url, state, changes, _task: Arc::new(Ends(task)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// All keys.
    pub(super) fn keys(&self) -> Vec<String> {
        let state = self.state();
        state.keys.keys().map(|key| String::from_utf8(key.clone()).unwrap()).collect()
    }

    pub(super) fn leases(&self) -> Vec<i64> {
        self.state().leases.keys().copied().collect()
    }

    pub(super) fn put(&self, key: &str, value: &str) {
        let change = self.state().put(key.as_bytes(), value.as_bytes(), 0);
        let _ = self.changes.send(change);
    }

    /// Deletes a key.
    pub(super) fn delete(&self, key: &str) {
        let change = self.state().delete(key.as_bytes());
        let _ = self.changes.send(change);
    }

    /// Deletes a key without an event, and compacts the revision away.
    pub(super) fn delete_and_compact(&self, key: &str) {
        let mut state = self.state();
        state.delete(key.as_bytes());
        let compact_revision = state.revision;
        let cancel_reason = "etcdserver: mvcc: required revision has been compacted".to_owned();
        let canceled =
            WatchResponse { canceled: true, compact_revision, cancel_reason, ..header(&state) };
        drop(state);
        let _ = self.changes.send(canceled);
    }

    /// Ends all leases, and deletes their keys.
    pub(super) fn end_leases(&self) {
        for lease in self.leases() {
            self.revoke(lease);
        }
    }

    fn revoke(&self, lease: i64) -> bool {
        revoke(&self.state, &self.changes, lease)
    }

    /// Denies writes from now on, or allows them.
    pub(super) fn forbid(&self, forbids: bool) {
        self.state().forbids = forbids;
    }
}

fn revoke(state: &Mutex<State>, changes: &broadcast::Sender<WatchResponse>, lease: i64) -> bool {
    let mut state = state.lock().unwrap();
    let keys = state.leases.remove(&lease);
    let known = keys.is_some();
    for key in keys.into_iter().flatten() {
        if state.keys.contains_key(&key) {
            let _ = changes.send(state.delete(&key));
        }
    }
    known
}

fn header(state: &State) -> WatchResponse {
    let header = Some(ResponseHeader { revision: state.revision });
    WatchResponse { header, ..WatchResponse::default() }
}

impl State {
    fn put(&mut self, key: &[u8], value: &[u8], lease: i64) -> WatchResponse {
        self.revision += 1;
        let created = self.keys.get(key).map_or(self.revision, |known| known.create_revision);
        let kv = KeyValue { key: key.into(), create_revision: created, value: value.into() };
        self.keys.insert(key.into(), kv.clone());
        // A key is under one lease at a time.
        self.leases.values_mut().for_each(|keys| {
            keys.remove(key);
        });
        if let Some(keys) = self.leases.get_mut(&lease) {
            keys.insert(key.into());
        }
        self.logged(Event { r#type: EventType::Put.into(), kv: Some(kv) })
    }

    fn logged(&mut self, event: Event) -> WatchResponse {
        let change = WatchResponse { events: vec![event], ..header(self) };
        self.log.push(change.clone());
        change
    }

    fn delete(&mut self, key: &[u8]) -> WatchResponse {
        self.revision += 1;
        self.keys.remove(key);
        let kv = Some(KeyValue { key: key.into(), ..KeyValue::default() });
        self.logged(Event { r#type: EventType::Delete.into(), kv })
    }

    /// The events of these keys from that revision on.
    fn since(&self, watched: &Watched, revision: i64) -> Vec<Event> {
        let later = |change: &&WatchResponse| change.header.unwrap().revision >= revision;
        let events = self.log.iter().filter(later).flat_map(|change| change.events.clone());
        events.filter(|event| watched.sees(event)).collect()
    }
}

fn within(key: &[u8], from: &[u8], end: &[u8]) -> bool {
    if end.is_empty() { key == from } else { from <= key && key < end }
}

/// The keys of a watch.
struct Watched {
    from: Vec<u8>,
    end: Vec<u8>,
}

impl Watched {
    fn sees(&self, event: &Event) -> bool {
        event.kv.as_ref().is_some_and(|kv| within(&kv.key, &self.from, &self.end))
    }
}

#[derive(Clone)]
struct Service {
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<WatchResponse>,
}

type Answers<T> = Pin<Box<dyn futures_util::Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Kv for Service {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let RangeRequest { key, range_end } = request.into_inner();
        let state = self.state.lock().unwrap();
        let wanted = state.keys.values().filter(|kv| within(&kv.key, &key, &range_end));
        let (kvs, header) = (wanted.cloned().collect(), header(&state).header);
        Ok(Response::new(RangeResponse { header, kvs }))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let PutRequest { key, value, lease } = request.into_inner();
        let mut state = self.state.lock().unwrap();
        if state.forbids {
            return Err(Status::permission_denied("etcdserver: permission denied"));
        }
        if !state.leases.contains_key(&lease) {
            return Err(Status::not_found("etcdserver: requested lease not found"));
        }
        let change = state.put(&key, &value, lease);
        let header = change.header;
        let _ = self.changes.send(change);
        Ok(Response::new(PutResponse { header }))
    }
}

#[tonic::async_trait]
impl Lease for Service {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let mut state = self.state.lock().unwrap();
        state.granted += 1;
        let id = state.granted;
        state.leases.insert(id, BTreeSet::new());
        Ok(Response::new(LeaseGrantResponse { id, ttl: request.into_inner().ttl }))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        match revoke(&self.state, &self.changes, request.into_inner().id) {
            true => Ok(Response::new(LeaseRevokeResponse {})),
            false => Err(Status::not_found("etcdserver: requested lease not found")),
        }
    }

    type LeaseKeepAliveStream = Answers<LeaseKeepAliveResponse>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let state = Arc::clone(&self.state);
        let answers = request.into_inner().map(move |beat| {
            let id = beat?.id;
            let lives = state.lock().unwrap().leases.contains_key(&id);
            Ok(LeaseKeepAliveResponse { id, ttl: if lives { 15 } else { 0 } })
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

#[tonic::async_trait]
impl Watch for Service {
    type WatchStream = Answers<WatchResponse>;

    /// Events that come while a watch is accepted may be sent twice.
    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let mut requests = request.into_inner();
        let (state, mut changes) = (Arc::clone(&self.state), self.changes.subscribe());
        let (sender, receiver) = tokio::sync::mpsc::channel(64);
        tokio::spawn(async move {
            let mut all: Vec<Watched> = Vec::new();
            loop {
                let answer = tokio::select! {
                    Ok(Some(asked)) = requests.message() => {
                        let Some(RequestUnion::CreateRequest(create)) = asked.request_union else {
                            continue;
                        };
                        let watched = Watched { from: create.key, end: create.range_end };
                        let events = state.lock().unwrap().since(&watched, create.start_revision);
                        all.push(watched);
                        WatchResponse { created: true, events, ..WatchResponse::default() }
                    }
                    change = changes.recv() => {
                        let Ok(mut change) = change else { return };
                        change.events.retain(|event| all.iter().any(|watched| watched.sees(event)));
                        change
                    }
                };
                if sender.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        let answers = stream::unfold(receiver, async |mut receiver| {
            let answer = receiver.recv().await?;
            Some((answer, receiver))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}
