//! The local server of a gateway: a server behind a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::forward::Forwarder;
use super::pool::Opened;
use super::target::Target;
use crate::envelope::Envelope;
use crate::error::Stage;
use crate::local::{Sending, Serve};
use crate::trace::Forward;

/// A local server behind a connection.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    forwarder: Arc<Forwarder>,
    target: Arc<Target>,
    /// Whether the last request got no response: logged when that changes, not for each request.
    down: Arc<AtomicBool>,
}

impl Remote {
    pub(crate) fn new(forwarder: Arc<Forwarder>, target: Arc<Target>) -> Remote {
        Remote { forwarder, target, down: Arc::default() }
    }
}

impl Serve for Remote {
    fn send<'a>(&'a mut self, mut envelope: Envelope<'a>) -> Sending<'a> {
        let Remote { forwarder, target, down } = self;
        Box::pin(async move {
            let member = Some((&*target.id, &*target.address));
            let traced = Forward::begin(envelope.trace, &mut envelope.request, member);
            let sent = forwarder.forward(target, envelope).await;
            if let Some(traced) = traced {
                traced.end(sent.as_ref(), Opened::of(&sent));
            }
            // A server that closes a connection, as kube-apiserver does after a 401, still responds on
            // the next one.
            if let Err(error) = &sent
                && (error.stage.ends_request() || error.stage == Stage::NotSent)
            {
                return sent;
            }
            match (&sent, down.swap(sent.is_err(), Ordering::Relaxed)) {
                (Err(error), false) => tracing::warn!(%error, "local server sends no response"),
                (Ok(_), true) => tracing::info!("local server responds again"),
                _ => {}
            }
            sent
        })
    }

    fn boxed_clone(&self) -> Box<dyn Serve> {
        Box::new(self.clone())
    }
}
