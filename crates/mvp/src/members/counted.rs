//! A server whose failed reads are counted, under the name of Kubernetes' own metric. Entry:
//! [`CountedReads`].

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use mvp_proxy::control::{Ask, AskError};
use mvp_proxy::{Body, Metrics, OwnRequests};

/// The local server, as Leases are read from it.
#[derive(Debug, Clone)]
pub(crate) struct CountedReads {
    server: OwnRequests,
    metrics: Arc<Metrics>,
}

impl CountedReads {
    pub(crate) fn new(server: OwnRequests, metrics: &Arc<Metrics>) -> CountedReads {
        CountedReads { server, metrics: Arc::clone(metrics) }
    }
}

impl Ask for CountedReads {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let is_read = request.method() == Method::GET;
        let answer = self.server.ask(request).await;
        // A watch that is too old is no failure: the list is read again.
        let failed = answer.as_ref().map_or(true, |response| {
            !response.status().is_success() && response.status() != StatusCode::GONE
        });
        if is_read && failed {
            self.metrics.lease_list_failed();
        }
        answer
    }
}
