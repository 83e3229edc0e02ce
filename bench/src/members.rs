//! Many members and the API server beside the gateway, in a process of their own: the Leases by
//! which the gateway finds members, and the documents it fetches. Entry item: [`serve`].
//!
//! Each member renews its Lease as a gateway does, and changes as listed in [`changes`]: it leaves
//! and returns, moves, is upgraded or downgraded, or serves a group more or less.

mod changes;
mod leases;
mod views;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::backend::{self, AGGREGATED, Body, JSON, answer, serve_at};
use changes::{Change, Changes};
use leases::Leases;
use testkit::pki::PkiFiles;
use views::{Release, View};

/// The interval of gateways.
const HEARTBEAT: Duration = Duration::from_secs(5);
const SEED: u64 = 9;

/// The API server beside the gateway. It does not serve `batch/v1`, which every member serves.
pub(crate) const LOCAL: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 78, 0, 10)), 6443);

/// The path that sets the number of changes per minute.
pub(crate) fn control_path(changes_a_minute: usize) -> String {
    format!("/bench/changes/{changes_a_minute}")
}

/// The path that returns the counts so far, as JSON.
pub(crate) const TALLY_PATH: &str = "/bench/tally";

/// The path that makes the first member serve a group more, or that group no longer.
pub(crate) const CHANGE_PATH: &str = "/bench/change";

/// The group of [`CHANGE_PATH`].
pub(crate) fn changing_group() -> String {
    views::changing(0)
}

/// The legacy document of a group that every server has.
pub(crate) fn legacy_path(group: usize) -> String {
    format!("/apis/{}/v1", views::unchanging(group))
}

/// Serves until it is killed. Every server has this many custom resource groups.
pub(crate) async fn serve(pki: &PkiFiles, count: usize, groups: usize) -> anyhow::Result<()> {
    let crowd = Arc::new(Crowd::new(count, groups)?);
    let tls = backend::tls(pki)?;
    let mut servers = Vec::new();
    for index in 0..count {
        for place in 0..PLACES {
            let crowd = Arc::clone(&crowd);
            let instance = HeaderValue::try_from(leases::holder(index, address(index, place)))?;
            let member = move |request| {
                let mut response = crowd.answer(&request, Some(index));
                // A gateway identifies itself.
                response.headers_mut().insert("x-mvp-instance", instance.clone());
                future::ready(response)
            };
            servers.push(tokio::spawn(serve_at(address(index, place), tls.clone(), member)));
        }
    }
    let local = Arc::clone(&crowd);
    let local = move |request| {
        let crowd = Arc::clone(&local);
        async move { crowd.answer_local(request).await }
    };
    servers.push(tokio::spawn(serve_at(LOCAL, tls, local)));
    tokio::spawn(beat(Arc::clone(&crowd)));
    tokio::spawn(change(crowd));
    for server in servers {
        server.await??;
    }
    Ok(())
}

/// The number of addresses that a member moves between.
const PLACES: u8 = 2;

fn address(member: usize, place: u8) -> SocketAddr {
    let host = u8::try_from(member + 1).unwrap_or(u8::MAX);
    (Ipv4Addr::new(127, 78, 1 + place, host), 6443).into()
}

struct Crowd {
    releases: [Release; 2],
    members: Vec<Mutex<Member>>,
    /// The documents of the local server.
    local: View,
    leases: Leases,
    lists: backend::State,
    changes_a_minute: watch::Sender<usize>,
    changed: AtomicUsize,
    asked: AtomicUsize,
    /// The number of discovery documents that were sent in full.
    sent: AtomicUsize,
}

struct Member {
    place: u8,
    present: bool,
    release: usize,
    /// The custom resource groups, as bits.
    groups: u8,
    view: Arc<View>,
    was_asked: bool,
}

impl Crowd {
    fn new(count: usize, groups: usize) -> anyhow::Result<Crowd> {
        let releases = Release::recorded(groups)?;
        let member = |index: usize| {
            let release = index % releases.len();
            let view = Arc::new(views::of(&releases, release, 0)?);
            let member =
                Member { place: 0, present: true, release, groups: 0, view, was_asked: false };
            anyhow::Ok(Mutex::new(member))
        };
        let members = (0..count).map(member).collect::<anyhow::Result<Vec<_>>>()?;
        let leases = Leases::default();
        for index in 0..count {
            leases.renew(index, address(index, 0));
        }
        let [old, _] = &releases;
        Ok(Crowd {
            local: old.view(0, Some("batch"))?,
            releases,
            members,
            leases,
            lists: backend::State::new(0),
            changes_a_minute: watch::Sender::new(0),
            changed: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
        })
    }

