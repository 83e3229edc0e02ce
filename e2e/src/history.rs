//! Clients that read, write and watch the same few objects through all gateways at once, and record
//! what they see. `testkit::history` judges it. Entry item: [`History::start`].

mod client;
mod reply;
mod watcher;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Method;
use serde_json::{Value as Json, json};
use testkit::history::linear::{Action, Operation, Reply};
use testkit::history::watched::{self, Outcome, Version, Watched, Written};
use testkit::history::{Moment, Recorder, Value};
use testkit::process::until;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::{Answer, Client, Connection};
use crate::load::Subject;
use crate::tally::Tally;

/// The extent of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) objects: usize,
    /// At each gateway.
    pub(crate) clients: usize,
    /// Of each client, after each request.
    pub(crate) pause: Duration,
}

/// A running load on the objects of one collection.
pub(crate) struct History {
    record: Arc<Record>,
    extent: Extent,
    addresses: Vec<SocketAddr>,
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    watchers: Vec<JoinHandle<Watched<String>>>,
}

/// What all clients of a load share.
struct Record {
    client: Client,
    subject: Subject,
    since: Instant,
    last_value: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    recorder: Recorder<String>,
    written: Vec<Written<String>>,
    answers: Tally,
    /// Answers that no server should give.
    faults: Vec<String>,
}

/// The results of a load that was found to be right.
#[derive(Debug, Clone, Default)]
pub(crate) struct Judged {
    pub(crate) linear: testkit::history::Checked,
    pub(crate) watched: watched::Checked,
    pub(crate) watchers: usize,
    pub(crate) answers: Tally,
}

/// The last object, which every watcher waits for.
const LAST: &str = "the-end";

impl Drop for History {
    fn drop(&mut self) {
        self.clients.iter().for_each(JoinHandle::abort);
        self.watchers.iter().for_each(JoinHandle::abort);
    }
}

impl History {
    /// Starts one watcher at each address, and clients once all watchers have listed. None of the
    /// objects may exist.
    pub(crate) async fn start(
        client: &Client,
        addresses: &[SocketAddr],
        subject: Subject,
        extent: Extent,
    ) -> anyhow::Result<History> {
        let record = Arc::new(Record {
            client: client.clone(),
            subject,
            since: Instant::now(),
            last_value: AtomicU64::new(0),
            seen: Mutex::default(),
        });
        let over = Arc::new(AtomicBool::new(false));
        let listed = Arc::<AtomicUsize>::default();
        let watch = |to: &SocketAddr| {
            tokio::spawn(watcher::watch(Arc::clone(&record), *to, Arc::clone(&listed)))
        };
        let watchers: Vec<_> = addresses.iter().map(watch).collect();
        until("every watcher has listed", WITHIN, async || {
            Ok((listed.load(Ordering::Relaxed) == watchers.len()).then_some(()))
        })
        .await?;
        let places = (0..extent.clients).flat_map(|_| addresses).enumerate();
        let clients = places.map(|(number, to)| {
            let worker =
                client::Worker::new(number, *to, extent, Arc::clone(&record), Arc::clone(&over));
            tokio::spawn(worker.run())
        });
        let clients = clients.collect();
        let addresses = addresses.to_vec();
        Ok(History { record, extent, addresses, over, clients, watchers })
    }

