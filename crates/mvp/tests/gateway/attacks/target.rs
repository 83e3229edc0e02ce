//! A gateway under attack, with a server that records every byte. Entry item: [`Target`].
//!
//! The attackers have no credentials: their requests share connections over HTTP/1.1 to the server.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use mvp_apiserver::Storage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::strict::{self, Seen};
use crate::cluster::{CONFIG_MAPS, answer, any, api_server, widget};
use crate::support::client::{Client, Watch, connect};
use crate::support::double::{Body, Double};
use crate::support::pki::PKI;
use crate::support::process::{Gateway, free_address};
use crate::support::{eventually, soon};

/// A gateway and its server, which answers everything below `/x/` after it has read the body, and
/// below `/x/early/` with 403 without reading it.
pub(crate) struct Target {
    pub(crate) gateway: Gateway,
    pub(crate) server: Double,
}

/// The head of a request that must never arrive.
pub(crate) const SMUGGLED: &str =
    "GET /x/smuggled HTTP/1.1\r\nHost: a\r\nX-Remote-User: root\r\nConnection: close\r\n\r\n";
/// The last request of a connection.
pub(crate) const LAST: &str = "GET /x/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

impl Target {
    pub(crate) async fn start() -> Target {
        let api = api_server("b", Storage::new());
        let server = Double::recording(any(), move |request: Request<Incoming>| {
            let api = api.clone();
            async move {
                match request.uri().path() {
                    path if path.starts_with("/x/early/") => reply(StatusCode::FORBIDDEN),
                    path if path.starts_with("/x/") => match request.into_body().collect().await {
                        Ok(_) => reply(StatusCode::OK),
                        Err(_) => reply(StatusCode::BAD_REQUEST),
                    },
                    _ => answer(api, crate::cluster::Bulk::default(), request).await,
                }
            }
        })
        .await;
        let flags = ["--log-level=info,mvp_net=debug,mvp_proxy=debug".to_owned()];
        let gateway = Gateway::start(free_address(), "b", server.address, &flags).ready().await;
        Target { gateway, server }
    }

    /// Sends bytes over HTTP/1.1, in pieces. Returns the status codes of the responses, once
    /// the gateway has closed the connection.
    pub(crate) async fn send(&self, bytes: &[u8], piece: usize) -> Vec<String> {
        let stream = connect(self.gateway.address, PKI.client(false, b"http/1.1")).await.unwrap();
        let (mut reads, mut writes) = tokio::io::split(stream);
        let write = async {
            for piece in bytes.chunks(piece) {
                // The gateway may have ended the connection already.
                if writes.write_all(piece).await.is_err() || writes.flush().await.is_err() {
                    break;
                }
            }
        };
        let mut heard = Vec::new();
        let read = async {
            let _ = reads.read_to_end(&mut heard).await;
        };
        soon(async { tokio::join!(write, read) }).await;
        let text = String::from_utf8_lossy(&heard);
        text.split("HTTP/1.1 ").skip(1).map(|response| response[..3].to_owned()).collect()
    }

    /// The requests below `/x/` so far, of everybody. Panics if bytes arrived that are not exactly a
    /// request.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        for bytes in self.server.recorded() {
            let requests = strict::requests(&bytes).unwrap_or_else(|wrong| {
                panic!("{wrong} in {:?}", String::from_utf8_lossy(&bytes));
            });
            seen.extend(requests.into_iter().filter(|seen| seen.target.contains("/x/")));
        }
        seen
    }

    /// The requests since `before`, as method, target and body.
    pub(crate) fn since(&self, before: &[Seen]) -> Vec<String> {
        let mut rest = before.to_vec();
        let mut new = Vec::new();
        for seen in self.seen() {
            if let Some(known) = rest.iter().position(|known| *known == seen) {
                rest.swap_remove(known);
                continue;
            }
            assert!(seen.all("x-remote-user").is_empty(), "{seen:?}");
            let Seen { method, target, body, whole, .. } = seen;
            let cut = if whole { "" } else { " (cut)" };
            new.push(format!("{method} {target} {}{cut}", String::from_utf8_lossy(&body)));
        }
        new
    }

    /// Asserts that no request below `/x/` arrived.
    pub(crate) fn saw_nothing(&self) {
        let seen = self.seen();
        assert!(seen.is_empty(), "{seen:?}");
    }

    /// The errors of clients that were counted so far.
    pub(crate) async fn errors(&self) -> u64 {
        let metrics = self.gateway.page("/metrics").await;
        let lines = metrics.lines().filter_map(|line| {
            line.strip_prefix("mvp_client_errors_total{")?.rsplit(' ').next()?.parse::<u64>().ok()
        });
        lines.sum()
    }

    /// The log lines about errors of clients.
    pub(crate) fn lines(&self) -> usize {
        let about = ["request refused", "connection failed", "TLS handshake failed"];
        let log = self.gateway.log();
        log.lines().filter(|line| about.iter().any(|event| line.contains(event))).count()
    }
}

/// Another client of the gateway, who must not notice an attack.
pub(crate) struct Other {
    client: Client,
    watch: Watch,
}

impl Other {
    pub(crate) async fn start(gateway: &Gateway) -> Other {
        let client = Client::user(gateway.address).await;
        let watch = client.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
        Other { client, watch }
    }

    /// Asserts that requests are served, and that the watch goes on.
    pub(crate) async fn is_served(&mut self, during: &str) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("n{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut object = widget(&name);
        object["apiVersion"] = "v1".into();
        object["kind"] = "ConfigMap".into();
        let (code, answer) = self.client.call(http::Method::POST, CONFIG_MAPS, object).await;
        assert_eq!(code, StatusCode::CREATED, "during {during}: {answer}");
        // A watch begins with the objects that exist already.
        while self.watch.next_name().await.1 != name {}
    }
}

/// Waits until the counter of errors and the log have grown by this many.
pub(crate) async fn noted(target: &Target, (errors, lines): (u64, usize), more: usize) {
    eventually("each attack is counted and logged", async || {
        let (counted, logged) = (target.errors().await - errors, target.lines() - lines);
        if counted >= more as u64 && logged >= more { Ok(()) } else { Err((counted, logged, more)) }
    })
    .await;
}

fn reply(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::from(Bytes::from_static(b"{}")).boxed_unsync());
    *response.status_mut() = status;
    response
}
