//! Which bearer tokens a server has accepted. kube-apiserver ends an HTTP/2 connection after each
//! 401, so a token that nobody vouches for yet must not travel on a connection that others use.
//! Entry item: [`AcceptedTokens`].
//!
//! Tokens are never kept, only hashes under a random key of this process. Looked up without a lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

/// Tokens that are remembered, at most. One that falls out is accepted anew.
const SLOTS: usize = 1 << 16;
/// A hash is in one of so many neighbouring slots.
const WAYS: usize = 8;

/// The tokens that a server has accepted lately. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct AcceptedTokens(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    key: RandomState,
    slots: Box<[AtomicU64]>,
    /// Which of the neighbours is replaced next.
    next: AtomicU64,
}

/// A token, as far as it is remembered.
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

    /// Whether a server accepted it.
    pub(crate) fn contains(&self, token: TokenHash) -> bool {
        self.ways(token).iter().any(|slot| slot.load(Ordering::Relaxed) == token.0)
    }

    /// What a server's answer tells of the token: whether it shows that the server accepts it. Other
    /// answers may come from filters before authentication.
    pub(crate) fn note(&self, token: TokenHash, answer: StatusCode) -> bool {
        let accepted = answer.is_success()
            || matches!(
                answer,
                StatusCode::FORBIDDEN
                    | StatusCode::NOT_FOUND
                    | StatusCode::CONFLICT
                    | StatusCode::GONE
                    | StatusCode::UNPROCESSABLE_ENTITY
            );
        if answer == StatusCode::UNAUTHORIZED {
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
            // Another token may have come into the slot meanwhile; that one stays.
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
    fn an_answer_other_than_401_accepts_a_token_and_a_401_forgets_it() {
        let tokens = AcceptedTokens::default();
        let one = token(&tokens, 1);
        assert!(!tokens.contains(one));
        // These may come from a filter before authentication.
        // A malformed `timeout`, for one, is 400 before the token is looked at.
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
        assert!(tokens.contains(token(&tokens, 299_999)), "the newest is always known");
        assert!(known(0..300_000) <= SLOTS);
    }
}
