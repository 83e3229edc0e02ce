//! One computation for all open pages. Entry: [`Board`].
//!
//! While a page is open, everything is computed once a second, and at once when a member changes. While
//! none is, only the counters are noted from time to time, for the history.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use mvp_proxy::CallersReport;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::history::History;
use super::places::{Place, Places};
use super::rates::Rates;
use super::sections::{self, Content};
use crate::admin::apart::Apart;
use crate::operator::skew::Server;
use crate::report::{Answered, Status};

/// The interval of computations while a page is open, and of the look for changed members.
const ROUND: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(200);
/// The interval while no page is open.
const IDLE: Duration = Duration::from_secs(10);
/// The interval at which the other members are asked for their state.
const OTHERS: Duration = Duration::from_secs(3);
/// The interval at which callers are listed.
const CALLERS: Duration = Duration::from_secs(5);

/// The reports of other members.
pub(crate) type Others = Vec<Answered<Status>>;
/// Asks the other members for their reports.
type AskOthers = dyn Fn() -> Pin<Box<dyn Future<Output = Others> + Send>> + Send + Sync;

/// Where the data comes from. Each function may take a millisecond, but `marks`.
pub(crate) struct Sources {
    /// The report of this gateway; none while there is none to ask.
    pub(crate) status: Box<dyn Fn() -> Option<Status> + Send + Sync>,
    /// What each member serves.
    pub(crate) apis: Box<dyn Fn() -> Vec<Server> + Send + Sync>,
    /// Two numbers that change with the state of members, and with what they serve.
    pub(crate) marks: Box<dyn Fn() -> Marks + Send + Sync>,
    /// The callers of the last hour, with names of users; `None` if they are not recorded.
    pub(crate) callers: Box<dyn Fn() -> Option<CallersReport> + Send + Sync>,
    /// The reports of the other members.
    pub(crate) others: Box<AskOthers>,
}

/// Two numbers that change with the state of members, and with what they serve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) members: u64,
    pub(crate) apis: u64,
}

/// Who looks at a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Anybody on this host: without names of users, and without addresses.
    Anybody,
    /// Those who may know users and addresses.
    Trusted,
}

/// What all open pages show now.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(super) sections: BTreeMap<&'static str, Section>,
}

/// A part of the page. Its version changes with its content.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub(super) version: u64,
    content: Content<Arc<str>>,
}

impl Section {
    pub(super) fn shown_to(&self, audience: Audience) -> &str {
        match audience {
            Audience::Anybody => &self.content.anybody,
            Audience::Trusted => self.content.trusted.as_ref().unwrap_or(&self.content.anybody),
        }
    }
}

/// The computation, and the pages that show it.
pub(crate) struct Board {
    sources: Arc<Sources>,
    apart: Apart,
    frames: watch::Sender<Arc<Frame>>,
    places: Arc<Places>,
    opened: Notify,
    others: Mutex<(Instant, Others)>,
    all_apis: Mutex<Option<(u64, Bytes)>>,
    /// Ends all streams.
    end: CancellationToken,
}

impl Board {
    /// A board whose streams end with `end`.
    pub(crate) fn new(sources: Sources, end: CancellationToken) -> Arc<Board> {
        Arc::new(Board {
            sources: Arc::new(sources),
            apart: Apart::default(),
            frames: watch::Sender::default(),
            places: Arc::default(),
            opened: Notify::new(),
            others: Mutex::new((Instant::now(), Vec::new())),
            all_apis: Mutex::default(),
            end,
        })
    }

    /// Computes what pages show, for ever.
    pub(crate) async fn run(self: Arc<Board>) {
        let mut state = State::default();
        let mut asked: Option<(Instant, JoinHandle<()>)> = None;
        loop {
            let pages = self.places.count();
            // A slow member must not let questions pile up.
            let due = asked
                .as_ref()
                .is_none_or(|(begun, asking)| asking.is_finished() && begun.elapsed() >= OTHERS);
            if pages > 0 && due {
                asked = Some((Instant::now(), tokio::spawn(Arc::clone(&self).ask_others())));
            }
            let board = Arc::clone(&self);
            let round = move || {
                state.round(&board, pages > 0);
                state
            };
            // After a panic, which is in the log, it begins again.
            state = self.apart.run(round).await.unwrap_or_default();
            self.publish(&state);
            if pages == 0 {
                let _ = time::timeout(IDLE, self.opened.notified()).await;
            } else {
                self.next_round(state.marks).await;
            }
        }
    }

