//! Checks before authentication: malformed requests get a 400, unmet expectations a 417, heads that are
//! too large a 431. Also decides when a response ends its client's connection. Entry item: [`Door`].
//!
//! [`Authenticate`](crate::identity::Authenticate) runs these checks first. Go resets the HTTP/2
//! stream of a malformed request, which looks to a gateway as if the server had failed. So such a
//! request must never reach a server.

mod head;

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;

use http::header::EXPECT;
use http::{Method, Request, Response, StatusCode, Uri};
use mvp_net::{ClientError, ConnectionInfo};

pub(crate) use self::head::Head;
use crate::body::Body;
use crate::status;

/// The extra head size for front proxies and peers, which add headers such as `X-Remote-*`.
const FRONT_PROXY_ALLOWANCE: usize = 32 << 10;

/// A larger head never shares a connection with other callers.
const LARGE: usize = 32 << 10;

/// The limits for requests of clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Door {
    /// The largest head that is accepted.
    pub(crate) max_head_bytes: usize,
    /// The probability that a request ends its connection.
    pub(crate) goaway: Chance,
}

impl Default for Door {
    fn default() -> Door {
        Door { max_head_bytes: 128 << 10, goaway: Chance::new(0.0) }
    }
}

/// An extension of requests whose head is large but accepted. They must not share an upstream
/// connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargeHead;

impl Door {
    /// Checks a request. Returns whether its head is large, or why the request is refused.
    pub(crate) fn check<B>(
        &self,
        connection: Option<&ConnectionInfo>,
        request: &Request<B>,
        head: &mut Head,
    ) -> Result<Option<LargeHead>, Refusal> {
        well_formed(request).map_err(Refusal::Malformed)?;
        match connection {
            Some(connection) if !connection.http2() => head.check_http1(request.version())?,
            // Go's HTTP/2 server ignores other expectations, its HTTP/1.1 server does not.
            _ if head.unmet => head.reserved.push(EXPECT),
            _ => {}
        }
        if head.userinfo {
            return Err(Refusal::Malformed("the host has user information"));
        }
        let head_bytes = head.bytes;
        let allowance = if is_front_proxy(connection) { FRONT_PROXY_ALLOWANCE } else { 0 };
        let limit = self.max_head_bytes.saturating_add(allowance);
        if head_bytes > limit {
            return Err(Refusal::HeadTooLarge { bytes: head_bytes, limit });
        }
        Ok((head_bytes > LARGE).then_some(LargeHead))
    }

    /// Decides when the response to a request ends its connection. Only HTTP/2 connections of
    /// clients are ended: those of front proxies and peers carry many users.
    pub(crate) fn end(&self, connection: Option<&ConnectionInfo>) -> End {
        let ended = connection
            .filter(|connection| connection.http2() && !connection.judgement().front_proxy);
        End { always: ended.is_some() && self.goaway.hits(), connection: ended.cloned() }
    }
}

/// Why a request is refused before it is routed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    /// The request is malformed: 400.
    Malformed(&'static str),
    /// The client expects something other than `100-continue`: 417.
    Expectation,
    /// The request head is too large: 431.
    HeadTooLarge {
        /// The size of the head.
        bytes: usize,
        /// The largest size that is accepted.
        limit: usize,
    },
    /// The caller's credentials are not accepted: 401.
    Unauthorized(&'static str),
}

impl Refusal {
    /// Whether an HTTP/1.1 connection ends after it, as with Go.
    pub(crate) fn closes(self) -> bool {
        matches!(self, Refusal::Malformed(_) | Refusal::Expectation)
    }

    /// As what it is counted.
    pub(crate) fn error(self) -> ClientError {
        match self {
            Refusal::Malformed(_) => ClientError::Malformed,
            Refusal::Expectation => ClientError::Expectation,
            Refusal::HeadTooLarge { .. } => ClientError::LargeHead,
            Refusal::Unauthorized(_) => ClientError::Unauthorized,
        }
    }

    /// The response to the request, which `client` sent.
    pub(crate) fn response(self, client: Option<SocketAddr>) -> Response<Body> {
        let client = client.map(tracing::field::display);
        match self {
            Refusal::Malformed(reason) => {
                tracing::debug!(client, code = 400, reason, "request refused");
                status::bad_request(reason)
            }
            Refusal::Expectation => {
                tracing::debug!(client, code = 417, reason = "Expect", "request refused");
                status::expectation_failed()
            }
            Refusal::HeadTooLarge { bytes, limit } => {
                let reason = "head too large";
                tracing::debug!(client, code = 431, reason, bytes, limit, "request refused");
                let message = format!(
                    "the request line and headers have {bytes} bytes, the limit is {limit}"
                );
                status::head_too_large(&message)
            }
            Refusal::Unauthorized(reason) => {
                tracing::debug!(client, code = 401, reason, "request refused");
                status::unauthorized()
            }
        }
    }
}

fn is_front_proxy(connection: Option<&ConnectionInfo>) -> bool {
    connection.is_some_and(|connection| connection.judgement().front_proxy)
}

/// Whether Go's HTTP/2 server would accept the request. It refuses a request by resetting the
/// stream.
///
/// The path is checked as `url.ParseRequestURI` does, which ignores escapes in the query. Over
/// HTTP/1.1, Go accepts userinfo and CONNECT; nobody needs them, and the next hop may be HTTP/2. A
/// `Uri` never has control characters. An absolute-form target, legal in HTTP/1.1 alone, is already
/// split into its parts.
fn well_formed<B>(request: &Request<B>) -> Result<(), &'static str> {
    if *request.method() == Method::CONNECT {
        return Err("CONNECT is not supported");
    }
    if names_a_user(request.uri()) {
        return Err("the host has user information");
    }
    // Not `Uri::path`, which is "/" for a target without a path.
    let Some(target) = request.uri().path_and_query().map(|target| target.as_str()) else {
        return Err("the request target has no path");
    };
    if !target.starts_with('/') {
        return Err("the path does not begin with a slash");
    }
    if !escapes_are_valid(request.uri().path().as_bytes()) {
        return Err("the path has an invalid percent escape");
    }
    Ok(())
}

