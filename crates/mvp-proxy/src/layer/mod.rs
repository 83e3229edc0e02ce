//! The layer: a tower service in front of an API server. `exchange` is the data path; the other
//! modules are its parts.
//!
//! - `progress`: all state of one request, without I/O
//! - `consent`, `renew`, `discovery`, `hashes`, `openapi`: documents that are answered for the whole
//!   cluster
//! - `answer`, `refuse`: responses of our own
//! - `outgoing`, `traced`: a request as it is sent, and what its trace tells

mod answer;
mod consent;
mod denied;
mod discovery;
mod exchange;
mod hashes;
#[cfg(test)]
mod model;
mod openapi;
mod outgoing;
mod progress;
mod refresh;
mod refuse;
mod renew;
mod traced;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use mvp_core::decide::Origin;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{Body, BodyError};
use crate::control::SnapshotReader;
use crate::gateway::{INSTANCE, Instance};
use crate::identity::{Identity, Screen, Screened};
use crate::local::{Local, LocalSlot};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::probe::LocalState;
use crate::status;
use crate::trace::Trace;
use crate::upstream::{Forwarder, Remote, Replay, Target};
use exchange::{Arrived, Shared};

/// A layer that makes an API server a member of a cluster of mixed versions.
///
/// It expects two extensions of every request, which [`AuthenticateLayer`] sets:
/// - [`Identity`]: who the caller is. A request without one gets a 500 and goes nowhere.
/// - [`Origin`]: whether a client or a peer sent it. Without one, it is a client's.
///
/// The server must name the object in a 404 about an object: a `Status` with `details.name`, plain or
/// in gzip or deflate, as kube-apiserver does. Any other 404 may mean that the server does not have
/// the API. It is withheld until all members have confirmed their views; if the server lists the API,
/// it becomes a 503.
///
/// It also reads [`mvp_net::ConnectionInfo`], if a listener of `mvp-net` set it: then each client
/// connection stays with one peer, and the client's address is forwarded. Upgrades (`exec`, `attach`,
/// WebSocket) need hyper's `OnUpgrade`, which hyper sets. A middleware between the two layers must
/// keep all extensions: `AuthenticateLayer` leaves marks of its own, too.
///
/// [`AuthenticateLayer`]: crate::identity::AuthenticateLayer
#[derive(Debug, Clone)]
pub struct MixedVersionLayer {
    shared: Arc<Shared>,
}

impl MixedVersionLayer {
    /// A layer that decides by the snapshots of `reader`. Without peers, every request goes to the
    /// local server; without a state, that server counts as ready.
    pub(crate) fn new(
        reader: SnapshotReader,
        peers: Option<Peers>,
        slot: LocalSlot,
        metrics: Arc<Metrics>,
        local_state: Option<LocalState>,
        instance: Option<&Instance>,
    ) -> MixedVersionLayer {
        let instance = instance.map(Instance::header);
        let traced = false;
        let shared = Shared { reader, peers, slot, local_state, instance, metrics, traced };
        MixedVersionLayer { shared: Arc::new(shared) }
    }

    /// Continues the traces that the authentication has begun.
    pub(crate) fn traced(mut self, traced: bool) -> MixedVersionLayer {
        Arc::make_mut(&mut self.shared).traced = traced;
        self
    }

    /// The layer in front of a server behind a connection, as a gateway has it.
    pub(crate) fn in_front_of(
        &self,
        forwarder: Arc<Forwarder>,
        target: Arc<Target>,
    ) -> MixedVersion {
        self.before(Local::new(Remote::new(forwarder, target)))
    }

    fn before(&self, local: Local) -> MixedVersion {
        self.shared.slot.fill(&local);
        MixedVersion { shared: Arc::clone(&self.shared), local }
    }
}

impl<S, R> Layer<S> for MixedVersionLayer
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    type Service = MixedVersion;

    fn layer(&self, inner: S) -> MixedVersion {
        self.before(Local::service(inner))
    }
}

/// An API server that is a member of a cluster of mixed versions. It is always ready; each request
/// waits for the server's own readiness.
#[derive(Debug, Clone)]
pub struct MixedVersion {
    shared: Arc<Shared>,
    local: Local,
}

impl<B> Service<Request<B>> for MixedVersion
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (shared, local) = (Arc::clone(&self.shared), self.local.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Some(identity) = parts.extensions.get::<Identity>().cloned() else {
                return Ok(status::internal("the request was not authenticated"));
            };
            let screened = parts.extensions.get::<Screened>();
            let names = screened.map_or_else(|| Screen::default().names(), |s| Arc::clone(&s.0));
            let origin = parts.extensions.get::<Origin>().copied().unwrap_or(Origin::Client);
            let body = Replay::new(Body::new(body), names);
            let at = shared.reader.now();
            let trace = shared.traced.then(|| parts.extensions.get::<Trace>().cloned()).flatten();
            let arrived = Arrived { parts, body, identity, origin, at, trace };
            let mut response = exchange::serve(&shared, &arrived, local).await;
            if let (Origin::Peer, Some(instance)) = (origin, &shared.instance) {
                response.headers_mut().insert(INSTANCE, instance.clone());
            }
            Ok(response)
        })
    }
}
