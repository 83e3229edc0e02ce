//! A server behind a connection, as a service: the local server of a gateway.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::forward::{Forwarder, Target};
use crate::body::Body;
use crate::error::{SendError, Stage};
use crate::status;

/// A server behind a connection.
#[derive(Debug, Clone)]
pub struct Remote {
    forwarder: Arc<Forwarder>,
    target: Arc<Target>,
    /// Whether it last gave no answer: that is worth a line when it begins, not each time.
    down: Arc<AtomicBool>,
}

/// Left in the extensions of a 503 of ours: the server gave no answer.
#[derive(Debug, Clone)]
pub struct Unreachable(pub Stage);

impl Remote {
    /// That server, over these connections.
    pub fn new(forwarder: Arc<Forwarder>, target: Target) -> Remote {
        Remote { forwarder, target: Arc::new(target), down: Arc::default() }
    }
}

impl Service<Request<Body>> for Remote {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Remote { forwarder, target, down } = self.clone();
        Box::pin(async move {
            let sent = forwarder.send(&target, request).await;
            // These say nothing about the server.
            if let Err(error) = &sent
                && let Some(response) = error.response()
            {
                return Ok(response);
            }
            let was_down = down.swap(sent.is_err(), Ordering::Relaxed);
            match &sent {
                Err(error) if !was_down => {
                    tracing::warn!(%error, "the local server gives no answer")
                }
                Ok(_) if was_down => tracing::info!("the local server answers again"),
                _ => {}
            }
            Ok(sent.unwrap_or_else(|error| unreachable(&error)))
        })
    }
}

fn unreachable(error: &SendError) -> Response<Body> {
    let message = format!("the API server {} gave no answer", error.member);
    let mut response = status::unavailable(&message);
    response.extensions_mut().insert(Unreachable(error.stage));
    response
}
