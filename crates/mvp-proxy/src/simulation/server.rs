//! The API servers of a simulation: small real ones that share a storage, and what goes wrong in
//! them. Entry item: [`Server`].

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use mvp_apiserver::{ApiServer, Body, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_net::ConnectionInfo;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tower::ServiceExt;

use super::log::{Log, Op, Place, name};
use super::network::{Interface, Network, Node};
use super::random::Random;
use super::serve::serve;

/// The port of API servers.
pub(super) const PORT: u16 = 6443;
/// A server forbids everything for this long after its start.
const STARTS_FOR: Duration = Duration::from_millis(600);
/// What a server that shuts down still does for this long.
const LEAVES_FOR: Duration = Duration::from_millis(1_500);

/// What a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Old,
    New,
}

impl Version {
    pub(super) fn groups(self) -> [&'static str; 2] {
        match self {
            Version::Old => ["old.example", "shared.example"],
            Version::New => ["new.example", "shared.example"],
        }
    }

    pub(super) fn other(self) -> Version {
        match self {
            Version::Old => Version::New,
            Version::New => Version::Old,
        }
    }

    fn spec(self) -> ServerSpec {
        let group = |name: &str| {
            GroupSpec::new(name).version("v1", [ResourceSpec::namespaced("things", "Thing")])
        };
        let core =
            GroupSpec::new("").version("v1", [ResourceSpec::namespaced("configmaps", "ConfigMap")]);
        let release = if self == Version::Old { "v1.34.0" } else { "v1.36.0" };
        ServerSpec {
            id: "server".to_owned(),
            git_version: release.to_owned(),
            groups: std::iter::once(core).chain(self.groups().map(group)).collect(),
            ..ServerSpec::default()
        }
    }
}

/// How a server answers requests for `/api` and `/apis`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Discovery {
    #[default]
    Prompt,
    Slow(Duration),
    /// With 503.
    Fails,
}

/// What is wrong with a server that runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mood {
    pub(super) starting: bool,
    pub(super) leaving: bool,
    pub(super) discovery: Discovery,
    /// Its discovery is that of the other version.
    pub(super) lies: bool,
    /// It answers 404 for all resources.
    pub(super) denies: bool,
    /// It answers 503 for all resources.
    pub(super) busy: bool,
    /// Its 404s for what it does not serve are in a form that nobody knows.
    pub(super) vague: bool,
}

/// The API server of a node. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    node: Node,
    network: Network,
    storage: Storage,
    log: Log,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    version: Version,
    mood: Mood,
    running: Option<(Interface, AbortHandle)>,
}

/// One run of a server's process.
#[derive(Debug)]
struct Process {
    server: Server,
    interface: Interface,
    version: Version,
    api: ApiServer,
    /// What it says if it lies.
    other: ApiServer,
}

impl Server {
    pub(super) fn new(
        node: Node,
        version: Version,
        network: &Network,
        storage: &Storage,
        log: &Log,
        seed: u64,
    ) -> Server {
        let (network, storage, log) = (network.clone(), storage.clone(), log.clone());
        let state = Mutex::new(State { version, mood: Mood::default(), running: None });
        Server(Arc::new(Shared { node, network, storage, log, seed, state }))
    }

