//! The local server as the control loop sees it: whatever service the layer was put before.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tokio::sync::watch;
use tower::ServiceExt;
use tower::util::BoxCloneService;
use tower_service::Service;

use crate::body::{Body, BodyError};
use crate::control::{Ask, AskError};
use crate::data::Unreachable;

/// A place for the local server: the layer fills it, the control loop takes from it.
#[derive(Debug, Clone)]
pub struct LocalSlot(Arc<watch::Sender<Option<SharedLocal>>>);

impl Default for LocalSlot {
    fn default() -> Self {
        LocalSlot(Arc::new(watch::Sender::new(None)))
    }
}

impl LocalSlot {
    /// Puts the server there, if nobody did.
    pub(crate) fn fill(&self, local: SharedLocal) {
        self.0.send_if_modified(|slot| {
            let empty = slot.is_none();
            if empty {
                *slot = Some(local);
            }
            empty
        });
    }

    /// The server, if it is there.
    pub fn get(&self) -> Option<SharedLocal> {
        self.0.borrow().clone()
    }
}

/// The local server, whatever its type.
#[derive(Clone)]
pub struct SharedLocal(Arc<Mutex<Boxed>>);

type Boxed = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

impl std::fmt::Debug for SharedLocal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedLocal")
    }
}

impl SharedLocal {
    pub(crate) fn new<S, R>(service: S) -> SharedLocal
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let service = service.map_response(|response: Response<R>| response.map(Body::new));
        SharedLocal(Arc::new(Mutex::new(BoxCloneService::new(service))))
    }
}

/// Whichever server is there by then.
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
        let service = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let response = match service.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        match response.extensions().get::<Unreachable>() {
            Some(Unreachable(stage)) => {
                Err(AskError::new(format!("the server gave no answer ({stage})")))
            }
            None => Ok(response),
        }
    }
}
