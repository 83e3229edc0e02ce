//! The head of a request as it is sent to one server: identity, provenance, hop-by-hop headers, and
//! the authority in the form of its HTTP version.

use http::uri::{Authority, Scheme};
use http::{Extensions, HeaderValue, Request, Uri, Version};
use mvp_core::decide::Origin;
use mvp_net::ConnectionInfo;

use super::client;
use super::target::Target;
use crate::body::Body;
use crate::gateway::{INSISTS, PEER_PROXIED, TRACED};
use crate::headers;
use crate::identity::{Identity, Screen};

/// What the head tells of a request besides its identity.
pub(super) struct Told<'a> {
    /// The extensions of the request as it arrived.
    pub(super) extensions: &'a Extensions,
    pub(super) insists: bool,
    /// Whether this gateway traces it.
    pub(super) traced: bool,
}

/// Writes the head of `request` for `target`.
pub(super) fn prepare(
    request: &mut Request<Body>,
    told: &Told<'_>,
    target: &Target,
    identity: &Identity,
    screen: &Screen,
    http2: bool,
) {
    let origin = told.extensions.get::<Origin>().copied();
    let client = told.extensions.get::<ConnectionInfo>().and_then(client::address);
    // The caller must not send headers that look like ours.
    screen.remove_reserved(request.headers_mut(), told.extensions);
    let host = {
        let headers = request.headers_mut();
        headers::remove_hop_by_hop(headers);
        identity.write(headers, &screen.own);
        headers::add_provenance(headers, client.as_ref());
        // A request makes one hop. The local server would make another one without this header.
        if !target.local || origin == Some(Origin::Peer) {
            headers.insert(PEER_PROXIED, HeaderValue::from_static("true"));
        }
        if told.insists {
            headers.insert(INSISTS, HeaderValue::from_static("true"));
        } else {
            headers.remove(INSISTS);
        }
        if told.traced && !target.local {
            headers.insert(TRACED, HeaderValue::from_static("true"));
        } else {
            headers.remove(TRACED);
        }
        headers::take_host(headers)
    };
    let authority = authority(request.uri(), host.as_ref(), target);
    if http2 {
        *request.version_mut() = Version::HTTP_2;
        if let Some(authority) = authority {
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            parts.scheme = Some(Scheme::HTTPS);
            parts.authority = Some(authority);
            *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        }
    } else {
        *request.version_mut() = Version::HTTP_11;
        let host = authority.and_then(|authority| HeaderValue::try_from(authority.as_str()).ok());
        if let Some(host) = host {
            request.headers_mut().insert(http::header::HOST, host);
        }
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = None;
        parts.authority = None;
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    }
}

/// The authority that the client used, or the server's address if it sent none.
fn authority(uri: &Uri, host: Option<&HeaderValue>, target: &Target) -> Option<Authority> {
    uri.authority()
        .cloned()
        .or_else(|| host.and_then(|host| Authority::try_from(host.as_bytes()).ok()))
        .or_else(|| Authority::try_from(&*target.address).ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderName;
    use mvp_core::member::MemberKind;

    use super::*;
    use crate::identity::{RemoteHeaders, User};
    use crate::upstream::server_name;

    /// Also for requests that did not pass through `Authenticate`.
    #[test]
    fn reserved_headers_are_removed_for_every_caller() {
        let custom = RemoteHeaders {
            group: vec![HeaderName::from_static("x-my-group")],
            ..RemoteHeaders::default()
        };
        let target = Target {
            id: "a".into(),
            address: "127.0.0.1:1".into(),
            server_name: server_name(),
            kind: MemberKind::Bare,
            local: true,
            source: None,
        };
        let identity = Identity::User(Arc::new(User::default()));
        let mut request = Request::new(Body::empty());
        for name in ["x-my-group", "X-Remote-User", "x_remote_user", "x-mvp-traced"] {
            let name = name.parse::<HeaderName>().unwrap();
            request.headers_mut().insert(name, HeaderValue::from_static("root"));
        }
        let told = Told { extensions: &Extensions::new(), insists: false, traced: false };
        prepare(&mut request, &told, &target, &identity, &custom.into(), true);
        assert!(!request.headers().values().any(|value| value == "root"), "{request:?}");
    }
}
