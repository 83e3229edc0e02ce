//! Headers on their way through: what concerns one connection stays behind, what the next server
//! needs to know is added.

use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SEC_WEBSOCKET_PROTOCOL, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};
use std::net::IpAddr;

/// What connections are handed over to; for all else `Upgrade` stays behind.
const TUNNELLED: [&str; 2] = ["websocket", "SPDY/3.1"];

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Removes the headers that `Connection` names, but for those that have a meaning of their own to
/// us, and those that say who is asking: the client of a proxy must not take away the name that the
/// proxy gave it.
pub(crate) fn remove_named_by_connection(
    headers: &mut HeaderMap,
    says_who: impl Fn(&HeaderName) -> bool,
) {
    if !headers.contains_key(CONNECTION) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name: &HeaderName| *name != UPGRADE && *name != TE)
        .filter(|name| {
            let is_credential = *name == AUTHORIZATION || *name == SEC_WEBSOCKET_PROTOCOL;
            !is_credential && !name.as_str().starts_with("impersonate-") && !says_who(name)
        })
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Removes what belongs to one connection only, with whatever `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    remove_named_by_connection(headers, |_| false);
    headers.remove(CONNECTION);
    // Trailers need `TE: trailers`, which is allowed end to end in HTTP/2.
    let wants_trailers = headers.get(TE).is_some_and(|te| te.as_bytes() == b"trailers");
    for name in [
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The protocols that a connection shall be handed over to, of those that can be tunnelled.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    // Looked at for every request: most have none.
    let upgrade = headers.get(UPGRADE)?;
    let is_upgrade = |name: &str| name.eq_ignore_ascii_case(UPGRADE.as_str());
    if !items(headers, &CONNECTION).any(is_upgrade) {
        return None;
    }
    let tunnelled = |name: &&str| TUNNELLED.iter().any(|known| name.eq_ignore_ascii_case(known));
    let protocols: Vec<&str> = items(headers, &UPGRADE).filter(tunnelled).collect();
    match protocols.as_slice() {
        [] => None,
        [only] if *only == upgrade => Some(upgrade.clone()),
        _ => HeaderValue::try_from(protocols.join(", ")).ok(),
    }
}

/// Whether it is a WebSocket that is asked for, as kube-apiserver looks at it.
pub(crate) fn asks_for_websocket(headers: &HeaderMap) -> bool {
    upgrade(headers).is_some()
        && items(headers, &UPGRADE).any(|name| name.eq_ignore_ascii_case("websocket"))
}

/// Hands the connection over, or asks for it.
pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// The items of a header that is a list.
pub(crate) fn items<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Says to the next server where a request came from, and gives it an ID to be found by.
pub(crate) fn add_provenance(headers: &mut HeaderMap, client: Option<IpAddr>) {
    if let Some(client) = client {
        let before: Vec<&[u8]> =
            headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
        let mut chain = before.join(&b", "[..]);
        if !chain.is_empty() {
            chain.extend_from_slice(b", ");
        }
        chain.extend_from_slice(client.to_string().as_bytes());
        if let Ok(chain) = HeaderValue::from_bytes(&chain) {
            headers.insert(X_FORWARDED_FOR, chain);
        }
    }
    if !headers.contains_key(AUDIT_ID) {
        let id = uuid::Uuid::new_v4().hyphenated().to_string();
        if let Ok(id) = HeaderValue::try_from(id) {
            headers.insert(AUDIT_ID, id);
        }
    }
}

/// The headers that HTTP/2 has as parts of the request line.
pub(crate) fn take_host(headers: &mut HeaderMap) -> Option<HeaderValue> {
    headers.remove(HOST)
}