fn names_a_user(uri: &Uri) -> bool {
    uri.authority().is_some_and(|authority| authority.as_str().contains('@'))
}

/// Whether each `%` is followed by two hexadecimal digits.
fn escapes_are_valid(path: &[u8]) -> bool {
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        rest = match (byte, after) {
            (b'%', [first, second, after @ ..])
                if first.is_ascii_hexdigit() && second.is_ascii_hexdigit() =>
            {
                after
            }
            (b'%', _) => return false,
            _ => after,
        };
    }
    true
}

/// Ends a client's connection after an unauthenticated response, as kube-apiserver does: HTTP/2
/// requests are cheap to send and expensive to serve.
#[derive(Debug)]
pub(crate) struct End {
    connection: Option<ConnectionInfo>,
    /// Whether the connection ends after any response.
    pub(crate) always: bool,
}

impl End {
    /// Ends the connection if a response with this status does so.
    pub(crate) fn after(&self, status: StatusCode) {
        if let Some(connection) = &self.connection
            && (self.always || status == StatusCode::UNAUTHORIZED)
        {
            connection.end();
        }
    }
}

/// A probability.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance(u64);

impl Chance {
    /// A probability from 0 to 1.
    pub(crate) fn new(chance: f64) -> Chance {
        // The cast saturates, and NaN becomes 0.
        Chance((chance * u64::MAX as f64) as u64)
    }

    /// Draws at random, with this probability of `true`.
    pub(crate) fn hits(self) -> bool {
        self.0 != 0 && random() <= self.0
    }
}

/// SplitMix64, one generator for each thread. Nothing secret depends on it.
fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish());
    }
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(method: &str, target: &str) -> Result<(), &'static str> {
        well_formed(&Request::builder().method(method).uri(target).body(()).unwrap())
    }

    /// The verdicts of `url.ParseRequestURI` of Go 1.26.
    #[test]
    fn paths_are_accepted_as_go_accepts_them() {
        let good = [
            "/",
            "//",
            "/a%2Fb",
            "/a%2fb?x=%zz",
            "/%00",
            "/?%",
            "/a\"b{c}|d^e",
            "/a:b@c",
            "https://host/path",
            "https://host:1/%41?%",
            "https://host",
        ];
        for target in good {
            assert_eq!(verdict("GET", target), Ok(()), "{target}");
        }
        let bad = ["/%", "/%4", "/a%zz", "/%%41", "/a%2", "/%4?x", "/%g0", "/%0g", "host:443"];
        for target in bad {
            assert!(verdict("GET", target).is_err(), "{target}");
        }
        // Go itself answers these, before it reads the credentials.
        assert!(verdict("OPTIONS", "*").is_err());
        assert!(verdict("CONNECT", "host:443").is_err());
        assert!(verdict("CONNECT", "/").is_err());
        assert!(verdict("GET", "https://user@host/").is_err());
        assert!(verdict("GET", "https://user:password@host/").is_err());
    }

    #[test]
    fn a_target_that_is_only_a_query_is_refused() {
        let target = http::uri::PathAndQuery::from_static("?watch=1");
        let uri = Uri::builder().path_and_query(target).build().unwrap();
        assert!(well_formed(&Request::builder().uri(uri).body(()).unwrap()).is_err());
    }

    #[test]
    fn a_chance_hits_with_its_probability() {
        assert!((0..1000).all(|_| !Chance::new(0.0).hits()));
        assert!((0..1000).all(|_| !Chance::new(f64::NAN).hits()));
        assert!((0..1000).all(|_| Chance::new(1.0).hits()));
        let hits = (0..10_000).filter(|_| Chance::new(0.5).hits()).count();
        assert!((4_000..6_000).contains(&hits), "{hits}");
    }
}