    async fn ask_others(self: Arc<Board>) {
        let others = (self.sources.others)().await;
        let told = (Instant::now(), others);
        *self.others.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    /// Waits for the next round: until a member changes, at most a second.
    async fn next_round(&self, marks: Marks) {
        let end = time::Instant::now() + ROUND;
        while time::Instant::now() < end {
            let _ = time::timeout(LOOK, self.opened.notified()).await;
            if (self.sources.marks)() != marks {
                return;
            }
        }
    }

    fn publish(&self, state: &State) {
        let versions = |sections: &BTreeMap<&'static str, Section>| -> Vec<(&'static str, u64)> {
            sections.iter().map(|(name, section)| (*name, section.version)).collect()
        };
        self.frames.send_if_modified(|frame| {
            let changed = versions(&frame.sections) != versions(&state.sections);
            if changed {
                *frame = Arc::new(Frame { sections: state.sections.clone() });
            }
            changed
        });
    }

    /// Opens a page; `None` if too many are open.
    pub(crate) fn open(&self, audience: Audience) -> Option<Viewer> {
        let place = self.places.take(audience)?;
        self.opened.notify_one();
        Some(Viewer {
            frames: self.frames.subscribe(),
            audience,
            end: self.end.clone(),
            _place: place,
        })
    }

    /// All APIs of all members, written once for each change; `None` if that failed.
    pub(super) async fn all_apis(self: &Arc<Board>) -> Option<Bytes> {
        let board = Arc::clone(self);
        let written = self.apart.run(move || {
            let mark = (board.sources.marks)().apis;
            let mut known = board.all_apis.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((of, text)) = &*known
                && *of == mark
            {
                return text.clone();
            }
            let text = Bytes::from(sections::skew(&(board.sources.apis)(), true).to_string());
            *known = Some((mark, text.clone()));
            text
        });
        written.await
    }
}

/// An open page.
pub(crate) struct Viewer {
    frames: watch::Receiver<Arc<Frame>>,
    audience: Audience,
    end: CancellationToken,
    _place: Place,
}

impl Viewer {
    pub(super) fn audience(&self) -> Audience {
        self.audience
    }

    /// Waits until there is something to show; `None` at the end of the process.
    pub(super) async fn first(&mut self) -> Option<()> {
        while self.frames.borrow().sections.is_empty() {
            self.changed().await?;
        }
        Some(())
    }

    /// What the page shows.
    pub(super) fn frame(&mut self) -> Arc<Frame> {
        Arc::clone(&self.frames.borrow_and_update())
    }

    /// Waits until that changes; `None` at the end of the process.
    pub(super) async fn changed(&mut self) -> Option<()> {
        tokio::select! {
            changed = self.frames.changed() => changed.ok(),
            () = self.end.cancelled() => None,
        }
    }
}

/// What is known from the rounds before.
#[derive(Default)]
struct State {
    history: History,
    rates: Rates,
    /// The counts of the others, by ID, and the time at which they were told.
    others: BTreeMap<String, Rates>,
    others_at: Option<Instant>,
    /// What differs between members, and the mark that it was computed for.
    skew: Option<(u64, Value)>,
    callers: Option<(Instant, Option<CallersReport>)>,
    marks: Marks,
    sections: BTreeMap<&'static str, Section>,
    /// The newest version of a section. Those after a panic begin higher than those before.
    version: u64,
}

