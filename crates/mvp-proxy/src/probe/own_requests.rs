//! Requests of our own to the local server that may last. Entry item: [`OwnRequests`].

use http::{Request, Response};

use super::LocalState;
use crate::ask::{Ask, AskError, is_watch};
use crate::body::Body;
use crate::local::LocalSlot;

/// The local server, for requests of our own.
///
/// Watches end when the server shuts down, and none begins until it is back: kube-apiserver waits
/// for open watches, by default for up to a minute.
#[derive(Debug, Clone)]
pub struct OwnRequests {
    slot: LocalSlot,
    /// Without one, the server counts as ready.
    state: Option<LocalState>,
}

impl OwnRequests {
    pub(crate) fn new(slot: LocalSlot, state: Option<LocalState>) -> OwnRequests {
        OwnRequests { slot, state }
    }
}

impl Ask for OwnRequests {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let Some(state) = self.state.as_ref().filter(|_| is_watch(&request)) else {
            return self.slot.ask(request).await;
        };
        let leaving = || Err(AskError::new("the local server is shutting down or unreachable"));
        if state.is_leaving() {
            return leaving();
        }
        let response = tokio::select! {
            response = self.slot.ask(request) => response?,
            () = state.leaves() => return leaving(),
        };
        let state = state.clone();
        Ok(response.map(|body| body.until(async move { state.leaves().await })))
    }
}