    /// Stops the clients, reads every object once more at every address, and judges all of it.
    pub(crate) async fn end(mut self) -> anyhow::Result<Judged> {
        self.over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.await?;
        }
        for (number, to) in self.addresses.iter().enumerate() {
            let mut caller = Caller { number, to: *to, connection: None };
            for object in 0..self.extent.objects {
                let object = self.record.name(object);
                until(&format!("a last read of {object} at {to}"), WITHIN, async || {
                    let read = self.record.perform(&mut caller, &object, Request::Read).await;
                    Ok(read.filter(|read| matches!(read.reply, Reply::Saw(_))))
                })
                .await?;
            }
        }
        let last = self.record.mark(*self.addresses.first().context("no address")?).await?;
        let watchers = self.watchers.len();
        let mut watched = Vec::new();
        for (watcher, to) in self.watchers.drain(..).zip(&self.addresses) {
            let seen = timeout(WITHIN, watcher).await;
            watched.push(seen.with_context(|| format!("a watcher at {to} never saw the end"))??);
        }
        let seen = self.record.seen();
        if let Some(fault) = seen.faults.first() {
            anyhow::bail!("{} wrong answers, the first: {fault}", seen.faults.len());
        }
        let linear = seen.recorder.check()?;
        let watched = watched::check(&watched, &seen.written, last).context("watches")?;
        Ok(Judged { linear, watched, watchers, answers: seen.answers.clone() })
    }
}

/// The time limit of the last requests, at servers that may just have started.
const WITHIN: Duration = Duration::from_secs(60);

/// The time limit of a client. It gives up, and does not know what happened.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client at one address, with a connection that it keeps.
struct Caller {
    number: usize,
    to: SocketAddr,
    connection: Option<Connection>,
}

impl Caller {
    /// Sends a request. Fails if the client loses patience.
    async fn send(
        &mut self,
        client: &Client,
        (method, path, body): (Method, String, Option<(&'static str, Json)>),
    ) -> anyhow::Result<Answer> {
        let exchange = async {
            let mut kept = self.connection.take();
            if let Some(connection) = &mut kept
                && !connection.is_ready().await
            {
                kept = None;
            }
            let mut connection = match kept {
                Some(connection) => connection,
                None => client.connect(self.to).await?,
            };
            let body = body.as_ref().map(|(kind, body)| (*kind, body));
            let answer = connection.send(method, &path, body).await?;
            anyhow::Ok((connection, answer))
        };
        let (connection, answer) = timeout(PATIENCE, exchange).await.context("gave up")??;
        self.connection = Some(connection);
        Ok(answer)
    }
}

/// The reply to a request, and the value and version that the object has by it.
#[derive(Debug, Clone, Copy)]
struct Performed {
    reply: Reply,
    now: Option<(Value, Version)>,
}

/// A request, with the resource version that it depends on.
#[derive(Debug, Clone, Copy)]
enum Request {
    Read,
    Create,
    Update { from: Value, version: Version },
    Patch,
    Delete,
    DeleteIf { from: Value, version: Version },
}

impl Record {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, object: usize) -> String {
        format!("{}-{object}", self.subject.tag)
    }

    fn moment(&self) -> Moment {
        self.seen().recorder.moment(self.since.elapsed())
    }

    /// Sends a request and records it, unless it certainly did not happen.
    async fn perform(
        &self,
        caller: &mut Caller,
        object: &str,
        request: Request,
    ) -> Option<Performed> {
        let value = self.last_value.fetch_add(1, Ordering::Relaxed) + 1;
        let (action, state) = match request {
            Request::Read => (Action::Read, None),
            Request::Create => (Action::Create(value), Some(value)),
            Request::Update { from, .. } => (Action::Update { from, to: value }, Some(value)),
            Request::Patch => (Action::Write(value), Some(value)),
            Request::Delete => (Action::Delete, None),
            Request::DeleteIf { from, .. } => (Action::DeleteIf(from), None),
        };
        let called = self.moment();
        let answer = caller.send(&self.client, self.encode(object, request, value)).await;
        let returned = self.moment();
        let mut seen = self.seen();
        seen.answers.one(Tally::key(&answer));
        let body = answer.as_ref().ok().map(Answer::json).unwrap_or_default();
        let now = number(&body).zip(version_of(&body));
        let reply = reply::of(action, object, &answer, &body).and_then(|reply| {
            let is_own = state.is_none() || now.is_some_and(|(now, _)| Some(now) == state);
            match reply {
                Some(Reply::Done) if !is_own => Err(format!("another value: {now:?}")),
                reply => Ok(reply),
            }
        });
        let reply = match reply {
            Ok(reply) => reply?,
            Err(fault) => {
                let to = caller.to;
                seen.faults.push(format!("{action:?} of {object} at {to}, {returned}: {fault}"));
                return None;
            }
        };
        let operation = Operation { client: caller.number, action, reply, called, returned };
        seen.recorder.add(object.to_owned(), operation);
        let outcome = match reply {
            Reply::Done => Some(Outcome::Done(now.map(|(_, version)| version))),
            Reply::Unclear => Some(Outcome::Unclear),
            Reply::Saw(_) | Reply::Conflict | Reply::Missing => None,
        };
        let written = outcome.map(|outcome| Written { object: object.to_owned(), state, outcome });
        seen.written.extend(written);
        Some(Performed { reply, now })
    }

    /// The method, path and body of a request.
    fn encode(
        &self,
        object: &str,
        request: Request,
        value: Value,
    ) -> (Method, String, Option<(&'static str, Json)>) {
        let collection = &self.subject.collection;
        let (path, number) = (format!("{collection}/{object}"), value.to_string());
        let plain = "application/json";
        match request {
            Request::Read => (Method::GET, path, None),
            Request::Create => {
                let body = self.subject.object(&number, json!({"name": object}));
                (Method::POST, collection.clone(), Some((plain, body)))
            }
            Request::Update { version, .. } => {
                let metadata = json!({"name": object, "resourceVersion": version.to_string()});
                (Method::PUT, path, Some((plain, self.subject.object(&number, metadata))))
            }
            Request::Patch => {
                let body = json!({"metadata": {"labels": {"number": number}}});
                (Method::PATCH, path, Some(("application/merge-patch+json", body)))
            }
            Request::Delete => (Method::DELETE, path, None),
            Request::DeleteIf { version, .. } => {
                let body = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions",
                    "preconditions": {"resourceVersion": version.to_string()},
                });
                (Method::DELETE, path, Some((plain, body)))
            }
        }
    }

