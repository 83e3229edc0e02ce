//! Counts what clients got wrong, by kind. Entry: [`ClientErrors`].

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a client connection failed, or a request was refused before it was routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The TLS handshake failed.
    Tls,
    /// The TLS handshake, the HTTP/2 preface or the head of an HTTP/1.1 request took too long.
    TimedOut,
    /// The head of a request is malformed.
    Malformed,
    /// The client broke the rules of HTTP/2, or one of its limits.
    Http2,
    /// The target of an HTTP/1.1 request is too long.
    LongTarget,
    /// A transfer coding other than `chunked`.
    TransferEncoding,
    /// An expectation other than `100-continue`.
    Expectation,
    /// The head of a request is too large.
    LargeHead,
    /// The credentials are not accepted.
    Unauthorized,
}

impl ClientError {
    /// All kinds, in the order of their numbers.
    pub const ALL: [ClientError; 9] = [
        ClientError::Tls,
        ClientError::TimedOut,
        ClientError::Malformed,
        ClientError::Http2,
        ClientError::LongTarget,
        ClientError::TransferEncoding,
        ClientError::Expectation,
        ClientError::LargeHead,
        ClientError::Unauthorized,
    ];

    /// The name of the kind, as in logs.
    pub fn label(self) -> &'static str {
        match self {
            ClientError::Tls => "tls",
            ClientError::TimedOut => "timed-out",
            ClientError::Malformed => "malformed",
            ClientError::Http2 => "http2",
            ClientError::LongTarget => "target-too-long",
            ClientError::TransferEncoding => "transfer-encoding",
            ClientError::Expectation => "expectation",
            ClientError::LargeHead => "head-too-large",
            ClientError::Unauthorized => "unauthorized",
        }
    }

    /// The kind of an error that ended a connection. `None` if the client or the network ended it.
    pub(crate) fn of(error: &hyper::Error, http2: bool) -> Option<ClientError> {
        if error.is_parse() {
            return Some(ClientError::Malformed);
        }
        let mut cause = error.source();
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<h2::Error>()
                && error.is_library()
            {
                return Some(ClientError::Http2);
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                let kind = match error.kind() {
                    // Not that of the kernel, which gives up a client that is gone.
                    io::ErrorKind::TimedOut if error.raw_os_error().is_none() => {
                        Some(ClientError::TimedOut)
                    }
                    io::ErrorKind::InvalidData if http2 => Some(ClientError::Http2),
                    io::ErrorKind::InvalidData => Some(ClientError::Malformed),
                    _ => None,
                };
                if kind.is_some() {
                    return kind;
                }
            }
            cause = error.source();
        }
        None
    }
}

/// Counters of the errors of clients. Clones share them: use one for all listeners of a process.
#[derive(Clone, Debug, Default)]
pub struct ClientErrors(Arc<[AtomicU64; ClientError::ALL.len()]>);

impl ClientErrors {
    /// Counts one more.
    pub fn note(&self, error: ClientError) {
        if let Some(count) = self.0.get(error as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of each kind so far.
    pub fn counts(&self) -> impl Iterator<Item = (ClientError, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        ClientError::ALL.into_iter().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_by_itself() {
        let errors = ClientErrors::default();
        for (index, error) in ClientError::ALL.into_iter().enumerate() {
            for _ in 0..=index {
                errors.clone().note(error);
            }
        }
        let expected: Vec<_> = ClientError::ALL.into_iter().zip(1..).collect();
        assert_eq!(errors.counts().collect::<Vec<_>>(), expected);
    }
}
