//! Any member in the place of a local server, where there is none (row 12). Entry item: [`AnyMember`].

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use mvp_core::Snapshot;
use mvp_core::discovery::Part;
use tower_service::Service;

use super::{Ask, AskError, SnapshotReader};
use crate::ask::is_watch;
use crate::body::Body;
use crate::peers::Peers;
use crate::status;

/// The healthy member with the least load. It serves reads that any member can answer.
#[derive(Debug, Clone)]
pub struct AnyMember {
    peers: Peers,
    reader: SnapshotReader,
}

impl AnyMember {
    /// A service that sends each read to one of these peers.
    pub(crate) fn new(peers: Peers, reader: SnapshotReader) -> AnyMember {
        AnyMember { peers, reader }
    }

    /// Waits until the discovery of a member was fetched.
    pub async fn some_member(&self) {
        let seen = |snapshot: &Snapshot| {
            snapshot.members().any(|member| member.view.part(Part::Api).is_some())
        };
        self.reader.wait_for(seen).await;
    }
}

impl Ask for AnyMember {
    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, AskError> {
        let lasts = is_watch(&request);
        let (parts, _) = request.into_parts();
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(AskError::new("only reads can go to any member"));
        }
        let again = |_: &_| Request::from_parts(parts.clone(), Body::empty());
        let asked = self.peers.ask_any(&self.reader.load(), None, again).await;
        match asked {
            // A server that shuts down waits for open watches.
            Ok((member, response)) if lasts => {
                let (_, health) = self.peers.ways();
                Ok(response.map(|body| body.until(health.leaves(member))))
            }
            Ok((_, response)) => Ok(response),
            Err(failed) => Err(match &*failed.tried() {
                [] => AskError::new("no member is known"),
                tried => AskError::new(format!("no member answers: {}", tried.join(", "))),
            }),
        }
    }
}

impl Service<Request<Body>> for AnyMember {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let any = self.clone();
        Box::pin(async move {
            Ok(any.ask(request).await.unwrap_or_else(|_| status::unavailable("no member answers")))
        })
    }
}
