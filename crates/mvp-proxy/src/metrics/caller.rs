//! The caller in the log line of a request. Entry item: [`of`].

use std::hash::{BuildHasher, RandomState};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;

use crate::identity::{Identity, bearer, proves_token};

/// The longest name that is shown.
const MAX_NAME: usize = 256;
/// The source of a name that is the hash of a token.
pub(super) const TOKEN_HASH: &str = "token-hash";
/// The longest payload of a JWT that is parsed.
const MAX_PAYLOAD: usize = 16 << 10;

/// A caller, as a log line shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) name: Option<String>,
    /// How far the name can be trusted.
    pub(super) source: &'static str,
}

/// The caller of a request with this response. The name in a token is shown only if the response
/// proves that a server accepted the token; else a hash under `key` tells callers apart.
pub(super) fn of(
    identity: &Identity,
    headers: &HeaderMap,
    status: StatusCode,
    key: &RandomState,
) -> Caller {
    let (name, source) = match identity {
        Identity::User(user) => (user.name.as_ref().map(text), "authenticated"),
        Identity::System => (None, "mvp"),
        Identity::Anonymous => (Some("system:anonymous".to_owned()), "anonymous"),
        Identity::Token => match headers.get(AUTHORIZATION).and_then(bearer) {
            None => (None, "websocket-token"),
            Some(token) => match subject(token).filter(|_| proves_token(status)) {
                Some(subject) => (Some(subject), "jwt-unverified"),
                None => (Some(short_hash(token, key)), TOKEN_HASH),
            },
        },
    };
    Caller { name, source }
}

fn text(value: &HeaderValue) -> String {
    let bytes = value.as_bytes();
    String::from_utf8_lossy(bytes.get(..MAX_NAME).unwrap_or(bytes)).into_owned()
}

/// A hash that identifies a token in the log of this process, and reveals nothing about it.
fn short_hash(token: &[u8], key: &RandomState) -> String {
    format!("{:08x}", key.hash_one(token) >> 32)
}

/// The `sub` of a JWT. Nobody has verified its signature here.
fn subject(token: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        sub: String,
    }
    let mut parts = token.split(|byte| *byte == b'.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || payload.len() > MAX_PAYLOAD {
        return None;
    }
    let claims: Claims = serde_json::from_slice(&base64url(payload)?).ok()?;
    Some(claims.sub.chars().take(MAX_NAME).collect())
}

/// Decodes base64url without padding, as in a JWT.
fn base64url(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        (bits, count) = ((bits << 6) | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            decoded.push(((bits >> count) & 0xff) as u8);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::identity::User;

    /// `{"alg":"none"}.{"sub":"system:serviceaccount:default:ärger"}.` and a signature.
    const JWT: &str = "eyJhbGciOiJub25lIn0.\
                       eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6ZGVmYXVsdDrDpHJnZXIifQ.c2ln";

    fn caller(token: &str, status: u16) -> Caller {
        let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        let status = StatusCode::from_u16(status).unwrap();
        of(&Identity::Token, &headers, status, &RandomState::new())
    }

    #[test]
    fn the_subject_of_a_jwt_is_shown_only_if_a_server_accepted_it() {
        for status in [200, 101, 403, 404, 409] {
            let shown = caller(JWT, status);
            let name = Some("system:serviceaccount:default:ärger".to_owned());
            assert_eq!(shown, Caller { name, source: "jwt-unverified" }, "{status}");
        }
        // A 401 rejects it. The others may come before authentication.
        for status in [401, 400, 429, 503] {
            assert_eq!(caller(JWT, status).source, "token-hash", "{status}");
        }
    }

    #[test]
    fn other_tokens_are_hashed_and_never_shown() {
        let long = format!("a.{}.c", "A".repeat(MAX_PAYLOAD + 1));
        for token in ["secret-token", "a.b", "a.b.c.d", "a.!.c", "a.e30.c", &long] {
            let Caller { name, source } = caller(token, 200);
            let name = name.unwrap();
            assert_eq!((name.len(), source), (8, "token-hash"), "{token}");
            assert!(!token.contains(&name) && !name.contains(token), "{token}");
        }
        let (one, other) = (RandomState::new(), RandomState::new());
        assert_eq!(short_hash(b"t", &one), short_hash(b"t", &one));
        assert_ne!(
            ["t", "u", "v"].map(|token| short_hash(token.as_bytes(), &one)),
            ["t", "u", "v"].map(|token| short_hash(token.as_bytes(), &other)),
            "the key is that of the process"
        );
    }

    #[test]
    fn users_and_anonymous_callers_are_named() {
        let name = HeaderValue::from_bytes("jörg".as_bytes()).unwrap();
        let user = Identity::User(Arc::new(User { name: Some(name), ..User::default() }));
        let of = |identity| {
            let Caller { name, source } =
                of(identity, &HeaderMap::new(), StatusCode::OK, &RandomState::new());
            (name.unwrap(), source)
        };
        assert_eq!(of(&user), ("jörg".to_owned(), "authenticated"));
        assert_eq!(of(&Identity::Anonymous), ("system:anonymous".to_owned(), "anonymous"));
    }
}