    /// The response of a member, or of the local server.
    fn answer(&self, request: &Request<Incoming>, member: Option<usize>) -> Response<Body> {
        let path = request.uri().path();
        let member = member.and_then(|index| self.members.get(index));
        let view = member.map(|member| {
            let mut member = member.lock().unwrap_or_else(PoisonError::into_inner);
            member.was_asked |= path == "/apis";
            Arc::clone(&member.view)
        });
        let view = view.as_deref().unwrap_or(&self.local);
        match path {
            "/api" | "/apis" | "/openapi/v3" => {
                let (document, content_type) = match path {
                    "/api" => (&view.api, AGGREGATED),
                    "/apis" => (&view.apis, AGGREGATED),
                    _ => (&view.openapi, JSON),
                };
                let is_discovery = usize::from(content_type == AGGREGATED);
                self.asked.fetch_add(is_discovery, Ordering::Relaxed);
                if request.headers().get(IF_NONE_MATCH) == Some(&document.etag) {
                    let response = answer(StatusCode::NOT_MODIFIED, None, Bytes::new());
                    return with_etag(response, &document.etag);
                }
                self.sent.fetch_add(is_discovery, Ordering::Relaxed);
                let body = document.body.clone();
                with_etag(answer(StatusCode::OK, Some(content_type), body), &document.etag)
            }
            "/version" => answer(StatusCode::OK, Some(JSON), view.version.clone()),
            "/readyz" => answer(StatusCode::OK, None, "ok".into()),
            "/apis/apiregistration.k8s.io/v1/apiservices" => {
                answer(StatusCode::OK, Some(JSON), r#"{"items":[]}"#.into())
            }
            _ if views::is_unchanging(path) => {
                answer(StatusCode::OK, Some(JSON), views::legacy(path).into())
            }
            _ if request.uri().query().is_some_and(|query| query.contains("watch=1")) => {
                self.lists.watch()
            }
            _ => self.lists.list(path),
        }
    }

    /// The local server also serves Leases, and the bench's own paths.
    async fn answer_local(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if let Some(changes) = path.strip_prefix("/bench/changes/") {
            self.changes_a_minute.send_replace(changes.parse().unwrap_or_default());
            return answer(StatusCode::OK, None, "ok".into());
        }
        if path == CHANGE_PATH {
            let status = match self.make(Change::Serves(0, 0)) {
                Ok(()) => StatusCode::OK,
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            return answer(status, None, Bytes::new());
        }
        if path == TALLY_PATH {
            return answer(StatusCode::OK, Some(JSON), self.tally());
        }
        let Some(rest) = path.strip_prefix(leases::PATH) else {
            return self.answer(&request, None);
        };
        if *request.method() != Method::PATCH {
            return self.leases.get(request.uri().query().unwrap_or_default());
        }
        let name = rest.trim_start_matches('/').to_owned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes());
        self.leases.apply(&name, &body.unwrap_or_default())
    }

    fn tally(&self) -> Bytes {
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let was_asked = |member: &&Mutex<Member>| {
            member.lock().unwrap_or_else(PoisonError::into_inner).was_asked
        };
        let members = self.members.iter().filter(was_asked).count();
        let tally = json!({"members": members, "changes": of(&self.changed),
            "asked": of(&self.asked), "sent": of(&self.sent)});
        tally.to_string().into()
    }

    fn renew(&self, index: usize) {
        let Some(member) = self.members.get(index) else { return };
        let member = member.lock().unwrap_or_else(PoisonError::into_inner);
        if member.present {
            self.leases.renew(index, address(index, member.place));
        }
    }

    fn make(&self, change: Change) -> anyhow::Result<()> {
        let Some(member) = self.members.get(change.member()) else { return Ok(()) };
        let mut member = member.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |member: &Member, index| address(index, member.place);
        match change {
            Change::Leaves(index) => {
                member.present = false;
                self.leases.remove(at(&member, index));
            }
            Change::Returns(index) => {
                member.present = true;
                self.leases.renew(index, at(&member, index));
            }
            Change::Moves(index) => {
                self.leases.remove(at(&member, index));
                member.place = (member.place + 1) % PLACES;
                self.leases.renew(index, at(&member, index));
            }
            Change::Upgrades(_) => member.release = (member.release + 1) % self.releases.len(),
            Change::Serves(_, group) => member.groups ^= 1 << group,
        }
        if matches!(change, Change::Upgrades(_) | Change::Serves(..)) {
            member.view = Arc::new(views::of(&self.releases, member.release, member.groups)?);
        }
        self.changed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn with_etag(mut response: Response<Body>, etag: &HeaderValue) -> Response<Body> {
    response.headers_mut().insert(ETAG, etag.clone());
    response
}

/// Renews the Leases of all members one after the other, evenly spread over time.
async fn beat(crowd: Arc<Crowd>) {
    let pause = HEARTBEAT.div_f64(views::figure(crowd.members.len().max(1)));
    let mut due = Instant::now();
    for index in (0..crowd.members.len()).cycle() {
        due += pause;
        sleep_until(due).await;
        crowd.renew(index);
    }
}

/// Makes changes at the current rate.
async fn change(crowd: Arc<Crowd>) -> anyhow::Result<()> {
    let mut changes = Changes::new(SEED, crowd.members.len());
    let mut pace = crowd.changes_a_minute.subscribe();
    let mut due = Instant::now();
    loop {
        let a_minute = *pace.borrow_and_update();
        if a_minute == 0 {
            pace.changed().await?;
            due = Instant::now();
            continue;
        }
        due += Duration::from_secs(60).div_f64(views::figure(a_minute));
        sleep_until(due).await;
        crowd.make(changes.next())?;
    }
}
