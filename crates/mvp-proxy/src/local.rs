//! The local server, whatever its type: a service in this process, or a server behind a connection.
//! The layer sends requests to a [`Local`]; the control loop reaches it through a [`LocalSlot`].

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tokio::sync::watch;
use tower_service::Service;

use crate::ask::{Ask, AskError};
use crate::body::{Body, BodyError};
use crate::envelope::Envelope;
use crate::error::SendError;
use crate::gateway;
use crate::trace::Forward;

/// The response of a local server, or why there is none.
pub(crate) type Sending<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Body>, SendError>> + Send + 'a>>;

/// What a local server must be able to do.
pub(crate) trait Serve: Send {
    fn send<'a>(&'a mut self, envelope: Envelope<'a>) -> Sending<'a>;

    fn boxed_clone(&self) -> Box<dyn Serve>;
}

/// The local server.
pub(crate) struct Local(Box<dyn Serve>);

impl Local {
    pub(crate) fn new(server: impl Serve + 'static) -> Local {
        Local(Box::new(server))
    }

    /// A server in this process.
    pub(crate) fn service<S, R>(service: S) -> Local
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        Local::new(InProcess(service))
    }

    /// Sends a request, as soon as the server takes one. No mark of a gateway survives in its
    /// response.
    pub(crate) async fn send(
        &mut self,
        envelope: impl Into<Envelope<'_>>,
    ) -> Result<Response<Body>, SendError> {
        let mut response = self.0.send(envelope.into()).await?;
        gateway::unmark(&mut response);
        Ok(response)
    }
}

impl Clone for Local {
    fn clone(&self) -> Local {
        Local(self.0.boxed_clone())
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local")
    }
}

#[derive(Clone)]
struct InProcess<S>(S);

impl<S, R> Serve for InProcess<S>
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    fn send<'a>(&'a mut self, mut envelope: Envelope<'a>) -> Sending<'a> {
        Box::pin(async move {
            let forward = Forward::begin(envelope.trace, &mut envelope.request, None);
            let Ok(()) = poll_fn(|cx| self.0.poll_ready(cx)).await;
            let Ok(response) = self.0.call(envelope.into_request()).await;
            let response = response.map(Body::new);
            if let Some(forward) = forward {
                forward.end(Ok(&response), None);
            }
            Ok(response)
        })
    }

    fn boxed_clone(&self) -> Box<dyn Serve> {
        Box::new(self.clone())
    }
}

/// A place for the local server: the layer fills it, the control loop takes from it.
#[derive(Debug, Clone)]
pub(crate) struct LocalSlot(Arc<watch::Sender<Option<SharedLocal>>>);

impl Default for LocalSlot {
    fn default() -> Self {
        LocalSlot(Arc::new(watch::Sender::new(None)))
    }
}

impl LocalSlot {
    /// Puts the server there, unless there is one.
    pub(crate) fn fill(&self, local: &Local) {
        self.0.send_if_modified(|slot| {
            let empty = slot.is_none();
            if empty {
                *slot = Some(SharedLocal(Arc::new(Mutex::new(local.clone()))));
            }
            empty
        });
    }

    /// The server, once the layer has filled the slot.
    pub(crate) fn get(&self) -> Option<SharedLocal> {
        self.0.borrow().clone()
    }
}

/// The local server, shared with the control loop.
#[derive(Debug, Clone)]
pub(crate) struct SharedLocal(Arc<Mutex<Local>>);

/// Asks the server that is in the slot at that time.
impl Ask for LocalSlot {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        match self.get() {
            Some(local) => local.ask(request).await,
            None => Err(AskError::new("the local server is not set up yet")),
        }
    }
}

impl Ask for SharedLocal {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let mut local = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sent = local.send(request).await.or_else(SendError::into_response);
        sent.map_err(|error| AskError::new(format!("{}: {}", error.stage, error.cause)))
    }
}