impl State {
    /// Computes all sections or, while no page is open, notes the counters only.
    fn round(&mut self, board: &Board, watched: bool) {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.version == 0 {
            self.version = u64::try_from(clock.as_millis()).unwrap_or_default();
        }
        // Before the report: what changes meanwhile is seen in the next round.
        self.marks = (board.sources.marks)();
        let Some(status) = (board.sources.status)() else { return };
        let now = clock.as_secs();
        self.history.observe(now, &status);
        if !watched {
            return self.forget(board);
        }
        let (told, others) = board.others.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.observe_flow(&status, told, &others);
        let skew = self.skew(board);
        let callers = self.callers(board);
        let flow = self.flow(&status, &others);
        let id = sender(&status).to_owned();
        self.put("gateway", sections::gateway(&status, clock));
        self.put("findings", sections::findings(&status));
        self.put("members", sections::members(&status, clock));
        // What others tell was true when they told it.
        let others_at = clock.saturating_sub(told.elapsed());
        self.put("others", sections::others(&others, others_at));
        self.put("averted", Content::of(sections::averted(&status, self.history.averted(now))));
        let (refused, recent) = self.history.refused(now);
        self.put("refusals", Content::of(sections::refusals(&status, &refused, &recent)));
        self.put("certificates", Content::of(sections::certificates(&status)));
        self.put("flow", Content::of(sections::flow(&id, status.flow_recorded, flow)));
        self.put("callers", sections::callers(callers.as_ref(), now));
        self.put("skew", Content::of(skew));
    }

    /// Forgets all but the history: the next page must not show what was long ago.
    fn forget(&mut self, board: &Board) {
        let (history, marks) = (std::mem::take(&mut self.history), self.marks);
        *self = State { history, marks, version: self.version, ..State::default() };
        let nothing = (Instant::now(), Vec::new());
        *board.others.lock().unwrap_or_else(PoisonError::into_inner) = nothing;
    }

    fn observe_flow(&mut self, status: &Status, told: Instant, others: &Others) {
        self.rates.observe(Instant::now(), &status.flow);
        if self.others_at == Some(told) {
            return;
        }
        self.others_at = Some(told);
        let reports =
            others.iter().filter_map(|other| Some((other.id.clone()?, other.status.as_ref()?)));
        let mut known = std::mem::take(&mut self.others);
        for (id, report) in reports {
            // Those that are gone are left behind.
            let mut rates = known.remove(&id).unwrap_or_default();
            rates.observe(told, &report.flow);
            self.others.insert(id, rates);
        }
    }

    fn flow(&self, status: &Status, others: &Others) -> Vec<Value> {
        let mut edges = self.rates.edges(sender(status));
        for (id, rates) in &self.others {
            let answers = |other: &&Answered<Status>| other.id.as_ref() == Some(id);
            if others.iter().find(answers).is_some_and(|other| other.status.is_some()) {
                edges.extend(rates.edges(id));
            }
        }
        edges
    }

    /// What differs between members.
    fn skew(&mut self, board: &Board) -> Value {
        let mark = self.marks.apis;
        let known = self.skew.take().filter(|(of, _)| *of == mark);
        let fresh = || (mark, sections::skew(&(board.sources.apis)(), false));
        self.skew.insert(known.unwrap_or_else(fresh)).1.clone()
    }

    fn callers(&mut self, board: &Board) -> Option<CallersReport> {
        let fresh = |(at, _): &(Instant, _)| at.elapsed() < CALLERS;
        if !self.callers.as_ref().is_some_and(fresh) {
            self.callers = Some((Instant::now(), (board.sources.callers)()));
        }
        self.callers.as_ref().and_then(|(_, report)| report.clone())
    }

    /// Sets the content of a section. Its version changes only with the content.
    fn put(&mut self, name: &'static str, content: Content<Value>) {
        let content = content.map(|value| Arc::from(value.to_string()));
        if self.sections.get(name).is_none_or(|section| section.content != content) {
            self.version = self.version.saturating_add(1);
            self.sections.insert(name, Section { version: self.version, content });
        }
    }
}

/// The gateway as a sender of requests: a load balancer is no member.
fn sender(status: &Status) -> &str {
    status.id.as_deref().unwrap_or("load balancer")
}

#[cfg(test)]
pub(crate) mod tests;
