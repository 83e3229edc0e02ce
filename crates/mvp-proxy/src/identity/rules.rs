//! The rules of authentication: kube-apiserver's own, in its order. Entry item: [`authenticate`].

use std::sync::{Arc, OnceLock};

use http::header::{AUTHORIZATION, HeaderName, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue, StatusCode};
use mvp_core::decide::Origin;
use mvp_net::{CertificateUser, ConnectionInfo};

use super::untrusted::Untrusted;
use super::{Identity, Names, User};
use crate::gateway::PEER_PROXIED;
use crate::headers::{asks_for_websocket, items, remove_named_by_connection};

/// The prefix of a WebSocket protocol that is a token: browsers cannot set other headers of a
/// WebSocket.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The caller and the origin of a request, or why it is refused. Whatever the outcome, this removes
/// all headers that only this proxy or a front proxy may send: those in `reserved`.
pub(super) fn authenticate(
    connection: Option<&ConnectionInfo>,
    headers: &mut HeaderMap,
    names: &Names,
    reserved: Vec<HeaderName>,
    untrusted: &Untrusted,
) -> Result<(Identity, Origin), &'static str> {
    // A header that the client declares hop-by-hop must not be read as if it were forwarded.
    remove_named_by_connection(headers, |name| names.reserves(name.as_str()));
    let judgement = connection.map(ConnectionInfo::judgement);
    let front_proxy = judgement.is_some_and(|judgement| judgement.front_proxy);
    let remote = if front_proxy { User::from_remote(headers, &names.own) } else { None };
    let claims_peer = headers.contains_key(PEER_PROXIED);
    for name in reserved {
        headers.remove(name);
    }

    let origin = match (claims_peer, front_proxy) {
        (false, _) => Origin::Client,
        (true, true) => Origin::Peer,
        (true, false) => Origin::Marked,
    };
    let is_untrusted = judgement.is_some_and(|judgement| {
        judgement.presented && !judgement.front_proxy && judgement.user.is_none()
    });
    if let (true, true, Some(connection)) = (is_untrusted, claims_peer, connection) {
        untrusted.report(connection, true);
    }
    // Rule 1: a front proxy or a peer names the user.
    if let Some(user) = remote {
        headers.remove(AUTHORIZATION);
        return Ok((Identity::User(Arc::new(user)), origin));
    }
    // Rule 2: a client certificate. That of a peer names the peer, never the peer's caller.
    let certificate = if origin == Origin::Peer { None } else { judgement };
    match connection.zip(certificate.and_then(|judgement| judgement.user.as_ref())) {
        Some((connection, Ok(user))) => {
            let user = of_certificate(connection, user)
                .ok_or("a name in the client certificate is not a valid header value")?;
            headers.remove(AUTHORIZATION);
            return Ok((Identity::User(user), origin));
        }
        Some((_, Err(_))) => return Err("a name in the client certificate is padded or unsafe"),
        None => {}
    }
    // Rule 3: a bearer token, or no credentials at all.
    if headers.get(AUTHORIZATION).and_then(bearer).is_some() || has_token_protocol(headers) {
        return Ok((Identity::Token, origin));
    }
    // Rule 4: a certificate that a CA rejects, or that names no user, is not anonymous. Peers present
    // their own certificate for anonymous callers.
    let rejected = judgement.is_some_and(|judgement| judgement.rejected);
    if rejected && origin != Origin::Peer {
        if let (true, false, Some(connection)) = (is_untrusted, claims_peer, connection) {
            untrusted.report(connection, false);
        }
        return Err("the client certificate identifies nobody, and there is no token");
    }
    Ok((Identity::Anonymous, origin))
}

/// The user of the certificate of a connection, made once for all its requests.
fn of_certificate(connection: &ConnectionInfo, user: &CertificateUser) -> Option<Arc<User>> {
    let make = || User::from_certificate(user).map(Arc::new);
    match connection.judged_note::<OnceLock<Option<Arc<User>>>>() {
        Some(note) => note.get_or_init(make).clone(),
        None => make(),
    }
}

/// The bearer token that kube-apiserver finds in this header. It ignores other schemes and empty
/// tokens: such a caller is anonymous.
pub(crate) fn bearer(authorization: &HeaderValue) -> Option<&[u8]> {
    let mut parts = authorization.as_bytes().trim_ascii().split(|byte| *byte == b' ');
    let scheme = parts.next().unwrap_or_default();
    let token = parts.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case(b"bearer").then_some(token)
}

/// Whether a response shows that the server accepted the caller's token. Other statuses may come
/// from filters that run before authentication.
pub(crate) fn proves_token(status: StatusCode) -> bool {
    status.is_success()
        || matches!(
            status,
            StatusCode::SWITCHING_PROTOCOLS
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::CONFLICT
                | StatusCode::GONE
                | StatusCode::UNPROCESSABLE_ENTITY
        )
}

/// Whether the protocols of a WebSocket include a token. kube-apiserver accepts it there too.
fn has_token_protocol(headers: &HeaderMap) -> bool {
    let is_token = |protocol: &str| {
        protocol.strip_prefix(TOKEN_PROTOCOL).is_some_and(|token| !token.is_empty())
    };
    items(headers, &SEC_WEBSOCKET_PROTOCOL).any(is_token) && asks_for_websocket(headers)
}

#[cfg(test)]
mod tests;
