//! The headers that gateways exchange, typed both ways. Only headers of a peer that proved itself are
//! believed; everybody else's are removed.
//!
//! - [`PEER_PROXIED`]: a request that was proxied once is not proxied again.
//! - [`Refusal`]: a peer processed nothing of a request, and why.
//! - [`mark_lost`]: a peer's server received a request and sent no response.
//! - [`INSISTS`]: all servers that could serve a request are unready; this one must.
//! - [`TRACED`]: the gateway of the client traces the request.
//! - [`Instance`]: which process responded.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Response};
use mvp_core::decide::Reason;

/// Marks a request that one API server proxied to another. Kubernetes uses the same name.
pub const PEER_PROXIED: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");

/// How the names of all marks begin.
const MARKS: &str = "x-mvp-";

/// Marks a refusal: nothing of the request was processed. The value is the label of a [`Reason`].
const REFUSED: HeaderName = HeaderName::from_static("x-mvp-refused");

/// Marks a 503 for a request that a server received but did not respond to.
const LOST: HeaderName = HeaderName::from_static("x-mvp-lost");

/// Asks a peer to use its server although that is unready.
pub(crate) const INSISTS: HeaderName = HeaderName::from_static("x-mvp-insists");

/// Tells a peer that this gateway traces the request. The client alone may have asked for it in
/// `traceparent`, which passes through.
pub(crate) const TRACED: HeaderName = HeaderName::from_static("x-mvp-traced");

/// The process that responded, as `ID_INSTANCE`.
pub(crate) const INSTANCE: HeaderName = HeaderName::from_static("x-mvp-instance");

/// A peer's statement that it processed nothing of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its server is down: it refuses every request.
    Down,
    /// Its server is unready: it refuses what other members serve.
    Unready,
    /// It refuses this request, which says nothing about others.
    ThisRequest,
}

impl Refusal {
    /// The refusal in these response headers. The caller must know that a gateway sent them.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Refusal> {
        let label = headers.get(REFUSED)?.to_str().unwrap_or_default();
        Some(match Reason::from_label(label) {
            Some(Reason::LocalDown) => Refusal::Down,
            Some(Reason::LocalNotReady) => Refusal::Unready,
            _ => Refusal::ThisRequest,
        })
    }
}

/// Tells a peer that nothing of its request was processed.
pub(crate) fn mark_refused<B>(response: &mut Response<B>, reason: Reason) {
    response.headers_mut().insert(REFUSED, HeaderValue::from_static(reason.as_str()));
}

/// Tells a peer that the server received its request and did not respond.
pub(crate) fn mark_lost<B>(response: &mut Response<B>) {
    response.headers_mut().insert(LOST, HeaderValue::from_static("exchange"));
}

/// Whether a peer says so. The caller must know that a gateway sent these headers.
pub(crate) fn is_lost(headers: &HeaderMap) -> bool {
    headers.contains_key(LOST)
}

/// Removes the marks that only a gateway may set, so that no server can set them.
pub(crate) fn unmark<B>(response: &mut Response<B>) {
    if !response.headers().keys().any(|name| name.as_str().starts_with(MARKS)) {
        return;
    }
    response.headers_mut().remove(REFUSED);
    response.headers_mut().remove(LOST);
    response.headers_mut().remove(INSTANCE);
}

/// The name of this process among peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance(HeaderValue);

impl Instance {
    /// The instance of the server with this ID; a load balancer has an empty one.
    pub(crate) fn new(id: &str) -> Instance {
        // An embedder may choose any ID; header values are ASCII.
        let value = format!("{}_{}", id.escape_default(), unique());
        Instance(HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("_")))
    }

    /// The value of [`INSTANCE`].
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// A name that no other process has.
pub fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), std::process::id())
}

/// Who answered at an address. The connection proves that it belongs to the cluster; which member it is,
/// only its own answer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// This process.
    Ourselves,
    /// A gateway, or a server with the layer inside.
    Gateway {
        /// The ID of its server.
        id: Arc<str>,
        /// The unique name of its process.
        instance: Arc<str>,
    },
    /// A server without a gateway. It does not tell its ID.
    Server,
}

/// The ID of the gateway that sent these response headers; none if a server without one did. Only a
/// gateway that trusts the certificate of the request tells it, for a request with [`PEER_PROXIED`].
pub fn gateway_id(headers: &HeaderMap) -> Option<Arc<str>> {
    match who(headers, None) {
        Who::Gateway { id, .. } => Some(id),
        Who::Ourselves | Who::Server => None,
    }
}

/// Whether a gateway sent these response headers.
pub(crate) fn is_of_gateway(headers: &HeaderMap) -> bool {
    headers.contains_key(INSTANCE)
}

/// The process that sent these response headers.
pub(crate) fn who(headers: &HeaderMap, own: Option<&Instance>) -> Who {
    let Some(told) = headers.get(INSTANCE) else { return Who::Server };
    if own.is_some_and(|own| own.0 == *told) {
        return Who::Ourselves;
    }
    let told = told.to_str().unwrap_or_default();
    match told.rsplit_once('_') {
        Some((id, instance)) => Who::Gateway { id: id.into(), instance: instance.into() },
        None => Who::Gateway { id: "".into(), instance: told.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_identifies_itself_and_others() {
        let (own, other) = (Instance::new("a_1"), Instance::new("b_2"));
        let told = |instance: &Instance| HeaderMap::from_iter([(INSTANCE, instance.header())]);
        assert_eq!(who(&HeaderMap::new(), Some(&own)), Who::Server);
        assert_eq!(who(&told(&own), Some(&own)), Who::Ourselves);
        let gateway = |who: Who| match who {
            Who::Gateway { id, instance } => (id.to_string(), instance.to_string()),
            other => panic!("{other:?}"),
        };
        let (id, instance) = gateway(who(&told(&other), Some(&own)));
        assert_eq!(id, "b_2");
        assert!(!instance.is_empty() && !instance.contains('_'));
        assert_eq!(gateway(who(&told(&own), None)).0, "a_1");
        let odd = Instance::new("é\n");
        assert_eq!(gateway(who(&told(&odd), None)).0, "\\u{e9}\\n");
        let odd = HeaderMap::from_iter([(INSTANCE, HeaderValue::from_bytes(b"\xff").unwrap())]);
        assert_eq!(who(&odd, None), Who::Gateway { id: "".into(), instance: "".into() });
    }
}
