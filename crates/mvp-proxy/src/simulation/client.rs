//! The clients of a simulation: reads and writes of registers, and of what nobody serves, through
//! any gateway. Entry item: [`Client`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::{Value, json};
use testkit::history::linear::{Action, Operation, Reply};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::gateway::PORT;
use super::log::{Ended, How, Log, Op};
use super::network::{Interface, Node, address};
use super::serve::pki;
use crate::upstream::server_name;

/// How long a client waits for the end of a response.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How often a client with a request in flight asks for a sign of life, and how long it waits.
const PING: Duration = Duration::from_secs(5);
/// The group that nobody serves.
pub(super) const NOBODY: &str = "none.example";

type Sender = SendRequest<Full<Bytes>>;

/// A client with a connection to each gateway that it uses.
#[derive(Debug)]
pub(super) struct Client {
    number: usize,
    interface: Interface,
    log: Log,
    connections: BTreeMap<Node, Sender>,
    /// What it read last: the resource version and the value, by object.
    read: BTreeMap<String, (String, u64)>,
    sent: Op,
    /// Whether faults have stopped.
    pub(super) calm: bool,
}

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Read,
    Create,
    /// On condition that nothing has changed since it was read.
    Update,
    Write,
    Delete,
    /// Discovery of the group.
    Discover,
}

/// The group and the name of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register {
    pub(super) group: &'static str,
    pub(super) name: usize,
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.name)
    }
}

impl Client {
    pub(super) fn new(number: usize, interface: Interface, log: Log) -> Client {
        let (connections, read) = (BTreeMap::new(), BTreeMap::new());
        Client { number, interface, log, connections, read, sent: 0, calm: false }
    }

    /// Sends a request to a gateway, and records how it ends.
    pub(super) async fn ask(&mut self, gateway: Node, ask: Ask, register: Register) -> How {
        self.sent += 1;
        let op = self.number as Op * 10_000 + self.sent;
        let known = self.read.get(&register.to_string()).cloned();
        let ask = if ask == Ask::Update && known.is_none() { Ask::Read } else { ask };
        let called = {
            let mut entries = self.log.entries();
            let now = entries.now();
            entries.registers.moment(now)
        };
        let request = request(op, ask, register, known.as_ref());
        let answered = timeout(PATIENCE, self.send(gateway, request)).await;
        let (how, body) = match answered {
            Ok(Some((status, body))) => (How::Status(status.as_u16()), body),
            Ok(None) => (How::Broken, Bytes::new()),
            Err(_) => (How::Never, Bytes::new()),
        };
        let returned = {
            let mut entries = self.log.entries();
            let now = entries.now();
            entries.registers.moment(now)
        };
        let object: Option<Value> = serde_json::from_slice(&body).ok();
        let how = if how == How::Status(404) && names_object(object.as_ref()) {
            How::NoObject
        } else {
            how
        };
        if let Some(action) = action(op, ask, known)
            && let Some(reply) = reply(ask == Ask::Read, how, object.as_ref())
        {
            let client = self.number;
            let operation = Operation { client, action, reply, called, returned };
            self.log.entries().registers.add(register.to_string(), operation);
        }
        self.remember(register, how, object.as_ref());
        let what = format!("{ask:?} {register} at {}", super::log::name(gateway));
        let (group, calm) = (register.group, self.calm);
        let (called, returned) = (called.at, returned.at);
        self.log.ended(Ended { op, what, group, called, returned, how, calm });
        how
    }

    fn remember(&mut self, register: Register, how: How, object: Option<&Value>) {
        let seen = object.filter(|_| matches!(how, How::Status(200 | 201))).and_then(|object| {
            let version = object["metadata"]["resourceVersion"].as_str()?.to_owned();
            Some((version, value_of(object)?))
        });
        match seen {
            Some(seen) => self.read.insert(register.to_string(), seen),
            None => self.read.remove(&register.to_string()),
        };
    }

