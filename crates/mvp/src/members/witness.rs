//! Who is asked for EndpointSlices. Entry item: [`Witness`].

use std::sync::Arc;

use http::{Request, Response};
use mvp_membership::etcd::Trouble;
use mvp_proxy::control::{AnyMember, Ask};
use mvp_proxy::{Body, Forwarder, LocalSlot, Target};
use tokio::sync::watch;

/// The local server; or any member, where there is none.
#[derive(Clone)]
pub(crate) enum Witness {
    Local(LocalSlot),
    Members(AnyMember, Option<Arc<Seed>>),
}

impl Ask for Witness {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, String> {
        let (any, seed) = match self {
            Witness::Local(local) => return local.ask(request).await,
            Witness::Members(any, seed) => (any, seed),
        };
        let Some(seed) = seed else { return any.ask(request).await };
        let (parts, _) = request.into_parts();
        match any.ask(Request::from_parts(parts.clone(), Body::empty())).await {
            Ok(response) => {
                seed.is_not_needed();
                Ok(response)
            }
            // None is known yet, or none of those that are is left.
            Err(_) => seed.ask(Request::from_parts(parts, Body::empty())).await,
        }
    }
}

/// The way by which pods find a server. It leads to any of them, now this one and now that: who is
/// there is no member, and only asked who is.
pub(crate) struct Seed {
    forwarder: Arc<Forwarder>,
    target: Target,
    trouble: watch::Sender<Trouble>,
}

impl Seed {
    pub(crate) fn new(forwarder: Arc<Forwarder>, target: Target) -> Seed {
        Seed { forwarder, target, trouble: watch::Sender::default() }
    }

    /// Whether it would answer does not matter.
    fn is_not_needed(&self) {
        self.trouble.send_if_modified(|trouble| std::mem::take(trouble) != Trouble::default());
    }

    /// Why it gives no answer.
    pub(super) fn trouble(&self) -> watch::Receiver<Trouble> {
        self.trouble.subscribe()
    }

    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, String> {
        let sent = self.forwarder.send(&self.target, request).await;
        let sent = sent.map_err(|error| format!("{}: {}", error.stage, error.cause));
        let lasting = sent.as_ref().err().map(|error| {
            let address = &self.target.address;
            format!("{address}, where a first server is looked for, gives no answer ({error})")
        });
        let trouble = Trouble { problem: None, lasting };
        if let Trouble { lasting: Some(said), .. } = &trouble
            && self.trouble.borrow().lasting.is_none()
        {
            tracing::warn!("{said}; see KUBERNETES_SERVICE_HOST, or give --servers");
        }
        self.trouble.send_replace(trouble);
        sent
    }
}
