//! HTTP headers of forwarded requests: hop-by-hop headers are removed, and provenance is added.

use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SEC_WEBSOCKET_PROTOCOL, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

/// The protocols that can be tunnelled. `Upgrade` to others is not forwarded.
const TUNNELLED: [&str; 2] = ["websocket", "SPDY/3.1"];

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Removes the headers that `Connection` names. Exceptions are `Upgrade` and `TE`, which are
/// handled separately, and headers that identify the caller: the client of a proxy must not remove
/// the user name that the proxy set.
pub(crate) fn remove_named_by_connection(
    headers: &mut HeaderMap,
    identifies: impl Fn(&HeaderName) -> bool,
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
            !is_credential && !name.as_str().starts_with("impersonate-") && !identifies(name)
        })
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Removes hop-by-hop headers, and those that `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // Most messages have none: one look at each name costs less than a search for each of these.
    if !headers.keys().any(|name| is_hop_by_hop(name.as_str())) {
        return;
    }
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

fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes trailers that must not be sent. Go resets the stream of a request with one of them, and
/// h2 does not send those that belong to a connection.
pub(crate) fn remove_forbidden_trailers(trailers: &mut HeaderMap) {
    let forbidden: Vec<HeaderName> =
        trailers.keys().filter(|name| is_forbidden_trailer(name.as_str())).cloned().collect();
    for name in forbidden {
        trailers.remove(name);
    }
}

/// The names that Go's `ValidTrailerHeader` refuses, and `Upgrade`.
fn is_forbidden_trailer(name: &str) -> bool {
    const FORBIDDEN: [&str; 22] = [
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "max-forwards",
        "pragma",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "range",
        "realm",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
    ];
    name.starts_with("if-") || FORBIDDEN.contains(&name)
}

/// The requested upgrade protocols that can be tunnelled.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    // Runs for every request: most have no such header.
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

/// Whether the client asks for a WebSocket, by kube-apiserver's rules.
pub(crate) fn asks_for_websocket(headers: &HeaderMap) -> bool {
    upgrade(headers).is_some()
        && items(headers, &UPGRADE).any(|name| name.eq_ignore_ascii_case("websocket"))
}

/// Sets the headers of a request for an upgrade, or of the 101 that accepts it.
pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// The items of a header with a comma-separated list.
pub(crate) fn items<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Appends the address of the client to `X-Forwarded-For`, and adds an `Audit-ID` if there is none.
pub(crate) fn add_provenance(headers: &mut HeaderMap, client: Option<&HeaderValue>) {
    if let Some(client) = client {
        let before = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
        let before: Vec<&[u8]> = before.filter(|value| !value.is_empty()).collect();
        let chain = match &before[..] {
            [] => Ok(client.clone()),
            before => {
                let chain = [before, &[client.as_bytes()]].concat().join(&b", "[..]);
                HeaderValue::from_bytes(&chain)
            }
        };
        if let Ok(chain) = chain {
            headers.insert(X_FORWARDED_FOR, chain);
        }
    }
    // HPACK remembers other values. This one never occurs again, and would evict them.
    if let Some(id) = headers.get_mut(AUDIT_ID) {
        id.set_sensitive(true);
    } else {
        let mut text = uuid::Uuid::encode_buffer();
        let id = uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text);
        if let Ok(mut id) = HeaderValue::from_str(id) {
            id.set_sensitive(true);
            headers.insert(AUDIT_ID, id);
        }
    }
}

/// Removes and returns `Host`, which HTTP/2 replaces by `:authority`.
pub(crate) fn take_host(headers: &mut HeaderMap) -> Option<HeaderValue> {
    headers.remove(HOST)
}