    /// Creates the last object, and returns its version.
    async fn mark(&self, to: SocketAddr) -> anyhow::Result<Version> {
        let name = format!("{LAST}-{}", self.subject.tag);
        let mut caller = Caller { number: 0, to, connection: None };
        until("the last object is created", WITHIN, async || {
            let made = self.perform(&mut caller, &name, Request::Create).await;
            let made = match made {
                // By an attempt before this one.
                Some(Performed { reply: Reply::Conflict, .. }) => {
                    self.perform(&mut caller, &name, Request::Read).await
                }
                made => made,
            };
            Ok(made.and_then(|made| made.now).map(|(_, version)| version))
        })
        .await
    }
}

fn number(object: &Json) -> Option<Value> {
    crate::load::number(object)?.parse().ok()
}

fn version_of(object: &Json) -> Option<Version> {
    object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

impl Judged {
    /// Adds the figures of another load.
    pub(crate) fn add(&mut self, other: &Judged) {
        self.linear.objects += other.linear.objects;
        self.linear.operations += other.linear.operations;
        self.linear.unclear += other.linear.unclear;
        self.linear.visited += other.linear.visited;
        self.watched.changes += other.watched.changes;
        self.watched.events += other.watched.events;
        self.watched.lists += other.watched.lists;
        self.watched.gaps += other.watched.gaps;
        self.watchers += other.watchers;
        self.answers.add(&other.answers);
    }
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Judged { linear, watched, watchers, answers } = self;
        write!(
            f,
            "{} operations on {} objects ({} of unclear outcome) are linearizable; {watchers} \
             watchers saw {} changes once and in order, with {} lists and {} gaps; answers {answers}",
            linear.operations,
            linear.objects,
            linear.unclear,
            watched.changes,
            watched.lists,
            watched.gaps,
        )
    }
}
