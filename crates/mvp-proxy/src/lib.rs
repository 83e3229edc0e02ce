//! The Mixed Version Proxy as a tower layer, for API servers in Rust and for the gateway.
//!
//! - [`Member`] assembles everything: start here
//! - [`MixedVersionLayer`]: the data path (`layer::exchange`)
//! - [`control`]: the control loop, and where members come from
//! - [`trace`]: spans of requests, with [`MemberBuilder::traced_by`]
//! - [`AuthenticateLayer`], by [`Member::authenticate`]: who the caller is
//!
//! To make an API server a member, build a [`Member`], start it with a source of members, and put its
//! layer in front of the server.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use mvp_proxy::control::{MemberRecord, StaticMembership};
//! use mvp_proxy::{Body, Identity, Member, OutboundTls};
//! use tower::ServiceExt;
//! use tower_layer::Layer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let ca = testkit::certificates::Ca::new("servers").pem().to_owned();
//! # let stop = tokio_util::sync::CancellationToken::new();
//! let api_server = tower::service_fn(|_: Request<Body>| async {
//!     Ok::<_, Infallible>(Response::new(Body::from(bytes::Bytes::from_static(b"ok"))))
//! });
//!
//! let tls = OutboundTls::new(ca.as_bytes(), None)?;
//! let member = Member::builder("widgets", tls).build();
//! let peers = StaticMembership::new(vec![MemberRecord::gateway("other", "127.0.0.1:7443")]);
//! let service = member.start(peers, stop.clone()).layer().layer(api_server);
//!
//! // In a server, `Member::authenticate` finds out who the caller is.
//! let mut request = Request::get("/healthz").body(Body::empty())?;
//! request.extensions_mut().insert(Identity::Anonymous);
//! let response = service.oneshot(request).await?;
//! assert_eq!(response.status(), 200);
//! # stop.cancel();
//! # Ok(())
//! # }
//! ```

mod ask;
mod body;
mod clock;
pub mod control;
mod door;
mod envelope;
mod error;
mod gateway;
mod gzip;
mod headers;
mod identity;
mod incoming;
mod layer;
mod local;
mod member;
mod metrics;
#[cfg(test)]
mod missing;
mod peers;
mod probe;
#[cfg(test)]
mod simulation;
mod status;
pub mod trace;
mod upstream;

pub use body::{Body, BodyError};
pub use error::{SendError, Stage};
pub use gateway::{PEER_PROXIED, gateway_id, unique};
pub use identity::{
    Authenticate, AuthenticateLayer, HeadersState, Identity, RemoteHeaders, ResponseFuture, User,
};
pub use layer::{MixedVersion, MixedVersionLayer};
pub use member::{Member, MemberBuilder, Worker};
pub use metrics::{
    Callers, CallersReport, Flow, FlowCount, Metrics, RecordedCaller, ResourceCallers,
};
pub use peers::PeerLimits;
pub use probe::{LocalState, OwnRequests};
pub use upstream::{
    ConnectProxy, Egress, Forwarder, OutboundTls, ReloadableOutbound, Target, Way, Ways,
    server_name,
};