    /// The status and the body of the response; none if the connection ends.
    async fn send(
        &mut self,
        gateway: Node,
        request: Request<Full<Bytes>>,
    ) -> Option<(StatusCode, Bytes)> {
        let mut sender = match self.connections.remove(&gateway) {
            Some(sender) if !sender.is_closed() => sender,
            _ => timeout(PING, self.connect(gateway)).await.ok()??,
        };
        sender.ready().await.ok()?;
        let response = sender.send_request(request).await.ok()?;
        let status = response.status();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        self.connections.insert(gateway, sender);
        Some((status, body))
    }

    async fn connect(&self, gateway: Node) -> Option<Sender> {
        let end = self.interface.connect(address(gateway, PORT)).await.ok()?;
        let tls = TlsConnector::from(pki().client.config(&[b"h2".as_slice()]));
        let stream = TokioIo::new(tls.connect(server_name(), end).await.ok()?);
        // As clients of Kubernetes do: nobody tells them that a gateway has lost power.
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
        let (sender, connection) = builder.handshake(stream).await.ok()?;
        tokio::spawn(connection);
        Some(sender)
    }
}

fn request(
    op: Op,
    ask: Ask,
    register: Register,
    known: Option<&(String, u64)>,
) -> Request<Full<Bytes>> {
    let Register { group, name } = register;
    let all = format!("https://gateway/apis/{group}/v1/namespaces/default/things");
    let one = format!("{all}/{name}");
    let (method, uri) = match ask {
        Ask::Read => (Method::GET, one),
        Ask::Create => (Method::POST, all),
        Ask::Update | Ask::Write => (Method::PUT, one),
        Ask::Delete => (Method::DELETE, one),
        Ask::Discover => (Method::GET, format!("https://gateway/apis/{group}")),
    };
    let mut metadata = json!({"name": name.to_string(), "namespace": "default"});
    if ask == Ask::Update
        && let Some((version, _)) = known
    {
        metadata["resourceVersion"] = json!(version);
    }
    let body = match ask {
        Ask::Create | Ask::Update | Ask::Write => {
            let (kind, version) = ("Thing", format!("{group}/v1"));
            let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata,
                                "data": {"value": op}});
            object.to_string()
        }
        _ => String::new(),
    };
    let request = Request::builder().method(method).uri(uri);
    let request = request.header(USER_AGENT, format!("op-{op}"));
    let request = request.header(CONTENT_TYPE, "application/json");
    request.body(Full::new(body.into())).unwrap()
}

fn value_of(object: &Value) -> Option<u64> {
    object["data"]["value"].as_u64()
}

/// What it does to a register; none if it is about none.
fn action(op: Op, ask: Ask, known: Option<(String, u64)>) -> Option<Action> {
    Some(match ask {
        Ask::Read => Action::Read,
        Ask::Create => Action::Create(op),
        Ask::Update => Action::Update { from: known?.1, to: op },
        Ask::Write => Action::Write(op),
        Ask::Delete => Action::Delete,
        Ask::Discover => return None,
    })
}

/// Whether a `Status` names an object.
fn names_object(status: Option<&Value>) -> bool {
    status
        .and_then(|status| status["details"]["name"].as_str())
        .is_some_and(|name| !name.is_empty())
}

/// What came of it; none if that says nothing.
fn reply(is_read: bool, how: How, object: Option<&Value>) -> Option<Reply> {
    match how {
        How::Status(200 | 201) if is_read => Some(Reply::Saw(object.and_then(value_of))),
        How::Status(200 | 201) => Some(Reply::Done),
        How::NoObject if is_read => Some(Reply::Saw(None)),
        How::NoObject => Some(Reply::Missing),
        // It is about the API: a write did not happen.
        How::Status(404) => None,
        How::Status(409) => Some(Reply::Conflict),
        _ if is_read => None,
        _ => Some(Reply::Unclear),
    }
}
