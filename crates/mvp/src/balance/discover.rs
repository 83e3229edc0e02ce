//! Finds members by the EndpointSlices of `default/kubernetes`, with the pod's service account. Entry
//! item: [`run`].
//!
//! The list is read every 10 s, not watched: a watch from every node would be one more for each node
//! of the cluster, and a member that leaves or joins within these seconds is found by failover.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HOST, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mvp_membership::endpoints;
use mvp_proxy::server_name;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use super::account::ServiceAccount;
use super::members::Members;
use crate::members::MembersCache;
use crate::mistake::Problem;

const INTERVAL: Duration = Duration::from_secs(10);
/// The interval until the first answer.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// The time limit for one member's response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The size limit for a response.
const MAX_ANSWER: usize = 4 << 20;
/// How long failures may last unreported.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// Reads the members of the cluster forever.
pub(super) async fn run(search: Arc<Search>) {
    let mut trouble = Trouble::default();
    let mut written = search.last_known.clone();
    let mut interval = FIRST_INTERVAL;
    loop {
        match search.ask_any().await {
            Ok(mut found) => {
                trouble.recovered();
                interval = INTERVAL;
                found.retain(|address| !(search.is_own)(address));
                if search.members.found(&found) {
                    tracing::info!(members = found.join(","), "members changed");
                }
                if written != found && !found.is_empty() {
                    if let Some(cache) = &search.cache {
                        cache.keep(&found).await;
                    }
                    written = found;
                }
            }
            Err(error) => trouble.failed(&error),
        }
        sleep(interval).await;
    }
}

/// What the search for members needs.
pub(super) struct Search {
    pub(super) members: Arc<Members>,
    pub(super) account: Arc<ServiceAccount>,
    pub(super) cache: Option<MembersCache>,
    /// The members of the cache at start.
    pub(super) last_known: Vec<Arc<str>>,
    /// Whether all members are on this host.
    pub(super) one_host: bool,
    /// Whether an address is our own listener.
    pub(super) is_own: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

impl Search {
    /// The answer of the first member that gives one.
    async fn ask_any(&self) -> Result<Vec<Arc<str>>, Problem> {
        let (token, tls) = (self.account.token()?, self.account.verified()?);
        let mut problem = Problem::from("no member is known");
        for member in self.members.in_order() {
            let tls = TlsConnector::from(Arc::clone(&tls));
            let asked = self.ask(&member.address, &token, tls);
            let answer = match timeout(TIMEOUT, asked).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("timed out after {} s", TIMEOUT.as_secs()).into()),
            };
            let found = answer.and_then(|list| {
                endpoints::addresses(&list, self.one_host)
                    .map_err(|error| format!("invalid EndpointSlices: {error}").into())
            });
            match found {
                Ok(found) => return Ok(found),
                Err(error) => problem = format!("{}: {error}", member.address).into(),
            }
        }
        Err(problem)
    }

    /// Reads the list from one member. The token is sent only after its certificate was verified.
    async fn ask(&self, address: &str, token: &str, tls: TlsConnector) -> Result<Bytes, Problem> {
        let stream = self.members.connect(address).await.map_err(|error| failed(&error))?;
        let stream = tls.connect(server_name(), stream).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Problem::from("the token has characters that no header can have"))?;
        bearer.set_sensitive(true);
        let request = Request::get(endpoints::list_path())
            .header(HOST, "kubernetes.default.svc")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("mvp/", env!("CARGO_PKG_VERSION")))
            .header(AUTHORIZATION, bearer)
            .body(Empty::<Bytes>::new())
            .map_err(|error| failed(&error))?;
        let exchange = async move {
            let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| Problem::from(error.to_string()))?.to_bytes();
            if status == StatusCode::OK { Ok(body) } else { Err(refused(status)) }
        };
        // The connection ends after the exchange, which has its only sender; its errors reach the exchange.
        tokio::join!(exchange, connection).0
    }
}

fn failed(error: &(impl std::error::Error + ?Sized)) -> Problem {
    error.to_string().into()
}

/// A response that is not the list, and what to do.
fn refused(status: StatusCode) -> Problem {
    let fix = match status {
        StatusCode::UNAUTHORIZED => "the token of the service account is not valid",
        StatusCode::FORBIDDEN => {
            "allow the service account to list endpointslices.discovery.k8s.io in the namespace default"
        }
        _ => return format!("it responds {status}").into(),
    };
    format!("it responds {status}; {fix}").into()
}

/// A failure, reported once if it lasts: a server that starts refuses what it will allow.
#[derive(Debug, Default)]
struct Trouble {
    since: Option<Instant>,
    reported: bool,
}

impl Trouble {
    fn failed(&mut self, error: &Problem) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.reported || since.elapsed() < REPORT_AFTER {
            tracing::debug!(%error, "cannot find members");
            return;
        }
        self.reported = true;
        tracing::warn!(%error, "cannot find members by themselves; the known ones stay");
    }

    fn recovered(&mut self) {
        if self.reported {
            tracing::info!("members can be found again");
        }
        *self = Trouble::default();
    }
}