    /// Starts it, as this version. It forbids everything at first.
    pub(super) async fn start(&self, version: Version) {
        let Shared { node, network, storage, log, .. } = &*self.0;
        let interface = network.process(*node);
        let api = |version: Version| ApiServer::new(version.spec(), storage.clone());
        let process = Arc::new(Process {
            server: self.clone(),
            interface: interface.clone(),
            version,
            api: api(version),
            other: api(version.other()),
        });
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let process = Arc::clone(&process);
            async move { Ok::<_, Infallible>(process.answer(request).await) }
        });
        let accepting = serve(&interface, PORT, service);
        self.change(|state| {
            state.version = version;
            state.mood.starting = true;
            state.running = Some((interface, accepting));
        });
        log.note(format_args!("{}: server starts as {version:?}", name(*node)));
        sleep(STARTS_FOR).await;
        self.change(|state| state.mood.starting = false);
        log.note(format_args!("{}: server is ready", name(*node)));
    }

    /// Starts it as it is from the beginning.
    pub(super) async fn begin(&self) {
        let version = self.0.state.lock().unwrap().version;
        self.start(version).await;
    }

    /// Shuts it down: it is not ready, refuses requests, and ends.
    pub(super) async fn stop(&self) {
        self.0.log.note(format_args!("{}: server shuts down", name(self.0.node)));
        self.change(|state| state.mood.leaving = true);
        sleep(LEAVES_FOR).await;
        self.kill(false);
    }

    /// Kills it. If it vanishes, nobody is told.
    pub(super) fn kill(&self, vanishes: bool) {
        self.0.log.note(format_args!("{}: server is gone", name(self.0.node)));
        let mut running = None;
        self.change(|state| {
            state.mood.leaving = false;
            running = state.running.take();
        });
        if let Some((interface, accepting)) = running {
            interface.kill(vanishes);
            accepting.abort();
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.0.state.lock().unwrap().running.is_some()
    }

    /// Changes what is wrong with it.
    pub(super) fn mood(&self, change: impl FnOnce(&mut Mood)) {
        self.change(|state| {
            change(&mut state.mood);
            self.0.log.note(format_args!("{}: {:?}", name(self.0.node), state.mood));
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.state.lock().unwrap();
        change(&mut state);
        let State { version, mood, running } = &*state;
        let serves = running.is_some() && !mood.starting && !mood.leaving && !mood.denies;
        let groups = match serves && !mood.busy && !mood.lies {
            true => version.groups().into(),
            false => BTreeSet::new(),
        };
        self.0.log.serves(self.0.node, groups);
    }
}

/// The client's request that this is part of.
pub(super) fn op_of(headers: &HeaderMap) -> Option<Op> {
    headers.get(USER_AGENT)?.to_str().ok()?.strip_prefix("op-")?.parse().ok()
}

/// The node at the other end of the connection of a request.
pub(super) fn sender<B>(request: &Request<B>) -> Node {
    let info = request.extensions().get::<ConnectionInfo>().unwrap();
    match info.remote().ip() {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
        std::net::IpAddr::V6(ip) => panic!("{ip}"),
    }
}

impl Process {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let Shared { node, log, seed, .. } = &*self.server.0;
        let (op, path) = (op_of(request.headers()), request.uri().path().to_owned());
        log.arrived(op, sender(&request), *node, Place::Server);
        let mood = self.server.0.state.lock().unwrap().mood;
        if mood.starting {
            return say(403, "application/json", FORBIDDEN);
        }
        if mood.leaving {
            return match &*path {
                "/readyz" => say(500, "text/plain", "[-]shutdown failed: reason withheld\n"),
                _ => {
                    let mut response = say(503, "application/json", SHUTTING_DOWN);
                    response.headers_mut().insert(RETRY_AFTER, 1.into());
                    response
                }
            };
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let is_root = matches!(parts[..], ["api" | "apis"]);
        if is_root {
            match mood.discovery {
                Discovery::Prompt => {}
                Discovery::Slow(by) => sleep(by).await,
                Discovery::Fails => return say(503, "text/plain", "not now"),
            }
        }
        let group = match parts[..] {
            ["apis", group, "v1", "namespaces", ..] => Some(group),
            _ => None,
        };
        let Some(group) = group else {
            let lies = mood.lies && parts.first().is_some_and(|first| first.starts_with("api"));
            let api = if lies { &self.other } else { &self.api };
            return self.ask(api, request).await;
        };
        let mut random = Random::new(*seed, op.unwrap_or_default());
        sleep(random.millis(0..6)).await;
        if !self.interface.is_alive() {
            std::future::pending().await
        }
        let is_served = self.version.groups().contains(&group);
        if mood.busy {
            return say(503, "text/plain", "busy");
        }
        if mood.denies {
            return say(404, "text/plain; charset=utf-8", "404 page not found\n");
        }
        if !is_served && mood.vague {
            return say(404, "application/vnd.unheard-of", "\u{1}nothing here");
        }
        if is_served && request.method() != Method::GET {
            log.arrived(op, sender(&request), *node, Place::Storage);
        }
        let response = self.ask(&self.api, request).await;
        if random.percent(4) {
            // What it has done is not known yet.
            sleep(random.millis(100..2_500)).await;
        }
        response
    }

    /// Asks the server itself, unless its process has been killed meanwhile.
    async fn ask(&self, api: &ApiServer, request: Request<Incoming>) -> Response<Body> {
        if !self.interface.is_alive() {
            std::future::pending().await
        }
        let Ok(response) = api.clone().oneshot(request).await;
        response
    }
}

const FORBIDDEN: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"forbidden: User \"alice\" cannot do this: RBAC: not yet read","reason":"Forbidden","code":403}"#;
const SHUTTING_DOWN: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"apiserver is shutting down","reason":"ServiceUnavailable","code":503}"#;

fn say(status: u16, content_type: &'static str, text: &'static str) -> Response<Body> {
    let body = Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync();
    Response::builder().status(status).header(CONTENT_TYPE, content_type).body(body).unwrap()
}
