//! The bearer tokens that a server has accepted. kube-apiserver closes an HTTP/2 connection after
//! each 401, so a token that no server has accepted yet must not use a shared connection. Entry
//! item: [`AcceptedTokens`].
//!
//! Only hashes of tokens are stored, under a random key of this process. Lookups take no lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

use crate::identity::proves_token;

/// The largest number of remembered tokens. A dropped token is learned again.
const SLOTS: usize = 1 << 16;
/// The number of adjacent slots that a hash may be in.
const WAYS: usize = 8;

/// The tokens that a server has accepted. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct AcceptedTokens(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    key: RandomState,
    slots: Box<[AtomicU64]>,
    /// Selects the slot that is replaced next.
    next: AtomicU64,
}

/// The hash of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenHash(u64);

impl TokenHash {
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

impl Default for AcceptedTokens {
    fn default() -> AcceptedTokens {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        AcceptedTokens(Arc::new(Shared { key: RandomState::new(), slots, next: AtomicU64::new(0) }))
    }
}

impl AcceptedTokens {
    pub(crate) fn hash(&self, token: &[u8]) -> TokenHash {
        // 0 is an empty slot.
        TokenHash(self.0.key.hash_one(token).max(1))
    }

    /// Whether a server has accepted the token.
    pub(crate) fn contains(&self, token: TokenHash) -> bool {
        self.ways(token).iter().any(|slot| slot.load(Ordering::Relaxed) == token.0)
    }

    /// Notes the status of a response. Returns whether it shows that the server accepts the token.
    pub(crate) fn note(&self, token: TokenHash, status: StatusCode) -> bool {
        let accepted = proves_token(status);
        if status == StatusCode::UNAUTHORIZED {
            self.forget(token);
        } else if accepted && !self.contains(token) {
            self.accept(token);
        }
        accepted
    }

    fn accept(&self, token: TokenHash) {
        let ways = self.ways(token);
        let empty = ways.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
        let turn = self.0.next.fetch_add(1, Ordering::Relaxed) as usize % WAYS;
        if let Some(slot) = empty.or_else(|| ways.get(turn)) {
            slot.store(token.0, Ordering::Relaxed);
        }
    }

    fn forget(&self, token: TokenHash) {
        for slot in self.ways(token) {
            // If another token has taken the slot meanwhile, it stays.
            let _ = slot.compare_exchange(token.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn ways(&self, token: TokenHash) -> &[AtomicU64] {
        let set = token.0 as usize % (SLOTS / WAYS);
        self.0.slots.get(set * WAYS..(set + 1) * WAYS).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(tokens: &AcceptedTokens, number: usize) -> TokenHash {
        tokens.hash(format!("token-{number}").as_bytes())
    }

    #[test]
    fn an_authenticated_response_accepts_a_token_and_a_401_forgets_it() {
        let tokens = AcceptedTokens::default();
        let one = token(&tokens, 1);
        assert!(!tokens.contains(one));
        // These may come from a filter before authentication. A malformed `timeout`, for example,
        // is a 400 before the token is read.
        for early in [
            StatusCode::BAD_REQUEST,
            StatusCode::EXPECTATION_FAILED,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ] {
            tokens.note(one, early);
            assert!(!tokens.contains(one), "{early}");
        }
        tokens.note(one, StatusCode::FORBIDDEN);
        assert!(tokens.clone().contains(one));
        tokens.note(token(&tokens, 2), StatusCode::UNAUTHORIZED);
        assert!(tokens.contains(one));
        tokens.note(one, StatusCode::UNAUTHORIZED);
        assert!(!tokens.contains(one));
    }

    #[test]
    fn memory_is_bounded_and_most_tokens_are_remembered() {
        let tokens = AcceptedTokens::default();
        let known = |range: std::ops::Range<usize>| {
            range.filter(|number| tokens.contains(token(&tokens, *number))).count()
        };
        for number in 0..10_000 {
            tokens.note(token(&tokens, number), StatusCode::OK);
        }
        assert!(known(0..10_000) > 9_900, "{}", known(0..10_000));
        for number in 10_000..300_000 {
            tokens.note(token(&tokens, number), StatusCode::OK);
        }
        assert!(tokens.contains(token(&tokens, 299_999)), "the newest is always remembered");
        assert!(known(0..300_000) <= SLOTS);
    }
}
