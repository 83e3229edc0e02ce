//! A steady stream of new connections, each with one request, that records what became of each.
//! Entry item: [`Stream::start`].

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::{LIVEZ, who};
use crate::client::{Answer, Client};
use crate::tally::Tally;

/// The time between two connections.
const PACE: Duration = Duration::from_millis(10);
/// The most connections at once. A hung server holds those of the stream for a while only.
const AT_ONCE: usize = 512;
/// Every other request is one that both serve.
const READ: &str = "/api/v1/namespaces/default";

/// What became of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    /// `mvp` or `server` answered, or `read` by either; otherwise the failure.
    pub(crate) what: String,
}

impl Told {
    pub(crate) fn failed(&self) -> bool {
        !["mvp", "server", "read"].contains(&self.what.as_str())
    }
}

/// A running stream.
pub(crate) struct Stream {
    told: Arc<Mutex<Vec<Told>>>,
    under_way: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream {
    pub(crate) fn start(client: &Client, to: SocketAddr) -> Stream {
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let under_way = Arc::new(Semaphore::new(AT_ONCE));
        let (client, record, permits) = (client.clone(), Arc::clone(&told), Arc::clone(&under_way));
        let task = tokio::spawn(async move {
            let mut pace = interval(PACE);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for number in 0_u64.. {
                pace.tick().await;
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                let (client, record) = (client.clone(), Arc::clone(&record));
                tokio::spawn(async move {
                    let asked = Instant::now();
                    let path = if number % 2 == 0 { LIVEZ } else { READ };
                    let what = outcome(path, client.get(to, path).await);
                    let told = Told { asked, answered: Instant::now(), what };
                    if let Ok(mut record) = record.lock() {
                        record.push(told);
                    }
                    drop(permit);
                });
            }
        });
        Stream { told, under_way, task }
    }

    /// Waits until at least this many more connections were answered.
    pub(crate) async fn goes_on(&self, count: usize) -> anyhow::Result<()> {
        let before = self.len();
        let what = format!("{count} more connections are answered");
        testkit::process::until(&what, Duration::from_secs(60), async || {
            Ok((self.len() >= before + count).then_some(()))
        })
        .await
    }

    /// Waits until the answer of a connection that began after a moment came from this side.
    pub(crate) async fn until_answered_by(
        &self,
        side: &str,
        after: Instant,
    ) -> anyhow::Result<Told> {
        let what = format!("a new connection is answered by {side}");
        testkit::process::until(&what, Duration::from_secs(60), async || {
            let found = self.after(after).into_iter().filter(|told| told.what == side);
            Ok(found.min_by_key(|told| told.asked))
        })
        .await
    }

    /// Ends the stream, waits for what is under way, and returns everything.
    pub(crate) async fn end(self) -> anyhow::Result<Vec<Told>> {
        self.task.abort();
        let all = u32::try_from(AT_ONCE)?;
        let ended = self.under_way.acquire_many(all);
        drop(tokio::time::timeout(Duration::from_secs(60), ended).await??);
        Ok(self.told.lock().map(|told| told.clone()).unwrap_or_default())
    }

    /// Those that began after a moment and have ended.
    pub(crate) fn after(&self, moment: Instant) -> Vec<Told> {
        let told = self.told.lock().map(|told| told.clone()).unwrap_or_default();
        told.into_iter().filter(|told| told.asked > moment).collect()
    }

    /// Those that failed so far.
    pub(crate) fn failed(&self) -> Vec<Told> {
        let told = self.told.lock().map(|told| told.clone()).unwrap_or_default();
        told.into_iter().filter(Told::failed).collect()
    }

    /// Fails if any connection failed so far.
    pub(crate) fn none_failed(&self) -> anyhow::Result<()> {
        let failed = self.failed();
        ensure!(failed.is_empty(), "{} connections failed: {}", failed.len(), tally(&failed));
        Ok(())
    }

    fn len(&self) -> usize {
        self.told.lock().map(|told| told.len()).unwrap_or_default()
    }
}

/// The outcomes by kind.
pub(crate) fn tally(told: &[Told]) -> Tally {
    let mut tally = Tally::default();
    told.iter().for_each(|told| tally.one(told.what.clone()));
    tally
}

fn outcome(path: &str, outcome: anyhow::Result<Answer>) -> String {
    match outcome {
        Ok(answer) if path == LIVEZ => match who(answer.status.as_u16(), &answer.body) {
            Ok(who) => who.to_owned(),
            Err(_) => answer.to_string(),
        },
        Ok(answer) if answer.status == 200 => "read".to_owned(),
        Ok(answer) => answer.to_string(),
        Err(error) => failure(&error),
    }
}

/// The kind of a connection's failure.
pub(super) fn failure(error: &anyhow::Error) -> String {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    let kind = kinds.map(std::io::Error::kind).last();
    let incomplete = error.chain().any(|cause| {
        cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message)
    });
    match kind {
        Some(ErrorKind::ConnectionRefused) => REFUSED.to_owned(),
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => RESET.to_owned(),
        Some(ErrorKind::UnexpectedEof) => CLOSED.to_owned(),
        _ if incomplete => CLOSED.to_owned(),
        _ if error.root_cause().to_string().contains("no answer") => "timed out".to_owned(),
        _ => error.root_cause().to_string(),
    }
}

pub(super) const REFUSED: &str = "refused";
pub(super) const RESET: &str = "reset";
pub(super) const CLOSED: &str = "closed";
