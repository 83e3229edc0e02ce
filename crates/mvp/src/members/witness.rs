//! The server that EndpointSlices are read from. Entry item: [`Witness`].

use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response};
use mvp_membership::etcd::Trouble;
use mvp_proxy::control::{AnyMember, Ask, AskError, ReportOnce, is_watch};
use mvp_proxy::{Body, Forwarder, OwnRequests, Target};
use tokio::sync::watch;

/// The local server or, without one, any member.
#[derive(Clone)]
pub(crate) enum Witness {
    Local(OwnRequests),
    Members(AnyMember, Option<Arc<Seed>>),
}

impl Ask for Witness {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let (any, seed) = match self {
            Witness::Local(local) => return local.ask(request).await,
            Witness::Members(any, seed) => (any, seed),
        };
        let Some(seed) = seed else {
            any.some_member().await;
            return any.ask(request).await;
        };
        // A server that shuts down waits for open watches, and the seed does not tell when it does.
        if is_watch(&request) {
            any.some_member().await;
            return any.ask(request).await;
        }
        let (parts, _) = request.into_parts();
        match any.ask(Request::from_parts(parts.clone(), Body::empty())).await {
            Ok(response) => {
                seed.recovered();
                Ok(response)
            }
            // No member is known yet, or none answers.
            Err(_) => seed.ask(Request::from_parts(parts, Body::empty())).await,
        }
    }
}

/// The address by which pods find a server. It leads to a different server each time, so it is no
/// member: it only tells who the members are.
pub(crate) struct Seed {
    forwarder: Arc<Forwarder>,
    target: Target,
    trouble: watch::Sender<Trouble>,
    failed: Mutex<ReportOnce>,
}

impl Seed {
    pub(crate) fn new(forwarder: Arc<Forwarder>, target: Target) -> Seed {
        Seed { forwarder, target, trouble: watch::Sender::default(), failed: Mutex::default() }
    }

    /// A request succeeded, through the seed or without it.
    fn recovered(&self) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.trouble.send_if_modified(|trouble| std::mem::take(trouble) != Trouble::default());
    }

    /// The reason why the seed does not answer, if it does not.
    pub(super) fn trouble(&self) -> watch::Receiver<Trouble> {
        self.trouble.subscribe()
    }

    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let address = &self.target.address;
        match self.forwarder.send(&self.target, request).await {
            Ok(response) => {
                self.recovered();
                Ok(response)
            }
            Err(error) => {
                let error = format!("{}: {}", error.stage, error.cause);
                if self.failed.lock().unwrap_or_else(PoisonError::into_inner).report() {
                    tracing::warn!(
                        %address,
                        error,
                        "first server does not answer; check KUBERNETES_SERVICE_HOST, or set --servers"
                    );
                }
                let lasting = Some(format!("the first server {address} does not answer: {error}"));
                self.trouble.send_replace(Trouble { problem: None, lasting });
                Err(AskError::new(error))
            }
        }
    }
}
