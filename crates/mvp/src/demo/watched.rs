//! The dashboard of the demo: one page for all servers of its process. Entry: [`Watched::serve`].

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use mvp_net::bind;
use mvp_proxy::{Flow, Member, Metrics};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::dashboard;
use crate::dashboard::board::{Audience, Board, Marks, Sources};
use crate::health::Probes;
use crate::inside;
use crate::report::Answered;
use crate::report::gather::Reporter;

/// The server whose page it is, while it runs: the one that needs the others most.
const FIRST: &str = "server-b";
/// The interval at which servers fetch discovery.
const REFRESH: Duration = Duration::from_secs(1);

/// The servers that run.
#[derive(Clone, Default)]
pub(super) struct Watched(Arc<Mutex<BTreeMap<&'static str, Arc<One>>>>);

/// A server that runs.
struct One {
    reporter: Reporter,
    member: Member,
}

impl Watched {
    /// Adds a server that starts.
    pub(super) fn add(&self, id: &'static str, member: &Member, stop: &CancellationToken) {
        let reader = member.reader().clone();
        let (published, ready) = (reader.clone(), reader.clone());
        let age = move || published.now().since(published.load().built());
        let probes = Arc::new(Probes::new(stop.clone(), age, REFRESH));
        probes.ready_when(Arc::new(move || inside::readiness(&ready, None)));
        let (metrics, flow) = (Arc::clone(member.metrics()), Arc::clone(member.metrics()));
        let reporter = Reporter {
            id: member.id().cloned(),
            reader,
            probes,
            metrics: Arc::new(move |text| Metrics::encode(&metrics, text)),
            conflicts: Box::new(Vec::new),
            steering: Box::new(|| None),
            connection_limit: 0,
            flow: Box::new(move || flow.flow().map(Flow::counts)),
        };
        let one = Arc::new(One { reporter, member: member.clone() });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, one);
    }

    /// Removes a server that ends.
    pub(super) fn remove(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// The server whose page it is.
    fn first(&self) -> Option<Arc<One>> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.get(FIRST).or_else(|| running.values().next()).cloned()
    }

    fn others(&self) -> Vec<Arc<One>> {
        let first = self.first().and_then(|one| one.member.id().cloned());
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.values().filter(|one| one.member.id() != first.as_ref()).cloned().collect()
    }

    /// Serves the page on this port of loopback, or on a free one. Returns its URL.
    pub(super) fn serve(&self, port: u16, stop: &CancellationToken) -> anyhow::Result<String> {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = bind(at(port), false).or_else(|_| bind(at(0), false));
        let listener = TcpListener::from_std(listener.context("cannot listen on loopback")?)?;
        let url = dashboard::url("http", listener.local_addr()?);
        let board = Board::new(self.sources(), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(Arc::clone(&board).run()));
        let routes = dashboard::routes(board, Audience::Trusted);
        let served = axum::serve(listener, dashboard::protected(routes, Arc::default()));
        tokio::spawn(stop.clone().run_until_cancelled_owned(served.into_future()));
        Ok(url)
    }

    fn sources(&self) -> Sources {
        let of = || self.clone();
        let (status, apis, marks, callers, others) = (of(), of(), of(), of(), of());
        Sources {
            status: Box::new(move || Some(status.first()?.reporter.status())),
            apis: Box::new(move || {
                apis.first().map_or_else(Vec::new, |one| dashboard::servers(one.member.reader()))
            }),
            marks: Box::new(move || {
                marks.first().map_or_else(Marks::default, |one| inside::marks(one.member.reader()))
            }),
            callers: Box::new(move || {
                let one = callers.first()?;
                crate::callers::described(one.member.metrics(), one.member.reader(), false)
            }),
            others: Box::new(move || {
                let answered = |one: &Arc<One>| Answered::own(one.reporter.status());
                let reports = others.others().iter().map(answered).collect();
                Box::pin(async move { reports })
            }),
        }
    }
}
